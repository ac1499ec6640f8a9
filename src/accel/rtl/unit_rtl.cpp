#include "accel/rtl/unit_rtl.h"

#include <algorithm>

#include <fmt/format.h>

#include "accel/rtl/accelerator_module.h"
#include "accel/rtl/queue_module.h"
#include "accel/rtl/unit_plan.h"
#include "accel/stream.h"
#include "sv_sources.h"

namespace tessera::inline rtl {

namespace {

std::string header(const UnitPlan& plan, const std::string& what) {
  return fmt::format("// Made from the description of {}: {}.\n\n", plan.unit.name, what);
}

std::string kernels(const UnitPlan& plan) {
  std::string text = header(plan, "what each instruction computes in a step");
  for (const KernelModule& kernel : plan.kernels) text += kernel.text + "\n";
  return text;
}

std::string queues(const UnitPlan& plan) {
  std::string text = header(plan, "its queues");
  for (size_t q = 0; q < plan.queues.size(); ++q) text += queue_module(plan, q) + "\n";
  return text;
}

// What the bench has to know.
std::string bench_parameters(const UnitPlan& plan) {
  std::string text = header(plan, "numbers for the bench");
  const auto number = [&](const char* name, int64_t value) {
    text += fmt::format("localparam int {} = {};\n", name, value);
  };
  number("WIDTH", plan.bits);
  number("QUEUES", static_cast<int64_t>(plan.queues.size()));
  number("PORTS", plan.dram_ports());
  number("LOOPS", plan.loops);
  number("EXTENT", plan.extent_bits);
  number("SEGMENT", kDramSegmentBits);
  number("ADDRESS", kDramAddressBits);
  number("DATA", std::max<int64_t>(plan.dram_bits, 8));
  number("BYTES_PER_CYCLE", plan.unit.dram_bytes_per_cycle);
  number("LATENCY", plan.unit.dram_latency);
  number("BURST", plan.unit.dram_burst);
  return text;
}

// Memories begin as simulators begin them, and are written to files at the end.
std::string bench_memories(const UnitPlan& plan) {
  std::string text = header(plan, "contents of memories");
  text += "initial begin\n";
  for (const UnitMemory& memory : plan.unit.memories)
    text += fmt::format("  for (int i = 0; i < {}; i++) dut.memory_{}.places[i] = {{{}{{8'ha5}}}};\n",
                        memory.bytes / memory.element, memory.name, memory.element);
  text += "end\ntask write_memories(input string folder);\n";
  for (const UnitMemory& memory : plan.unit.memories)
    text += fmt::format("  $writememh({{folder, \"/{0}.out\"}}, dut.memory_{0}.places);\n", memory.name);
  return text + "endtask\n";
}

}  // namespace

RtlFiles rtl_files(const Accelerator& unit) {
  const UnitPlan plan(unit);
  RtlFiles files;
  for (const auto& [name, text] : kSvSources) {
    const std::string file(name);
    (file.starts_with("bench") ? files.bench
     : file.ends_with(".svh")  ? files.headers
                               : files.design)
        .emplace_back(file, text);
  }
  files.design.emplace_back("kernels.sv", kernels(plan));
  files.design.emplace_back("queues.sv", queues(plan));
  files.design.emplace_back("accelerator.sv", header(plan, "the whole") + accelerator_module(plan));
  files.headers.emplace_back("bench_parameters.svh", bench_parameters(plan));
  files.headers.emplace_back("bench_memories.svh", bench_memories(plan));
  return files;
}

}  // namespace tessera::inline rtl
