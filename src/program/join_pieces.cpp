#include "program/join_pieces.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/flow.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline program {

Program join_pieces(std::shared_ptr<const Flow> flow, std::vector<Program> pieces) {
  check(flow->pieces.size() == pieces.size(), "a program for each piece");
  Program result;
  result.name = flow->name;
  std::vector<BufferId> checks;  // the outputs behind all others
  const bool has_steps =
      std::any_of(pieces.begin(), pieces.end(), [](const Program& piece) { return !piece.steps.empty(); });
  for (size_t p = 0; p < pieces.size(); ++p) {
    Program& piece = pieces[p];
    const auto first_buffer = static_cast<BufferId>(result.buffers.size());
    const auto first_kernel = static_cast<int32_t>(result.kernels.size());
    const size_t own = piece.outputs.size() - piece.checks.size();
    result.pieces.push_back(
        {result.calls.size(), piece.calls.size(), piece.inputs.size(), own, piece.checks.size(), piece.symbols.size()});
    if (has_steps) {
      StepBlock steps = steps_of(piece);
      for_each_step(steps, [&](ProgramStep& step) {
        step.first_call += result.calls.size();
        for_each_step_buffer(step, [&](BufferId& id) { id += first_buffer; });
      });
      result.pieces.back().first_step = result.steps.size();
      result.pieces.back().num_steps = steps.size();
      result.steps.insert(result.steps.end(), steps.begin(), steps.end());
    }
    for (SymbolRange& symbol : piece.symbols) result.symbols.push_back(std::move(symbol));
    const int64_t first_weight = result.weight_bytes;
    for (ProgramBuffer& buffer : piece.buffers) {
      buffer.name = fmt::format("p{}.{}", p, buffer.name);
      if (buffer.alias_of >= 0) buffer.alias_of += first_buffer;
      if (buffer.over >= 0) buffer.over += first_buffer;
      if (buffer.kind == BufferKind::kWeight && buffer.offset >= 0) buffer.offset += first_weight;
      result.buffers.push_back(std::move(buffer));
    }
    for (Kernel& kernel : piece.kernels) result.kernels.push_back(std::move(kernel));
    for (KernelCall& call : piece.calls) {
      call.kernel += first_kernel;
      for (BufferId& arg : call.args) arg += first_buffer;
      result.calls.push_back(std::move(call));
    }
    for (const BufferId id : piece.inputs) result.inputs.push_back(id + first_buffer);
    for (size_t i = 0; i < piece.outputs.size(); ++i)
      (i < own ? result.outputs : checks).push_back(piece.outputs[i] + first_buffer);
    for (RuntimeCheck& check : piece.checks) result.checks.push_back(std::move(check));
    if (result.pieces.back().num_symbols == 0) result.arena_bytes = std::max(result.arena_bytes, piece.arena_bytes);
    result.weight_bytes += (piece.weight_bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign;
  }
  result.outputs.insert(result.outputs.end(), checks.begin(), checks.end());
  // Numbers in the whole signature.
  for (size_t i = 0; i < result.inputs.size(); ++i)
    result.buffers[static_cast<size_t>(result.inputs[i])].index = static_cast<int32_t>(i);
  for (size_t i = 0; i < result.outputs.size(); ++i)
    result.buffers[static_cast<size_t>(result.outputs[i])].index = static_cast<int32_t>(i);
  result.flow = std::move(flow);
  return result;
}

}  // namespace tessera::inline program
