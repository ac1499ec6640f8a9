#include "program/serpentine_order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "program/memory_plan.h"
#include "program/steps.h"

namespace tessera::inline program {
namespace {

// The kernel's outermost loop, when its iterations are independent and how many there are is known; else null.
const StmtNode* independent_iterations(const LoopProgram& kernel) {
  const StmtNode* loop = kernel.body.get();
  const bool suits = loop && loop->kind == StmtKind::kFor && loop->for_kind == ForKind::kParallel &&
                     as_int(loop->begin) && as_int(loop->extent).value_or(0) > 1;
  return suits ? loop : nullptr;
}

// Whether what an iteration of `loop` loads from the parameter depends on which one it is.
bool is_swept(const StmtNode& loop, const BufferPtr& param) {
  bool depends = false;
  walk(loop.stmts[0], nullptr, [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->buffer != param) return;
    for (const Expr& index : e->operands) depends |= uses_var(index, loop.var);
  });
  return depends;
}

LoopProgram backwards(const LoopProgram& kernel) {
  const StmtNode& loop = *kernel.body.get();
  const int64_t last = 2 * *as_int(loop.begin) + *as_int(loop.extent) - 1;
  LoopProgram result = kernel;
  result.name += "_backwards";
  result.body = for_loop(loop.var, loop.begin, loop.extent, loop.for_kind,
                         substitute(loop.stmts[0], {{loop.var.get(), Expr(last) - loop.var}}));
  return result;
}

// In turns forwards and backwards, from one iteration of the loop around the call to the next: iteration i of the
// kernel does what iteration j of its loop does, which is i or its mirror image.
LoopProgram in_turns(const LoopProgram& kernel, const Var& index) {
  const StmtNode& loop = *kernel.body.get();
  const Expr first = loop.begin, last = loop.begin + loop.extent - 1;
  const Var i = make_var(loop.var->name + "_turn");
  const Expr mirrored = i + floormod(index, 2) * (first + last - Expr(2) * i);
  LoopProgram result = kernel;
  result.name += "_in_turns";
  if (std::none_of(result.symbols.begin(), result.symbols.end(), [&](const Var& v) { return v.same_node(index); }))
    result.symbols.push_back(index);
  // The limits say what is true anyway, so that everybody sees it.
  result.body = for_loop(i, loop.begin, loop.extent, loop.for_kind,
                         for_loop(loop.var, min(max(mirrored, first), last), 1, ForKind::kSerial, loop.stmts[0]));
  return result;
}

class Sweeps {
 public:
  Sweeps(Program& program, int64_t least_bytes) : program_(program), least_bytes_(least_bytes) {}

  void run() {
    const size_t num_kernels = program_.kernels.size();
    std::vector<int32_t> turned(num_kernels, -1);
    std::map<std::pair<int32_t, BufferId>, Sweep> sweeps;  // by kernel and weights: the last
    const std::vector<int32_t> runs = run_of_calls(program_);
    for (size_t i = 0; i < program_.calls.size(); ++i) {
      if (i > 0 && runs[i] != runs[i - 1]) sweeps.clear();  // what ran before is another matter each time
      KernelCall& call = program_.calls[i];
      const int32_t kernel = call.kernel;
      const BufferId weights = swept_weights(call);
      if (weights < 0) continue;
      Sweep& sweep = sweeps[{kernel, weights}];
      const bool is_near = sweep.call && bytes_between(*sweep.call, i) <= at(weights).bytes;
      sweep.forwards = !is_near || !sweep.forwards;
      sweep.call = i;
      if (sweep.forwards) continue;
      int32_t& other = turned[static_cast<size_t>(kernel)];
      if (other < 0) {
        other = static_cast<int32_t>(program_.kernels.size());
        Kernel copy = program_.kernels[static_cast<size_t>(kernel)];
        copy.program = backwards(copy.program);
        program_.kernels.push_back(std::move(copy));
      }
      call.kernel = other;
    }
    if (!program_.steps.empty()) in_loops();
  }

 private:
  // A call in a loop sweeps once in each iteration, with the rest of the block in between.
  void in_loops() {
    const Timeline time = timeline_of(program_);
    std::map<std::pair<int32_t, int32_t>, int32_t> turned;  // by kernel and loop
    for (const Moment& moment : time.moments) {
      if (moment.kind != Moment::kCall || moment.loop < 0) continue;
      KernelCall& call = program_.calls[moment.call];
      const BufferId weights = swept_weights(call);
      if (weights < 0 || writes_over(call)) continue;
      const Timeline::Loop& loop = time.loops[static_cast<size_t>(moment.loop)];
      std::set<BufferId> touched;
      bool alone = true;
      for (int32_t m = loop.begin + 1; m < loop.end; ++m) {
        const Moment& other = time.moments[static_cast<size_t>(m)];
        if (other.kind != Moment::kCall || other.call == moment.call) continue;
        const KernelCall& between = program_.calls[other.call];
        touched.insert(between.args.begin(), between.args.end());
        alone &= between.kernel != call.kernel ||
                 std::find(between.args.begin(), between.args.end(), weights) == between.args.end();
      }
      int64_t bytes = 0;
      for (const BufferId id : touched) bytes += at(id).bytes;
      if (!alone || bytes > at(weights).bytes) continue;
      const auto [other, is_new] =
          turned.try_emplace({call.kernel, moment.loop}, static_cast<int32_t>(program_.kernels.size()));
      if (is_new) {
        Kernel copy = program_.kernels[static_cast<size_t>(call.kernel)];
        copy.program = in_turns(copy.program, loop.step->index.var);
        program_.kernels.push_back(std::move(copy));
      }
      call.kernel = other->second;
    }
  }

  // Whether a result is where an operand is: in_place.h reasons about the loops as they stand.
  bool writes_over(const KernelCall& call) const {
    const size_t outputs = static_cast<size_t>(program_.kernels[static_cast<size_t>(call.kernel)].program.num_outputs);
    for (size_t i = call.args.size() - outputs; i < call.args.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (storage_buffer(program_, call.args[i]) == storage_buffer(program_, call.args[j])) return true;
    return false;
  }

  struct Sweep {
    std::optional<size_t> call;
    bool forwards = true;
  };

  const ProgramBuffer& at(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }

  // The largest weights among those that the call's kernel sweeps over; -1 where none are large.
  BufferId swept_weights(const KernelCall& call) const {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(call.kernel)].program;
    const StmtNode* loop = independent_iterations(kernel);
    BufferId largest = -1;
    for (size_t i = 0; loop && i < call.args.size(); ++i) {
      const ProgramBuffer& buffer = at(call.args[i]);
      if (buffer.kind != BufferKind::kWeight || buffer.bytes < least_bytes_) continue;
      if (largest >= 0 && buffer.bytes <= at(largest).bytes) continue;
      if (is_swept(*loop, kernel.params[i])) largest = call.args[i];
    }
    return largest;
  }

  // What the calls between two read and write, at most.
  int64_t bytes_between(size_t first, size_t second) const {
    std::set<BufferId> touched;
    for (size_t i = first + 1; i < second; ++i)
      touched.insert(program_.calls[i].args.begin(), program_.calls[i].args.end());
    int64_t bytes = 0;
    for (const BufferId id : touched) bytes += at(id).bytes;
    return bytes;
  }

  Program& program_;
  const int64_t least_bytes_;
};

}  // namespace

void serpentine_order(Program& program, const Target& target) {
  if (target.num_threads == 1) Sweeps(program, target.l2_bytes / 2).run();
}

}  // namespace tessera::inline program
