#include "schedule/fusion/call_flow.h"

#include <algorithm>

#include "program/memory_plan.h"
#include "program/steps.h"

namespace tessera::inline schedule {

CallFlow::CallFlow(const Program& program)
    : writer_(program.buffers.size(), SIZE_MAX),
      readers_(program.buffers.size()),
      run_(run_of_calls(program)),
      piece_(program.calls.size(), 0) {
  for (const ProgramBuffer& buffer : program.buffers)
    plain_.push_back(buffer.kind == BufferKind::kArena && buffer.alias_of < 0 && buffer.over < 0);
  for (const ProgramBuffer& buffer : program.buffers)
    if (buffer.alias_of >= 0) plain_[static_cast<size_t>(root_buffer(program, buffer.alias_of))] = false;
  for_each_step(program.steps, [&](const ProgramStep& step) {
    for_each_step_buffer(step, [&](BufferId id) { plain_[static_cast<size_t>(id)] = false; });
  });
  for (size_t p = 0; p < program.pieces.size(); ++p)
    std::fill_n(piece_.begin() + static_cast<std::ptrdiff_t>(program.pieces[p].first_call), program.pieces[p].num_calls,
                p);
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const KernelCall& call = program.calls[c];
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    const bool is_single = kernel.definition && kernel.definition->is_single();
    definitions_.push_back(is_single ? kernel.definition.get() : nullptr);
    free_.push_back(is_single);
    const size_t inputs = call.args.size() - static_cast<size_t>(kernel.program.num_outputs);
    for (size_t i = 0; i < call.args.size(); ++i) {
      const auto b = static_cast<size_t>(call.args[i]);
      if (i < inputs) {
        if (readers_[b].empty() || readers_[b].back() != c) readers_[b].push_back(c);
      } else {
        plain_[b] = plain_[b] && writer_[b] == SIZE_MAX;
        writer_[b] = c;
      }
    }
  }
}

std::string_view CallFlow::why_not_inside(const CallLink& link, const std::vector<size_t>& calls) const {
  const auto value = static_cast<size_t>(link.value);
  if (!free_[link.writer]) return "another kernel does its work, or it has none that can be joined";
  if (!plain_[value]) return "what lies between them is an output, a state, or has a place in another value";
  const size_t last = calls.back();
  if (link.writer >= last || run_[link.writer] != run_[last] || piece_[link.writer] != piece_[last])
    return "a branch, a loop or a step of a flow lies between them";
  for (const size_t reader : readers_[value])
    if (std::find(calls.begin(), calls.end(), reader) == calls.end()) return "others read what lies between them";
  return "";
}

}  // namespace tessera::inline schedule
