// The hardware of a described accelerator in numbers: which queue has which kinds of instructions and ways to memories,
// and how wide things are. What the texts of modules are made of (queue_module.h, accelerator_module.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/description.h"
#include "accel/rtl/kernel_module.h"
#include "accel/rtl/step_timing.h"

namespace tessera::inline rtl {

// Where the bits of a field lie in an instruction.
struct FieldPlace {
  int at = 0, bits = 0;
};

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

struct UnitPlan {
  // UserError TSR-3509 for cycles, TSR-3510 for kernels of which no hardware is made. The unit must outlive it.
  explicit UnitPlan(const Accelerator& description);

  const Accelerator& unit;
  int64_t bits;  // of an instruction
  std::vector<KernelModule> kernels;
  std::vector<StepTiming> timings;
  std::vector<std::map<std::string, FieldPlace>> fields;  // of each kind
  std::vector<QueuePlan> queues;
  int loops = 1, extent_bits = 1;  // the most of any queue
  int64_t dram_bits = 0;

  const UnitInstruction& kind(int number) const { return unit.instructions[static_cast<size_t>(number)]; }
  int address_bits(int memory) const;
  int64_t place_bits(int memory) const { return unit.memories[static_cast<size_t>(memory)].element * 8; }
  int64_t dram_ports() const;  // at least one

 private:
  QueuePlan plan_of(int queue) const;
};

// A vector with an entry for each of a queue's loops, those that a kind does not have in front: loop 0 lowest.
template <typename Entry>
std::string by_loop(int loops, int own, const std::string& missing, Entry entry) {
  std::vector<std::string> entries;
  for (int l = loops; l-- > 0;) entries.push_back(l >= loops - own ? entry(l - (loops - own)) : missing);
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

}  // namespace tessera::inline rtl
