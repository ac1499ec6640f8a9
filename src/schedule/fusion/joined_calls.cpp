#include "schedule/fusion/joined_calls.h"

#include <iterator>
#include <utility>

#include "program/memory_plan.h"

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
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const KernelCall& call = program.calls[c];
    for (const CallCondition& condition : call.only_if) uses.plain[static_cast<size_t>(condition.buffer)] = false;
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

size_t piece_of(const Program& program, size_t call) {
  for (size_t p = 0; p < program.pieces.size(); ++p)
    if (call < program.pieces[p].first_call + program.pieces[p].num_calls) return p;
  return 0;
}

std::vector<int32_t> remove_calls(Program& program, const std::set<size_t>& gone) {
  std::vector<KernelCall> calls;
  for (size_t c = 0; c < program.calls.size(); ++c)
    if (!gone.contains(c)) calls.push_back(std::move(program.calls[c]));
  program.calls = std::move(calls);
  for (ProgramPiece& piece : program.pieces) {
    const auto first = gone.lower_bound(piece.first_call);
    const auto end = gone.lower_bound(piece.first_call + piece.num_calls);
    piece.num_calls -= static_cast<size_t>(std::distance(first, end));
    piece.first_call -= static_cast<size_t>(std::distance(gone.begin(), first));
  }

  std::vector<int32_t> renumber(program.kernels.size(), -1);
  for (const KernelCall& call : program.calls) renumber[static_cast<size_t>(call.kernel)] = 0;
  std::vector<Kernel> kernels;
  for (size_t k = 0; k < renumber.size(); ++k) {
    if (renumber[k] < 0) continue;
    renumber[k] = static_cast<int32_t>(kernels.size());
    kernels.push_back(std::move(program.kernels[k]));
  }
  program.kernels = std::move(kernels);
  for (KernelCall& call : program.calls) call.kernel = renumber[static_cast<size_t>(call.kernel)];
  return renumber;
}

}  // namespace tessera::inline schedule
