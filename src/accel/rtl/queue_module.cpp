#include "accel/rtl/queue_module.h"

#include <algorithm>

#include "accel/stream.h"

namespace tessera::inline rtl {

namespace {

std::string indented(int depth, const std::string& text) {
  return std::string(static_cast<size_t>(depth) * 2, ' ') + text;
}

class QueueWriter {
 public:
  QueueWriter(const UnitPlan& unit, size_t queue) : unit_(unit), number_(queue), plan_(unit.queues[queue]) {}

  std::string text() const {
    const size_t queues = unit_.queues.size();
    std::string text = fmt::format(R"(module queue_{} (
    input logic clk,
    input logic reset,
    input logic valid,
    input logic [{}:0] head,
    output logic start,
    output logic active,
    output logic finish,
    input logic [{}:0] available,
    output logic [{}:0] take,
    output logic [{}:0] give)",
                                   unit_.unit.queues[number_], unit_.bits - 1, queues - 1, queues - 1, queues - 1);
    for (const MemoryPort& port : plan_.ports) {
      const int64_t data = port.places * unit_.place_bits(port.memory);
      text += fmt::format(",\n    output logic [{}:0] {}_address", unit_.address_bits(port.memory) - 1, port.name);
      if (port.reads) text += fmt::format(",\n    input logic [{}:0] {}_read", data - 1, port.name);
      if (port.writes)
        text += fmt::format(",\n    output logic [{}:0] {}_write,\n    output logic [{}:0] {}_data", port.places - 1,
                            port.name, data - 1, port.name);
    }
    if (plan_.dram_bits)
      text += fmt::format(R"(,
    output logic request,
    output logic [{0}:0] request_segment,
    output logic [{1}:0] request_base,
    output logic [{2}:0] request_extents,
    output logic [{2}:0] request_begins,
    output logic [{2}:0] request_ends,
    output logic [{3}:0] request_strides,
    output logic [15:0] request_bytes,
    input logic complete,
    output logic [{1}:0] dram_address,
    output logic dram_read,
    input logic [{4}:0] dram_data,
    output logic dram_write,
    output logic [{4}:0] dram_written)",
                          kDramSegmentBits - 1, kDramAddressBits - 1, plan_.loops * plan_.extent_bits - 1,
                          plan_.loops * (kDramAddressBits + 1) - 1, plan_.dram_bits - 1);
    text += "\n);\n";
    text += state();
    for (const int k : plan_.kinds) text += kernel_instance(k);
    text += selection();
    return text + "endmodule\n";
  }

 private:
  std::string field(int k, const std::string& name) const {
    const FieldPlace place = unit_.fields[static_cast<size_t>(k)].at(name);
    return fmt::format("now[{}:{}]", place.at + place.bits - 1, place.at);
  }
  std::string low_bits(int k, const std::string& name, int bits) const {
    const FieldPlace place = unit_.fields[static_cast<size_t>(k)].at(name);
    return fmt::format("now[{}:{}]", place.at + bits - 1, place.at);
  }
  // With zeros or copies of the sign in front.
  std::string widened(int k, const std::string& name, int bits, bool is_signed) const {
    const FieldPlace place = unit_.fields[static_cast<size_t>(k)].at(name);
    if (place.bits >= bits) return low_bits(k, name, bits);
    const std::string sign = fmt::format("now[{}]", place.at + place.bits - 1);
    return fmt::format("{{{{{}{{{}}}}}, {}}}", bits - place.bits, is_signed ? sign : "1'b0", field(k, name));
  }

  // The instruction that runs, its loops and where its operands lie.
  std::string state() const {
    const int queues = static_cast<int>(unit_.queues.size());
    const FieldPlace waits = unit_.fields[0].at("waits"), signals = unit_.fields[0].at("signals");
    std::string text =
        fmt::format(R"(  localparam int LOOPS = {};
  localparam int EXTENT = {};
  localparam int WAIT = {};

  logic [{}:0] held;
  wire [{}:0] now = active ? held : head;
  always_ff @(posedge clk) begin
    if (start) held <= head;
  end
  wire [{}:0] waits = now[{}:{}];
  wire [{}:0] signals = now[{}:{}];
  assign start = valid && !active && (waits & ~available) == '0;
  assign take = start ? waits : '0;
  assign give = finish ? signals : '0;

  logic [LOOPS*EXTENT-1:0] extents;
  logic [WAIT-1:0] per_step;
  logic [LOOPS*WAIT-1:0] after;
  logic step;
  logic [LOOPS*EXTENT-1:0] at;
  logic [LOOPS-1:0] advance;
  logic hold;
  sequencer #(
      .LOOPS(LOOPS),
      .EXTENT(EXTENT),
      .WAIT(WAIT)
  ) loops (
      .clk,
      .reset,
      .start,
      .hold,
      .extents,
      .per_step,
      .after,
      .active,
      .step,
      .at,
      .advance,
      .finish
  );
)",
                    plan_.loops, plan_.extent_bits, plan_.wait_bits, unit_.bits - 1, unit_.bits - 1, queues - 1,
                    waits.at + waits.bits - 1, waits.at, queues - 1, signals.at + signals.bits - 1, signals.at);
    const auto generator = [&](const std::string& name, int width) {
      text += fmt::format(R"(
  logic [LOOPS-1:0] {0}_moves;
  logic [{1}:0] {0}_base;
  logic [LOOPS*{2}-1:0] {0}_strides;
  address_generator #(
      .LOOPS(LOOPS),
      .WIDTH({2})
  ) {0}_place (
      .clk,
      .active,
      .step,
      .advance,
      .moves({0}_moves),
      .base({0}_base),
      .strides({0}_strides),
      .address({0}_address)
  );
)",
                          name, width - 1, width);
    };
    for (const MemoryPort& port : plan_.ports) generator(port.name, unit_.address_bits(port.memory));
    if (plan_.dram_bits) generator("dram", kDramAddressBits);
    return text;
  }

  std::string read_of(int k, size_t p) const {
    const UnitInstruction& of = unit_.kind(k);
    const std::string range = fmt::format("[{}:0]", operand_bits(of, p) - 1);
    std::string text =
        (of.operands[p] == kDram ? "dram_data" : plan_.ports[plan_.port_of.at({k, p})].name + "_read") + range;
    if (of.padded[p]) text = fmt::format("{}_{}_inside ? {} : '0", of.name, param(k, p), text);
    return text;
  }

  const std::string& param(int k, size_t p) const { return unit_.kind(k).intrinsic->pattern()->params[p]->name; }

  std::string kernel_instance(int k) const {
    const UnitInstruction& of = unit_.kind(k);
    const LoopProgram& kernel = *of.intrinsic->pattern();
    const FieldPlace kinds = unit_.fields[0].at("kind");
    std::string text = "\n", connections = fmt::format("      .enable(step && now[{}:{}] == {}'d{}),\n",
                                                       kinds.at + kinds.bits - 1, kinds.at, kinds.bits, k);
    for (size_t p = 0; p < of.operands.size(); ++p) {
      if (of.padded[p]) {
        std::vector<std::string> conditions;
        const int front = plan_.loops - of.loops;
        for (int l = 0; l < of.loops; ++l) {
          const std::string place = fmt::format("at[{}*EXTENT+:EXTENT]", l + front);
          conditions.push_back(
              fmt::format("{} >= {} && {} < {}", place,
                          widened(k, fmt::format("{}.begin{}", param(k, p), l), plan_.extent_bits, false), place,
                          widened(k, fmt::format("{}.end{}", param(k, p), l), plan_.extent_bits, false)));
        }
        text += fmt::format("  wire {}_{}_inside = {};\n", of.name, param(k, p), fmt::join(conditions, " &&\n      "));
      }
      if (unit_.kernels[static_cast<size_t>(k)].reads[p])
        connections += fmt::format("      .op_{}({}),\n", param(k, p), read_of(k, p));
      if (is_written(of, p)) {
        text += fmt::format("  logic [{}:0] {}_{};\n", operand_bits(of, p) - 1, of.name, param(k, p));
        connections += fmt::format("      .out_{}({}_{}),\n", param(k, p), of.name, param(k, p));
      }
    }
    for (const Var& symbol : kernel.symbols) {
      const bool is_signed = of.intrinsic->patterns[0].rules.ranges.at(symbol->name).first < 0;
      connections += fmt::format("      .imm_{}({}),\n", symbol->name, widened(k, symbol->name, 64, is_signed));
    }
    connections.resize(connections.size() - 2);
    return text + fmt::format("  kernel_{0} {0}_step (\n{1}\n  );\n", of.name, connections);
  }

  // What each kind sets.
  std::string selection() const {
    std::string text =
        "\n  always_comb begin\n    extents = {LOOPS{EXTENT'(1)}};\n    per_step = '0;\n    after = '0;\n";
    const auto reset_operand = [&](const std::string& name) {
      text += fmt::format("    {0}_moves = '1;\n    {0}_base = '0;\n    {0}_strides = '0;\n", name);
    };
    for (const MemoryPort& port : plan_.ports) {
      reset_operand(port.name);
      if (port.writes) text += fmt::format("    {0}_write = '0;\n    {0}_data = '0;\n", port.name);
    }
    if (plan_.dram_bits) {
      reset_operand("dram");
      text +=
          "    request = 1'b0;\n    request_segment = '0;\n    request_begins = '0;\n"
          "    request_ends = {LOOPS{EXTENT'(1)}};\n    request_strides = '0;\n    request_bytes = '0;\n    hold = "
          "1'b0;\n"
          "    dram_read = 1'b0;\n    dram_write = 1'b0;\n    dram_written = '0;\n";
    } else {
      text += "    hold = 1'b0;\n";
    }
    const FieldPlace kinds = unit_.fields[0].at("kind");
    text += fmt::format("    case (now[{}:{}])\n", kinds.at + kinds.bits - 1, kinds.at);
    for (const int k : plan_.kinds) text += selected(k, kinds.bits);
    text += "      default: ;\n    endcase\n";
    if (plan_.dram_bits) text += "    request_base = dram_base;\n    request_extents = extents;\n";
    return text + "  end\n";
  }

  std::string selected(int k, int kind_bits) const {
    const UnitInstruction& of = unit_.kind(k);
    const StepTiming& timing = unit_.timings[static_cast<size_t>(k)];
    std::string text = fmt::format("      {}'d{}: begin  // {}\n", kind_bits, k, of.name);
    const auto set = [&](const std::string& name, const std::string& value) {
      text += indented(4, fmt::format("{} = {};\n", name, value));
    };
    const auto wait = [&](int64_t cycles) { return fmt::format("WAIT'({})", cycles); };
    if (of.loops)
      set("extents", by_loop(plan_.loops, of.loops, "EXTENT'(1)",
                             [&](int l) { return widened(k, fmt::format("n{}", l), plan_.extent_bits, false); }));
    set("per_step", wait(timing.per_step - 1));
    if (std::any_of(timing.after.begin(), timing.after.end(), [](int64_t cycles) { return cycles > 0; }))
      set("after",
          by_loop(plan_.loops, of.loops, wait(0), [&](int l) { return wait(timing.after[static_cast<size_t>(l)]); }));
    for (size_t p = 0; p < of.operands.size(); ++p) {
      const bool in_dram = of.operands[p] == kDram;
      const std::string name = in_dram ? "dram" : plan_.ports[plan_.port_of.at({k, p})].name;
      const int width = in_dram ? kDramAddressBits : unit_.address_bits(of.operands[p]);
      set(name + "_base", low_bits(k, param(k, p) + ".base", width));
      const auto box = [&](const char* end) {
        return by_loop(plan_.loops, of.loops, end == std::string("begin") ? "EXTENT'(0)" : "EXTENT'(1)", [&](int l) {
          return widened(k, fmt::format("{}.{}{}", param(k, p), end, l), plan_.extent_bits, false);
        });
      };
      if (of.loops) {
        const std::string zero = fmt::format("{}'d0", width);
        set(name + "_strides", by_loop(plan_.loops, of.loops, zero, [&](int l) {
              return low_bits(k, fmt::format("{}.stride{}", param(k, p), l), width);
            }));
        if (of.padded[p])
          set(name + "_moves", by_loop(plan_.loops, of.loops, "1'b1", [&](int l) {
                return fmt::format("at[{}*EXTENT+:EXTENT] >= {}", l + plan_.loops - of.loops,
                                   widened(k, fmt::format("{}.begin{}", param(k, p), l), plan_.extent_bits, false));
              }));
      }
      if (in_dram) {
        set("request", "start");
        set("hold", "!complete");
        set("request_segment", field(k, param(k, p) + ".segment"));
        if (of.loops) {
          set("request_strides", by_loop(plan_.loops, of.loops, fmt::format("{}'d0", kDramAddressBits + 1),
                                         [&](int l) { return field(k, fmt::format("{}.stride{}", param(k, p), l)); }));
          set("request_begins", of.padded[p] ? box("begin") : "'0");
          set("request_ends", of.padded[p] ? box("end") : "extents");
        }
        set("request_bytes", fmt::format("16'd{}", operand_bits(of, p) / 8));
        if (unit_.kernels[static_cast<size_t>(k)].reads[p])
          set("dram_read", of.padded[p] ? fmt::format("step && {}_{}_inside", of.name, param(k, p)) : "step");
      }
      if (!is_written(of, p)) continue;
      const int64_t bits = operand_bits(of, p);
      const int64_t all =
          in_dram ? plan_.dram_bits : plan_.ports[plan_.port_of.at({k, p})].places * unit_.place_bits(of.operands[p]);
      const std::string value = fmt::format("{}_{}", of.name, param(k, p));
      const std::string wide = bits == all ? value : fmt::format("{{{}'d0, {}}}", all - bits, value);
      if (in_dram) {
        set("dram_write", "step");
        set("dram_written", wide);
        continue;
      }
      const int64_t places = all / unit_.place_bits(of.operands[p]), own = bits / unit_.place_bits(of.operands[p]);
      set(name + "_write", own == places ? fmt::format("{{{}{{step}}}}", places)
                                         : fmt::format("{{{}'d0, {{{}{{step}}}}}}", places - own, own));
      set(name + "_data", wide);
    }
    return text + "      end\n";
  }

  const UnitPlan& unit_;
  size_t number_;
  const QueuePlan& plan_;
};

}  // namespace

std::string queue_module(const UnitPlan& unit, size_t queue) { return QueueWriter(unit, queue).text(); }

}  // namespace tessera::inline rtl
