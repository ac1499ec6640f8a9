#include "accel/rtl/unit_plan.h"

#include <algorithm>
#include <bit>

#include "accel/stream.h"

namespace tessera::inline rtl {

namespace {

int bits_for(int64_t most) { return std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(most)))); }

}  // namespace

UnitPlan::UnitPlan(const Accelerator& description) : unit(description), bits(instruction_bits(description)) {
  for (const UnitInstruction& kind : unit.instructions) {
    kernels.push_back(kernel_module(unit, kind));
    timings.push_back(step_timing(unit, kind));
    fields.emplace_back();
    int at = 0;
    for (const EncodedField& field : fields_of(unit, kind)) {
      fields.back()[field.name] = {at, field.bits};
      at += field.bits;
    }
  }
  for (size_t q = 0; q < unit.queues.size(); ++q) queues.push_back(plan_of(static_cast<int>(q)));
  for (const QueuePlan& plan : queues) {
    loops = std::max(loops, plan.loops);
    extent_bits = std::max(extent_bits, plan.extent_bits);
    dram_bits = std::max(dram_bits, plan.dram_bits);
  }
}

int UnitPlan::address_bits(int memory) const {
  const UnitMemory& of = unit.memories[static_cast<size_t>(memory)];
  return bits_for(of.bytes / of.element - 1);
}

int64_t UnitPlan::dram_ports() const {
  return std::max<int64_t>(
      1, std::count_if(queues.begin(), queues.end(), [](const QueuePlan& plan) { return plan.dram_bits > 0; }));
}

QueuePlan UnitPlan::plan_of(int queue) const {
  QueuePlan plan;
  for (size_t k = 0; k < unit.instructions.size(); ++k)
    if (unit.instructions[k].queue == queue) plan.kinds.push_back(static_cast<int>(k));
  for (const int k : plan.kinds) {
    const UnitInstruction& of = kind(k);
    plan.loops = std::max(plan.loops, of.loops);
    plan.extent_bits = std::max(plan.extent_bits, of.extent_bits);
    const StepTiming& timing = timings[static_cast<size_t>(k)];
    int64_t wait = timing.per_step;
    for (const int64_t after : timing.after) wait += after;
    plan.wait_bits = std::max(plan.wait_bits, bits_for(wait));
    std::map<int, size_t> used;  // ports of each memory
    for (size_t p = 0; p < of.operands.size(); ++p) {
      const bool reads = kernels[static_cast<size_t>(k)].reads[p], writes = is_written(of, p);
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
        plan.ports.push_back(
            {.memory = memory, .name = fmt::format("{}{}", unit.memories[static_cast<size_t>(memory)].name, wanted)});
      MemoryPort& port = plan.ports[index];
      port.places = std::max(port.places, operand_bits(of, p) / place_bits(memory));
      port.reads = port.reads || reads;
      port.writes = port.writes || writes;
      plan.port_of[{k, p}] = index;
    }
  }
  return plan;
}

}  // namespace tessera::inline rtl
