#include "schedule/fusion/joined_calls.h"

#include <utility>

#include "program/memory_plan.h"
#include "program/merge_kernels.h"
#include "program/steps.h"

namespace tessera::inline schedule {

BufferUses uses_of_buffers(const Program& program) {
  BufferUses uses;
  uses.writer.assign(program.buffers.size(), SIZE_MAX);
  uses.readers.resize(program.buffers.size());
  uses.plain.assign(program.buffers.size(), true);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const ProgramBuffer& buffer = program.buffers[b];
    uses.plain[b] = uses.plain[b] && buffer.kind == BufferKind::kArena && buffer.alias_of < 0 && buffer.over < 0;
    if (buffer.alias_of >= 0) uses.plain[static_cast<size_t>(root_buffer(program, buffer.alias_of))] = false;
  }
  for_each_step(program.steps, [&](const ProgramStep& step) {
    for_each_step_buffer(step, [&](BufferId id) { uses.plain[static_cast<size_t>(id)] = false; });
  });
  uses.run = run_of_calls(program);
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const KernelCall& call = program.calls[c];
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    const size_t inputs = call.args.size() - static_cast<size_t>(kernel.program.num_outputs);
    for (size_t i = 0; i < call.args.size(); ++i) {
      const auto b = static_cast<size_t>(call.args[i]);
      if (i < inputs) {
        if (uses.readers[b].empty() || uses.readers[b].back() != c) uses.readers[b].push_back(c);
      } else {
        uses.plain[b] = uses.plain[b] && uses.writer[b] == SIZE_MAX;
        uses.writer[b] = c;
      }
    }
  }
  return uses;
}

bool may_join(const Program& program, const BufferUses& uses, size_t a, size_t b) {
  const auto piece_of = [&](size_t call) {
    for (size_t p = 0; p < program.pieces.size(); ++p)
      if (call < program.pieces[p].first_call + program.pieces[p].num_calls) return p;
    return size_t{0};
  };
  return uses.run[a] == uses.run[b] && piece_of(a) == piece_of(b);
}

std::vector<int32_t> remove_joined(Program& program, const std::set<size_t>& gone) {
  remove_calls(program, gone);
  return drop_uncalled_kernels(program);
}

}  // namespace tessera::inline schedule
