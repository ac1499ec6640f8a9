#include "schedule/remove_calls.h"

#include <iterator>
#include <utility>

namespace tessera {

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

}  // namespace tessera
