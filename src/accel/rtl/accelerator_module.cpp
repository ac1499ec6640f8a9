#include "accel/rtl/accelerator_module.h"

#include <algorithm>

#include "accel/stream.h"

namespace tessera::inline rtl {

namespace {

class AcceleratorWriter {
 public:
  explicit AcceleratorWriter(const UnitPlan& unit) : unit_(unit) {}

  std::string text() const {
    const size_t queues = unit_.queues.size();
    const int64_t ports = unit_.dram_ports();
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
                    unit_.bits - 1, queues - 1, ports - 1, ports * kDramSegmentBits - 1, ports * kDramAddressBits - 1,
                    ports * unit_.loops * unit_.extent_bits - 1, ports * unit_.loops * (kDramAddressBits + 1) - 1,
                    ports * 16 - 1, ports * std::max<int64_t>(unit_.dram_bits, 8) - 1);
    text += fetch_and_queues();
    text += memory_instances();
    size_t port = 0;
    for (size_t q = 0; q < queues; ++q) text += queue_instance(q, unit_.queues[q].dram_bits ? port++ : port);
    if (port == 0) text += "  assign request = '0;\n  assign dram_read = '0;\n  assign dram_write = '0;\n";
    return text + "endmodule\n";
  }

 private:
  std::string fetch_and_queues() const {
    const size_t queues = unit_.queues.size();
    const FieldPlace kinds = unit_.fields[0].at("kind");
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
                                   unit_.bits - 1, queues - 1, queues * queues - 1, unit_.bits, unit_.unit.fetch_cycles,
                                   kinds.at + kinds.bits - 1, kinds.at);
    for (size_t k = 0; k < unit_.unit.instructions.size(); ++k)
      text += fmt::format("      {}'d{}: target = {}'d{};  // {}\n", kinds.bits, k, queues,
                          uint64_t{1} << unit_.unit.instructions[k].queue, unit_.unit.instructions[k].name);
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
    for (size_t q = 0; q <= queue && q < unit_.queues.size(); ++q)
      for (size_t i = 0; i < unit_.queues[q].ports.size(); ++i) {
        if (q == queue && i >= port) break;
        const MemoryPort& of = unit_.queues[q].ports[i];
        if (of.memory != memory) continue;
        if (of.reads) numbers.reads += of.places;
        if (of.writes) numbers.writes += of.places;
      }
    return numbers;
  }

  std::string memory_instances() const {
    std::string text;
    for (size_t m = 0; m < unit_.unit.memories.size(); ++m) {
      const UnitMemory& memory = unit_.unit.memories[m];
      PortNumbers numbers = numbers_before(static_cast<int>(m), unit_.queues.size(), 0);
      const bool is_read = numbers.reads > 0, is_written = numbers.writes > 0;
      numbers = {std::max<int64_t>(numbers.reads, 1), std::max<int64_t>(numbers.writes, 1)};
      const int address = unit_.address_bits(static_cast<int>(m));
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
    const QueuePlan& plan = unit_.queues[q];
    const size_t queues = unit_.queues.size();
    const std::string& name = unit_.unit.queues[q];
    std::string wires = fmt::format("\n  logic [{}:0] {}_head;\n", unit_.bits - 1, name), connections;
    std::string assigns;
    for (size_t i = 0; i < plan.ports.size(); ++i) {
      const MemoryPort& port = plan.ports[i];
      const std::string& memory = unit_.unit.memories[static_cast<size_t>(port.memory)].name;
      const int address = unit_.address_bits(port.memory);
      const int64_t width = unit_.place_bits(port.memory);
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
                       name, unit_.bits, unit_.unit.queue_depth, q, q * queues, queues, connections);
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
      const std::string missing = fmt::format("{}'d{}", unit_.extent_bits, which == std::string("begins") ? 0 : 1);
      assigns += fmt::format("  assign request_{}[{}+:{}] = {};\n", which, port * unit_.loops * unit_.extent_bits,
                             unit_.loops * unit_.extent_bits, by_loop(unit_.loops, plan.loops, missing, [&](int l) {
                               const std::string part = fmt::format("{}_request_{}[{}+:{}]", name, which,
                                                                    l * plan.extent_bits, plan.extent_bits);
                               return plan.extent_bits == unit_.extent_bits
                                          ? part
                                          : fmt::format("{{{}'d0, {}}}", unit_.extent_bits - plan.extent_bits, part);
                             }));
    }
    const int stride = kDramAddressBits + 1;
    wires += fmt::format("  logic [{}:0] {}_request_strides;\n", plan.loops * stride - 1, name);
    connections += fmt::format(",\n      .request_strides({}_request_strides)", name);
    const int missing = (unit_.loops - plan.loops) * stride;
    assigns +=
        fmt::format("  assign request_strides[{}+:{}] = {};\n", port * unit_.loops * stride, unit_.loops * stride,
                    missing ? fmt::format("{{{}_request_strides, {}'d0}}", name, missing)
                            : fmt::format("{}_request_strides", name));
    const int64_t data = unit_.dram_bits, own = plan.dram_bits;
    connections += fmt::format(",\n      .dram_data(dram_data[{}+:{}])", port * data, own);
    wires += fmt::format("  logic [{}:0] {}_dram_written;\n", own - 1, name);
    connections += fmt::format(",\n      .dram_written({}_dram_written)", name);
    assigns += fmt::format("  assign dram_written[{}+:{}] = {};\n", port * data, data,
                           own == data ? fmt::format("{}_dram_written", name)
                                       : fmt::format("{{{}'d0, {}_dram_written}}", data - own, name));
  }

  const UnitPlan& unit_;
};

}  // namespace

std::string accelerator_module(const UnitPlan& unit) { return AcceleratorWriter(unit).text(); }

}  // namespace tessera::inline rtl
