#include "accel/rtl/unit_rtl.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/rtl/kernel_module.h"
#include "accel/rtl/step_timing.h"
#include "accel/stream.h"
#include "sv_sources.h"

namespace tessera::inline rtl {

namespace {

// Where the bits of a field lie in an instruction.
struct FieldPlace {
  int at = 0, bits = 0;
};

int bits_for(int64_t most) { return std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(most)))); }

// A way from a queue to a memory, which its kinds of instructions share: each uses it for one of its operands.
struct MemoryPort {
  int memory = 0;
  int64_t places = 1;  // that lie behind one another
  bool reads = false, writes = false;
  std::string name;  // "acc0"
};

struct QueuePlan {
  std::vector<int> kinds;
  std::vector<MemoryPort> ports;
  std::map<std::pair<int, size_t>, size_t> port_of;  // of a kind's operand
  int loops = 1, extent_bits = 1, wait_bits = 1;
  int64_t dram_bits = 0;  // of the widest operand in DRAM; 0: it moves none
  bool dram_reads = false, dram_writes = false;
};

std::string indented(int depth, const std::string& text) {
  return std::string(static_cast<size_t>(depth) * 2, ' ') + text;
}

class UnitWriter {
 public:
  explicit UnitWriter(const Accelerator& unit) : unit_(unit), bits_(instruction_bits(unit)) {
    for (const UnitInstruction& kind : unit.instructions) {
      kernels_.push_back(kernel_module(unit, kind));
      timings_.push_back(step_timing(unit, kind));
      places_.emplace_back();
      int at = 0;
      for (const EncodedField& field : fields_of(unit, kind)) {
        places_.back()[field.name] = {at, field.bits};
        at += field.bits;
      }
    }
    for (size_t q = 0; q < unit.queues.size(); ++q) plans_.push_back(plan_of(static_cast<int>(q)));
    for (const QueuePlan& plan : plans_) {
      loops_ = std::max(loops_, plan.loops);
      extent_bits_ = std::max(extent_bits_, plan.extent_bits);
      dram_bits_ = std::max(dram_bits_, plan.dram_bits);
    }
  }

  std::string kernels() const {
    std::string text = header("what each instruction computes in a step");
    for (const KernelModule& kernel : kernels_) text += kernel.text + "\n";
    return text;
  }

  std::string queues() const {
    std::string text = header("its queues");
    for (size_t q = 0; q < plans_.size(); ++q) text += queue_module(q) + "\n";
    return text;
  }

  std::string top() const {
    std::string text = header("the whole");
    text += top_module();
    return text;
  }

  // What the bench has to know.
  std::string parameters() const {
    std::string text = header("numbers for the bench");
    const auto number = [&](const char* name, int64_t value) {
      text += fmt::format("localparam int {} = {};\n", name, value);
    };
    number("WIDTH", bits_);
    number("QUEUES", static_cast<int64_t>(plans_.size()));
    number("PORTS", dram_ports());
    number("LOOPS", loops_);
    number("EXTENT", extent_bits_);
    number("SEGMENT", kDramSegmentBits);
    number("ADDRESS", kDramAddressBits);
    number("DATA", std::max<int64_t>(dram_bits_, 8));
    number("BYTES_PER_CYCLE", unit_.dram_bytes_per_cycle);
    number("LATENCY", unit_.dram_latency);
    number("BURST", unit_.dram_burst);
    return text;
  }

  // Memories begin as simulators begin them, and are written to files at the end.
  std::string memories() const {
    std::string text = header("contents of memories");
    text += "initial begin\n";
    for (const UnitMemory& memory : unit_.memories)
      text += fmt::format("  for (int i = 0; i < {}; i++) dut.memory_{}.places[i] = {{{}{{8'ha5}}}};\n",
                          memory.bytes / memory.element, memory.name, memory.element);
    text += "end\ntask write_memories(input string folder);\n";
    for (const UnitMemory& memory : unit_.memories)
      text += fmt::format("  $writememh({{folder, \"/{0}.out\"}}, dut.memory_{0}.places);\n", memory.name);
    return text + "endtask\n";
  }

 private:
  std::string header(const std::string& what) const {
    return fmt::format("// Made from the description of {}: {}.\n\n", unit_.name, what);
  }

  const UnitInstruction& kind(int number) const { return unit_.instructions[static_cast<size_t>(number)]; }
  int address_bits(int memory) const {
    const UnitMemory& of = unit_.memories[static_cast<size_t>(memory)];
    return bits_for(of.bytes / of.element - 1);
  }
  int64_t place_bits(int memory) const { return unit_.memories[static_cast<size_t>(memory)].element * 8; }
  int64_t dram_ports() const {
    return std::max<int64_t>(
        1, std::count_if(plans_.begin(), plans_.end(), [](const QueuePlan& plan) { return plan.dram_bits > 0; }));
  }

  QueuePlan plan_of(int queue) const {
    QueuePlan plan;
    for (size_t k = 0; k < unit_.instructions.size(); ++k)
      if (unit_.instructions[k].queue == queue) plan.kinds.push_back(static_cast<int>(k));
    for (const int k : plan.kinds) {
      const UnitInstruction& of = kind(k);
      plan.loops = std::max(plan.loops, of.loops);
      plan.extent_bits = std::max(plan.extent_bits, of.extent_bits);
      const StepTiming& timing = timings_[static_cast<size_t>(k)];
      int64_t wait = timing.per_step;
      for (const int64_t after : timing.after) wait += after;
      plan.wait_bits = std::max(plan.wait_bits, bits_for(wait));
      std::map<int, size_t> used;  // ports of each memory
      for (size_t p = 0; p < of.operands.size(); ++p) {
        const bool reads = kernels_[static_cast<size_t>(k)].reads[p], writes = is_written(of, p);
        const int memory = of.operands[p];
        if (memory == kDram) {
          plan.dram_bits = std::max(plan.dram_bits, operand_bits(of, p));
          plan.dram_reads = plan.dram_reads || reads;
          plan.dram_writes = plan.dram_writes || writes;
          continue;
        }
        const size_t wanted = used[memory]++;
        size_t found = 0, index = 0;
        for (; index < plan.ports.size(); ++index)
          if (plan.ports[index].memory == memory && found++ == wanted) break;
        if (index == plan.ports.size())
          plan.ports.push_back({.memory = memory,
                                .name = fmt::format("{}{}", unit_.memories[static_cast<size_t>(memory)].name, wanted)});
        MemoryPort& port = plan.ports[index];
        port.places = std::max(port.places, operand_bits(of, p) / place_bits(memory));
        port.reads = port.reads || reads;
        port.writes = port.writes || writes;
        plan.port_of[{k, p}] = index;
      }
    }
    return plan;
  }

  std::string field(int k, const std::string& name) const {
    const FieldPlace place = places_[static_cast<size_t>(k)].at(name);
    return fmt::format("now[{}:{}]", place.at + place.bits - 1, place.at);
  }
  std::string low_bits(int k, const std::string& name, int bits) const {
    const FieldPlace place = places_[static_cast<size_t>(k)].at(name);
    return fmt::format("now[{}:{}]", place.at + bits - 1, place.at);
  }
  // With zeros or copies of the sign in front.
  std::string widened(int k, const std::string& name, int bits, bool is_signed) const {
    const FieldPlace place = places_[static_cast<size_t>(k)].at(name);
    if (place.bits >= bits) return low_bits(k, name, bits);
    const std::string sign = fmt::format("now[{}]", place.at + place.bits - 1);
    return fmt::format("{{{{{}{{{}}}}}, {}}}", bits - place.bits, is_signed ? sign : "1'b0", field(k, name));
  }

  // A vector with an entry for each of the queue's loops, those that a kind does not have in front: loop 0 lowest.
  template <typename Entry>
  static std::string by_loop(int loops, int own, const std::string& missing, Entry entry) {
    std::vector<std::string> entries;
    for (int l = loops; l-- > 0;) entries.push_back(l >= loops - own ? entry(l - (loops - own)) : missing);
    return fmt::format("{{{}}}", fmt::join(entries, ", "));
  }

  std::string queue_module(size_t q) const {
    const QueuePlan& plan = plans_[q];
    const size_t queues = plans_.size();
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
                                   unit_.queues[q], bits_ - 1, queues - 1, queues - 1, queues - 1);
    for (const MemoryPort& port : plan.ports) {
      const int64_t data = port.places * place_bits(port.memory);
      text += fmt::format(",\n    output logic [{}:0] {}_address", address_bits(port.memory) - 1, port.name);
      if (port.reads) text += fmt::format(",\n    input logic [{}:0] {}_read", data - 1, port.name);
      if (port.writes)
        text += fmt::format(",\n    output logic [{}:0] {}_write,\n    output logic [{}:0] {}_data", port.places - 1,
                            port.name, data - 1, port.name);
    }
    if (plan.dram_bits)
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
                          kDramSegmentBits - 1, kDramAddressBits - 1, plan.loops * plan.extent_bits - 1,
                          plan.loops * (kDramAddressBits + 1) - 1, plan.dram_bits - 1);
    text += "\n);\n";
    text += queue_state(plan);
    for (const int k : plan.kinds) text += kernel_instance(plan, k);
    text += selection(plan);
    return text + "endmodule\n";
  }

  // The instruction that runs, its loops and where its operands lie.
  std::string queue_state(const QueuePlan& plan) const {
    const int queues = static_cast<int>(plans_.size());
    const FieldPlace waits = places_[0].at("waits"), signals = places_[0].at("signals");
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
                    plan.loops, plan.extent_bits, plan.wait_bits, bits_ - 1, bits_ - 1, queues - 1,
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
    for (const MemoryPort& port : plan.ports) generator(port.name, address_bits(port.memory));
    if (plan.dram_bits) generator("dram", kDramAddressBits);
    return text;
  }

  std::string read_of(const QueuePlan& plan, int k, size_t p) const {
    const UnitInstruction& of = kind(k);
    const std::string range = fmt::format("[{}:0]", operand_bits(of, p) - 1);
    std::string text =
        (of.operands[p] == kDram ? "dram_data" : plan.ports[plan.port_of.at({k, p})].name + "_read") + range;
    if (of.padded[p]) text = fmt::format("{}_{}_inside ? {} : '0", of.name, param(k, p), text);
    return text;
  }

  const std::string& param(int k, size_t p) const { return kind(k).intrinsic->pattern()->params[p]->name; }

  std::string kernel_instance(const QueuePlan& plan, int k) const {
    const UnitInstruction& of = kind(k);
    const LoopProgram& kernel = *of.intrinsic->pattern();
    const FieldPlace kinds = places_[0].at("kind");
    std::string text = "\n", connections = fmt::format("      .enable(step && now[{}:{}] == {}'d{}),\n",
                                                       kinds.at + kinds.bits - 1, kinds.at, kinds.bits, k);
    for (size_t p = 0; p < of.operands.size(); ++p) {
      if (of.padded[p]) {
        std::vector<std::string> conditions;
        const int front = plan.loops - of.loops;
        for (int l = 0; l < of.loops; ++l) {
          const std::string place = fmt::format("at[{}*EXTENT+:EXTENT]", l + front);
          conditions.push_back(
              fmt::format("{} >= {} && {} < {}", place,
                          widened(k, fmt::format("{}.begin{}", param(k, p), l), plan.extent_bits, false), place,
                          widened(k, fmt::format("{}.end{}", param(k, p), l), plan.extent_bits, false)));
        }
        text += fmt::format("  wire {}_{}_inside = {};\n", of.name, param(k, p), fmt::join(conditions, " &&\n      "));
      }
      if (kernels_[static_cast<size_t>(k)].reads[p])
        connections += fmt::format("      .op_{}({}),\n", param(k, p), read_of(plan, k, p));
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
  std::string selection(const QueuePlan& plan) const {
    std::string text =
        "\n  always_comb begin\n    extents = {LOOPS{EXTENT'(1)}};\n    per_step = '0;\n    after = '0;\n";
    const auto reset_operand = [&](const std::string& name) {
      text += fmt::format("    {0}_moves = '1;\n    {0}_base = '0;\n    {0}_strides = '0;\n", name);
    };
    for (const MemoryPort& port : plan.ports) {
      reset_operand(port.name);
      if (port.writes) text += fmt::format("    {0}_write = '0;\n    {0}_data = '0;\n", port.name);
    }
    if (plan.dram_bits) {
      reset_operand("dram");
      text +=
          "    request = 1'b0;\n    request_segment = '0;\n    request_begins = '0;\n"
          "    request_ends = {LOOPS{EXTENT'(1)}};\n    request_strides = '0;\n    request_bytes = '0;\n    hold = "
          "1'b0;\n"
          "    dram_read = 1'b0;\n    dram_write = 1'b0;\n    dram_written = '0;\n";
    } else {
      text += "    hold = 1'b0;\n";
    }
    const FieldPlace kinds = places_[0].at("kind");
    text += fmt::format("    case (now[{}:{}])\n", kinds.at + kinds.bits - 1, kinds.at);
    for (const int k : plan.kinds) text += selected(plan, k, kinds.bits);
    text += "      default: ;\n    endcase\n";
    if (plan.dram_bits) text += "    request_base = dram_base;\n    request_extents = extents;\n";
    return text + "  end\n";
  }

  std::string selected(const QueuePlan& plan, int k, int kind_bits) const {
    const UnitInstruction& of = kind(k);
    const StepTiming& timing = timings_[static_cast<size_t>(k)];
    std::string text = fmt::format("      {}'d{}: begin  // {}\n", kind_bits, k, of.name);
    const auto set = [&](const std::string& name, const std::string& value) {
      text += indented(4, fmt::format("{} = {};\n", name, value));
    };
    const auto wait = [&](int64_t cycles) { return fmt::format("WAIT'({})", cycles); };
    if (of.loops)
      set("extents", by_loop(plan.loops, of.loops, "EXTENT'(1)",
                             [&](int l) { return widened(k, fmt::format("n{}", l), plan.extent_bits, false); }));
    set("per_step", wait(timing.per_step - 1));
    if (std::any_of(timing.after.begin(), timing.after.end(), [](int64_t cycles) { return cycles > 0; }))
      set("after",
          by_loop(plan.loops, of.loops, wait(0), [&](int l) { return wait(timing.after[static_cast<size_t>(l)]); }));
    for (size_t p = 0; p < of.operands.size(); ++p) {
      const bool in_dram = of.operands[p] == kDram;
      const std::string name = in_dram ? "dram" : plan.ports[plan.port_of.at({k, p})].name;
      const int width = in_dram ? kDramAddressBits : address_bits(of.operands[p]);
      set(name + "_base", low_bits(k, param(k, p) + ".base", width));
      const auto box = [&](const char* end) {
        return by_loop(plan.loops, of.loops, end == std::string("begin") ? "EXTENT'(0)" : "EXTENT'(1)", [&](int l) {
          return widened(k, fmt::format("{}.{}{}", param(k, p), end, l), plan.extent_bits, false);
        });
      };
      if (of.loops) {
        const std::string zero = fmt::format("{}'d0", width);
        set(name + "_strides", by_loop(plan.loops, of.loops, zero, [&](int l) {
              return low_bits(k, fmt::format("{}.stride{}", param(k, p), l), width);
            }));
        if (of.padded[p])
          set(name + "_moves", by_loop(plan.loops, of.loops, "1'b1", [&](int l) {
                return fmt::format("at[{}*EXTENT+:EXTENT] >= {}", l + plan.loops - of.loops,
                                   widened(k, fmt::format("{}.begin{}", param(k, p), l), plan.extent_bits, false));
              }));
      }
      if (in_dram) {
        set("request", "start");
        set("hold", "!complete");
        set("request_segment", field(k, param(k, p) + ".segment"));
        if (of.loops) {
          set("request_strides", by_loop(plan.loops, of.loops, fmt::format("{}'d0", kDramAddressBits + 1),
                                         [&](int l) { return field(k, fmt::format("{}.stride{}", param(k, p), l)); }));
          set("request_begins", of.padded[p] ? box("begin") : "'0");
          set("request_ends", of.padded[p] ? box("end") : "extents");
        }
        set("request_bytes", fmt::format("16'd{}", operand_bits(of, p) / 8));
        if (kernels_[static_cast<size_t>(k)].reads[p])
          set("dram_read", of.padded[p] ? fmt::format("step && {}_{}_inside", of.name, param(k, p)) : "step");
      }
      if (!is_written(of, p)) continue;
      const int64_t bits = operand_bits(of, p);
      const int64_t all =
          in_dram ? plan.dram_bits : plan.ports[plan.port_of.at({k, p})].places * place_bits(of.operands[p]);
      const std::string value = fmt::format("{}_{}", of.name, param(k, p));
      const std::string wide = bits == all ? value : fmt::format("{{{}'d0, {}}}", all - bits, value);
      if (in_dram) {
        set("dram_write", "step");
        set("dram_written", wide);
        continue;
      }
      const int64_t places = all / place_bits(of.operands[p]), own = bits / place_bits(of.operands[p]);
      set(name + "_write", own == places ? fmt::format("{{{}{{step}}}}", places)
                                         : fmt::format("{{{}'d0, {{{}{{step}}}}}}", places - own, own));
      set(name + "_data", wide);
    }
    return text + "      end\n";
  }

  std::string top_module() const {
    const size_t queues = plans_.size();
    const int64_t ports = dram_ports();
    std::string text =
        fmt::format(R"(module accelerator (
    input logic clk,
    input logic reset,
    // The stream.
    input logic [31:0] instructions,
    output logic [31:0] instruction_address,
    input logic [{0}:0] instruction,
    output logic [{1}:0] started,
    output logic [{1}:0] finished,
    output logic idle,
    // DRAM: a port for each queue that moves data. A request says all that an instruction will read or write; it is
    // complete when the data may be where they shall be. Steps read and write in their cycle.
    output logic [{2}:0] request,
    output logic [{3}:0] request_segment,
    output logic [{4}:0] request_base,
    output logic [{5}:0] request_extents,
    output logic [{5}:0] request_begins,
    output logic [{5}:0] request_ends,
    output logic [{6}:0] request_strides,
    output logic [{7}:0] request_bytes,
    input logic [{2}:0] complete,
    output logic [{4}:0] dram_address,
    output logic [{2}:0] dram_read,
    input logic [{8}:0] dram_data,
    output logic [{2}:0] dram_write,
    output logic [{8}:0] dram_written
);
)",
                    bits_ - 1, queues - 1, ports - 1, ports * kDramSegmentBits - 1, ports * kDramAddressBits - 1,
                    ports * loops_ * extent_bits_ - 1, ports * loops_ * (kDramAddressBits + 1) - 1, ports * 16 - 1,
                    ports * std::max<int64_t>(dram_bits_, 8) - 1);
    text += fetch_and_queues();
    text += memory_instances();
    size_t port = 0;
    for (size_t q = 0; q < queues; ++q) text += queue_instance(q, plans_[q].dram_bits ? port++ : port);
    if (port == 0) text += "  assign request = '0;\n  assign dram_read = '0;\n  assign dram_write = '0;\n";
    return text + "endmodule\n";
  }

  std::string fetch_and_queues() const {
    const size_t queues = plans_.size();
    const FieldPlace kinds = places_[0].at("kind");
    std::string text = fmt::format(R"(
  logic fetch_valid;
  logic fetch_done;
  logic [{0}:0] fetched;
  logic [{1}:0] target;
  logic [{1}:0] ready;
  logic [{1}:0] valid;
  logic [{1}:0] active;
  logic [{2}:0] given;  // by one queue to all, the first queue's lowest
  logic [{2}:0] taken;  // by one queue from all
  logic [{2}:0] tokens_available;
  instruction_fetch #(
      .WIDTH({3}),
      .CYCLES({4})
  ) fetch (
      .clk,
      .reset,
      .count(instructions),
      .address(instruction_address),
      .instruction,
      .valid(fetch_valid),
      .fetched,
      .ready((target & ready) != '0),
      .done(fetch_done)
  );
  always_comb begin
    case (fetched[{5}:{6}])
)",
                                   bits_ - 1, queues - 1, queues * queues - 1, bits_, unit_.fetch_cycles,
                                   kinds.at + kinds.bits - 1, kinds.at);
    for (size_t k = 0; k < unit_.instructions.size(); ++k)
      text += fmt::format("      {}'d{}: target = {}'d{};  // {}\n", kinds.bits, k, queues,
                          uint64_t{1} << unit_.instructions[k].queue, unit_.instructions[k].name);
    text += fmt::format(R"(      default: target = '0;
    endcase
  end
  assign idle = fetch_done && valid == '0 && active == '0;

  for (genvar giver = 0; giver < {0}; giver++) begin : gen_giver
    for (genvar taker = 0; taker < {0}; taker++) begin : gen_taker
      tokens pair (
          .clk,
          .reset,
          .give(given[giver*{0}+taker]),
          .take(taken[taker*{0}+giver]),
          .available(tokens_available[taker*{0}+giver])
      );
    end
  end
)",
                        queues);
    return text;
  }

  // Numbers of the ports of a memory, in the order of queues.
  struct PortNumbers {
    int64_t reads = 0, writes = 0;
  };

  PortNumbers numbers_before(int memory, size_t queue, size_t port) const {
    PortNumbers numbers;
    for (size_t q = 0; q <= queue && q < plans_.size(); ++q)
      for (size_t i = 0; i < plans_[q].ports.size(); ++i) {
        if (q == queue && i >= port) break;
        const MemoryPort& of = plans_[q].ports[i];
        if (of.memory != memory) continue;
        if (of.reads) numbers.reads += of.places;
        if (of.writes) numbers.writes += of.places;
      }
    return numbers;
  }

  std::string memory_instances() const {
    std::string text;
    for (size_t m = 0; m < unit_.memories.size(); ++m) {
      const UnitMemory& memory = unit_.memories[m];
      PortNumbers numbers = numbers_before(static_cast<int>(m), plans_.size(), 0);
      const bool is_read = numbers.reads > 0, is_written = numbers.writes > 0;
      numbers = {std::max<int64_t>(numbers.reads, 1), std::max<int64_t>(numbers.writes, 1)};
      const int address = address_bits(static_cast<int>(m));
      text += fmt::format(R"(
  logic [{1}:0] {0}_read_address;
  logic [{2}:0] {0}_read_data;
  logic [{3}:0] {0}_write;
  logic [{4}:0] {0}_write_address;
  logic [{5}:0] {0}_write_data;
  memory #(
      .WIDTH({6}),
      .DEPTH({7}),
      .ADDRESS({8}),
      .READS({9}),
      .WRITES({10})
  ) memory_{0} (
      .clk,
      .read_address({0}_read_address),
      .read_data({0}_read_data),
      .write({0}_write),
      .write_address({0}_write_address),
      .write_data({0}_write_data)
  );
)",
                          memory.name, numbers.reads * address - 1, numbers.reads * memory.element * 8 - 1,
                          numbers.writes - 1, numbers.writes * address - 1, numbers.writes * memory.element * 8 - 1,
                          memory.element * 8, memory.bytes / memory.element, address, numbers.reads, numbers.writes);
      if (!is_read) text += fmt::format("  assign {}_read_address = '0;\n", memory.name);
      if (!is_written)
        text += fmt::format(
            "  assign {0}_write = '0;\n  assign {0}_write_address = '0;\n  assign {0}_write_data = '0;\n", memory.name);
    }
    return text;
  }

  std::string queue_instance(size_t q, size_t dram_port) const {
    const QueuePlan& plan = plans_[q];
    const size_t queues = plans_.size();
    const std::string& name = unit_.queues[q];
    std::string wires = fmt::format("\n  logic [{}:0] {}_head;\n", bits_ - 1, name), connections;
    std::string assigns;
    for (size_t i = 0; i < plan.ports.size(); ++i) {
      const MemoryPort& port = plan.ports[i];
      const std::string& memory = unit_.memories[static_cast<size_t>(port.memory)].name;
      const int address = address_bits(port.memory);
      const int64_t width = place_bits(port.memory);
      const PortNumbers before = numbers_before(port.memory, q, i);
      wires += fmt::format("  logic [{}:0] {}_{}_address;\n", address - 1, name, port.name);
      connections += fmt::format(",\n      .{1}_address({0}_{1}_address)", name, port.name);
      for (int64_t e = 0; e < port.places; ++e) {
        const std::string place = e ? fmt::format("{}_{}_address + {}'d{}", name, port.name, address, e)
                                    : fmt::format("{}_{}_address", name, port.name);
        if (port.reads)
          assigns += fmt::format("  assign {}_read_address[{}+:{}] = {};\n", memory, (before.reads + e) * address,
                                 address, place);
        if (port.writes)
          assigns += fmt::format("  assign {}_write_address[{}+:{}] = {};\n", memory, (before.writes + e) * address,
                                 address, place);
      }
      if (port.reads)
        connections += fmt::format(",\n      .{}_read({}_read_data[{}+:{}])", port.name, memory, before.reads * width,
                                   port.places * width);
      if (port.writes)
        connections +=
            fmt::format(",\n      .{0}_write({1}_write[{2}+:{3}]),\n      .{0}_data({1}_write_data[{4}+:{5}])",
                        port.name, memory, before.writes, port.places, before.writes * width, port.places * width);
    }
    if (plan.dram_bits) dram_connections(plan, name, static_cast<int64_t>(dram_port), wires, connections, assigns);
    return wires + assigns +
           fmt::format(R"(  instruction_fifo #(
      .WIDTH({1}),
      .DEPTH({2})
  ) fifo_{0} (
      .clk,
      .reset,
      .push(fetch_valid && target[{3}]),
      .pushed(fetched),
      .ready(ready[{3}]),
      .valid(valid[{3}]),
      .head({0}_head),
      .pop(started[{3}])
  );
  queue_{0} unit_{0} (
      .clk,
      .reset,
      .valid(valid[{3}]),
      .head({0}_head),
      .start(started[{3}]),
      .active(active[{3}]),
      .finish(finished[{3}]),
      .available(tokens_available[{4}+:{5}]),
      .take(taken[{4}+:{5}]),
      .give(given[{4}+:{5}]){6}
  );
)",
                       name, bits_, unit_.queue_depth, q, q * queues, queues, connections);
  }

  // The queue's loops are the last of those of a port, which has as many as any queue.
  void dram_connections(const QueuePlan& plan, const std::string& name, int64_t port, std::string& wires,
                        std::string& connections, std::string& assigns) const {
    const auto direct = [&](const std::string& signal, int64_t bits) {
      connections += fmt::format(",\n      .{0}({0}[{1}+:{2}])", signal, port * bits, bits);
    };
    connections += fmt::format(
        ",\n      .request(request[{0}]),\n      .complete(complete[{0}]),\n      "
        ".dram_read(dram_read[{0}]),\n      .dram_write(dram_write[{0}])",
        port);
    direct("request_segment", kDramSegmentBits);
    direct("request_base", kDramAddressBits);
    direct("request_bytes", 16);
    direct("dram_address", kDramAddressBits);
    for (const char* which : {"extents", "begins", "ends"}) {
      wires += fmt::format("  logic [{}:0] {}_request_{};\n", plan.loops * plan.extent_bits - 1, name, which);
      connections += fmt::format(",\n      .request_{1}({0}_request_{1})", name, which);
      const std::string missing = fmt::format("{}'d{}", extent_bits_, which == std::string("begins") ? 0 : 1);
      assigns += fmt::format("  assign request_{}[{}+:{}] = {};\n", which, port * loops_ * extent_bits_,
                             loops_ * extent_bits_, by_loop(loops_, plan.loops, missing, [&](int l) {
                               const std::string part = fmt::format("{}_request_{}[{}+:{}]", name, which,
                                                                    l * plan.extent_bits, plan.extent_bits);
                               return plan.extent_bits == extent_bits_
                                          ? part
                                          : fmt::format("{{{}'d0, {}}}", extent_bits_ - plan.extent_bits, part);
                             }));
    }
    const int stride = kDramAddressBits + 1;
    wires += fmt::format("  logic [{}:0] {}_request_strides;\n", plan.loops * stride - 1, name);
    connections += fmt::format(",\n      .request_strides({}_request_strides)", name);
    const int missing = (loops_ - plan.loops) * stride;
    assigns += fmt::format("  assign request_strides[{}+:{}] = {};\n", port * loops_ * stride, loops_ * stride,
                           missing ? fmt::format("{{{}_request_strides, {}'d0}}", name, missing)
                                   : fmt::format("{}_request_strides", name));
    const int64_t data = dram_bits_, own = plan.dram_bits;
    connections += fmt::format(",\n      .dram_data(dram_data[{}+:{}])", port * data, own);
    wires += fmt::format("  logic [{}:0] {}_dram_written;\n", own - 1, name);
    connections += fmt::format(",\n      .dram_written({}_dram_written)", name);
    assigns += fmt::format("  assign dram_written[{}+:{}] = {};\n", port * data, data,
                           own == data ? fmt::format("{}_dram_written", name)
                                       : fmt::format("{{{}'d0, {}_dram_written}}", data - own, name));
  }

  const Accelerator& unit_;
  int64_t bits_;
  std::vector<KernelModule> kernels_;
  std::vector<StepTiming> timings_;
  std::vector<std::map<std::string, FieldPlace>> places_;  // of the fields of each kind
  std::vector<QueuePlan> plans_;
  int loops_ = 1, extent_bits_ = 1;  // the most of any queue
  int64_t dram_bits_ = 0;
};

}  // namespace

RtlFiles rtl_files(const Accelerator& unit) {
  const UnitWriter writer(unit);
  RtlFiles files;
  for (const auto& [name, text] : kSvSources) {
    const std::string file(name);
    (file.starts_with("bench") ? files.bench
     : file.ends_with(".svh")  ? files.headers
                               : files.design)
        .emplace_back(file, text);
  }
  files.design.emplace_back("kernels.sv", writer.kernels());
  files.design.emplace_back("queues.sv", writer.queues());
  files.design.emplace_back("accelerator.sv", writer.top());
  files.headers.emplace_back("bench_parameters.svh", writer.parameters());
  files.headers.emplace_back("bench_memories.svh", writer.memories());
  return files;
}

}  // namespace tessera::inline rtl
