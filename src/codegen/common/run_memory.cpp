#include "codegen/common/run_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "program/donation.h"
#include "program/memory_plan.h"

namespace tessera::inline codegen {

namespace {

int64_t align_up(int64_t bytes) { return (bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign; }

}  // namespace

RunMemory plan_run_memory(const Program& program, int64_t scratch_bytes) {
  const auto bytes_of = [&](BufferId id) { return align_up(program.buffers[static_cast<size_t>(id)].bytes); };
  RunMemory memory;
  memory.scratch = align_up(program.arena_bytes);
  memory.arena_bytes = align_up(memory.scratch + scratch_bytes);
  const size_t own_inputs = program.num_own_inputs(), own_outputs = program.num_own_outputs();
  for (size_t i = 0; i < program.checks.size(); ++i) {
    memory.checks.push_back(memory.arena_bytes);
    memory.arena_bytes += bytes_of(program.outputs[own_outputs + program.states.size() + i]);
  }
  const auto aliases = output_aliases(program);
  const std::set<std::pair<int, int>> in_place(aliases.begin(), aliases.end());
  for (size_t i = 0; i < program.states.size(); ++i) {
    const int64_t bytes = bytes_of(program.inputs[own_inputs + i]);
    memory.states.push_back(memory.state_bytes);
    memory.state_bytes += bytes;
    const bool same = in_place.contains({static_cast<int>(own_outputs + i), static_cast<int>(own_inputs + i)});
    memory.next_states.push_back(same ? -1 : memory.arena_bytes);
    if (!same) memory.arena_bytes += bytes;
  }
  memory.arena_bytes = std::max(memory.arena_bytes, kBufferAlign);
  return memory;
}

}  // namespace tessera::inline codegen
