#include "program/donation.h"

#include <algorithm>
#include <limits>

#include "arith/simplify.h"
#include "program/in_place.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "program/symbolic_sizes.h"

namespace tessera::inline program {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();

// Moments.
struct Access {
  size_t first_write = kNever;
  size_t last_read = 0;
  bool is_read = false;
  bool whole = true;  // every use names all of the buffer
};

size_t num_inputs(const Program& program, const KernelCall& call) {
  return call.args.size() - static_cast<size_t>(program.kernels[static_cast<size_t>(call.kernel)].program.num_outputs);
}

// Whether the call, which reads `input` and writes `output` (roots), may have both in one place.
bool in_place(const Program& program, const KernelCall& call, BufferId input, BufferId output) {
  const LoopProgram& kernel = program.kernels[static_cast<size_t>(call.kernel)].program;
  const size_t inputs = num_inputs(program, call);
  if (!program.buffers[static_cast<size_t>(output)].type.is_static()) return false;
  int64_t elements = 1;
  for (const int64_t dim : program.buffers[static_cast<size_t>(output)].type.dims()) elements *= dim;
  for (size_t i = 0; i < inputs; ++i) {
    if (root_buffer(program, call.args[i]) != input) continue;
    for (size_t o = inputs; o < call.args.size(); ++o)
      if (root_buffer(program, call.args[o]) == output && !why_not_in_place(kernel, i, o, elements).empty())
        return false;
  }
  return true;
}

// Whether all that happens to `input` is that one call copies it to the begin of `output`, behind which everything else
// is written.
bool is_begin_of(const Program& program, BufferId input, BufferId output) {
  if (!program.steps.empty()) return false;
  const auto buffer = [&](BufferId id) -> const ProgramBuffer& { return program.buffers[static_cast<size_t>(id)]; };
  const Expr bytes = bytes_formula(buffer(input).type);
  const auto offset_of = [&](BufferId id) {
    return buffer(id).view_offset_formula ? buffer(id).view_offset_formula : Expr(buffer(id).view_offset);
  };
  bool is_copied = false;
  for (const KernelCall& call : program.calls) {
    const size_t inputs = num_inputs(program, call);
    bool copies = false;
    for (size_t i = 0; i < call.args.size(); ++i) {
      if (root_buffer(program, call.args[i]) == input) {
        const LoopProgram& kernel = program.kernels[static_cast<size_t>(call.kernel)].program;
        copies = call.args.size() == 2 && i == 0 && !is_copied && call.args[0] == input && is_copy(kernel);
        if (!copies) return false;
      }
      if (i < inputs || root_buffer(program, call.args[i]) != output) continue;
      if (call.args[i] == output) return false;
      if (copies ? !is_const_int(offset_of(call.args[i]), 0) : !size_at_most(bytes, offset_of(call.args[i])))
        return false;
    }
    is_copied |= copies;
  }
  return is_copied;
}

}  // namespace

bool is_copy(const LoopProgram& kernel) {
  if (kernel.params.size() != 2) return false;
  bool stores = false, only = true;
  walk(
      kernel.body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kAlloc || s->kind == StmtKind::kTensorized) only = false;
        if (s->kind != StmtKind::kStore) return;
        stores = true;
        only &= s->buffer == kernel.params[1] && s->value->kind == ExprKind::kLoad &&
                s->value->buffer == kernel.params[0] && s->indices.size() == s->value->operands.size() &&
                std::equal(s->indices.begin(), s->indices.end(), s->value->operands.begin(), structurally_equal);
      },
      nullptr);
  return stores && only;
}

std::vector<std::pair<int, int>> output_aliases(const Program& program) {
  // What happens inside a loop happens from its begin to its end: inputs and outputs are there before and after it.
  std::vector<Access> accesses(program.buffers.size());
  const Timeline time = timeline_of(program);
  for_each_access(program, time, [&](BufferId id, int32_t at, int32_t loop, AccessKind kind) {
    size_t first = static_cast<size_t>(at), last = first;
    for (; loop >= 0; loop = time.loops[static_cast<size_t>(loop)].parent) {
      first = static_cast<size_t>(time.loops[static_cast<size_t>(loop)].begin);
      last = static_cast<size_t>(time.loops[static_cast<size_t>(loop)].end);
    }
    const BufferId root = root_buffer(program, id);
    Access& access = accesses[static_cast<size_t>(root)];
    if (kind == AccessKind::kWrite) {
      access.first_write = std::min(access.first_write, first);
    } else {
      access.is_read = true;
      access.last_read = std::max(access.last_read, last);
    }
    access.whole &= program.buffers[static_cast<size_t>(id)].bytes == program.buffers[static_cast<size_t>(root)].bytes;
  });
  std::vector<std::pair<int, int>> result;
  const size_t own_outputs = program.num_own_outputs(), own_inputs = program.num_own_inputs();
  const size_t states = program.checks.empty() ? program.states.size() : 0;
  for (size_t o = 0; o < own_outputs + states; ++o) {
    const BufferId output = program.outputs[o];
    const ProgramBuffer& written = program.buffers[static_cast<size_t>(output)];
    const Access& writes = accesses[static_cast<size_t>(output)];
    if (written.bytes == 0 || writes.first_write == kNever || root_buffer(program, output) != output) continue;
    const bool is_state = o >= own_outputs;
    const size_t first = is_state ? own_inputs + o - own_outputs : 0, end = is_state ? first + 1 : own_inputs;
    for (size_t i = first; i < end; ++i) {
      const BufferId input = program.inputs[i];
      const ProgramBuffer& read = program.buffers[static_cast<size_t>(input)];
      if (read.type.dtype != written.type.dtype) continue;
      if (read.bytes != written.bytes || !same_shape(read.type.shape, written.type.shape)) {
        if (!is_state && is_begin_of(program, input, output))
          result.emplace_back(static_cast<int>(o), static_cast<int>(i));
        continue;
      }
      const Access& reads = accesses[static_cast<size_t>(input)];
      bool safe = !reads.is_read || reads.last_read < writes.first_write;
      const Moment& moment = time.moments[writes.first_write];
      if (!safe && reads.last_read == writes.first_write && reads.whole && writes.whole && moment.kind == Moment::kCall)
        safe = in_place(program, program.calls[moment.call], input, output);
      if (safe) result.emplace_back(static_cast<int>(o), static_cast<int>(i));
    }
  }
  return result;
}

}  // namespace tessera::inline program
