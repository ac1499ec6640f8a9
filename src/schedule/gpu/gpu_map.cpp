#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kVectorBytes = 16;

// Neighbours in the output that a thread computes, when what it reads and stores are vectors.
int64_t lanes_for(const LinearKernel& kernel, int64_t elements, const GpuLimits& limits) {
  if (!all_reductions(kernel).empty() || kernel.num_results() > 1 || kernel.padded) return 1;
  const OutputLoop& last = kernel.loops.back();
  const int64_t bytes = dtype_bytes(kernel.out()->dtype, 1);
  if (last.extent == 0) return 1;
  if (last.stride != 1 || bytes == 0 || bytes > kVectorBytes / 2) return 1;
  const int64_t lanes = std::min<int64_t>(kVectorBytes / bytes, 8);
  return last.extent % lanes == 0 && elements >= lanes * limits.wanted_threads ? lanes : 1;
}

// A thread's elements: vectors to registers, the value lane by lane, a vector from registers.
Stmt elements_of_vector(const LinearKernel& kernel, const VarMap& first, int64_t lanes, Bounds& bounds) {
  const Var last = kernel.loops.back().var;
  const auto at_lane = [&](const Expr& lane) {
    VarMap at = first;
    at[last.get()] = first.at(last.get()) + lane;
    return at;
  };
  const auto each_lane = [&](const std::string& name, ForKind kind, const std::function<Stmt(const Var&)>& body) {
    return loop_over(name, lanes, kind, body, bounds);
  };
  std::vector<Stmt> parts;
  std::vector<BufferPtr> registers;
  std::unordered_map<const ExprNode*, BufferPtr> of_load;
  for (const Expr& wanted : certain_loads(kernel.value)) {
    if (wanted->operands.size() != 1) continue;
    const Var probe = make_var("lane");
    bounds.set(probe, 0, lanes - 1);
    const Expr index = substitute(wanted->operands[0], at_lane(probe));
    VarMap next;
    next[probe.get()] = probe + Expr(1);
    if (as_int(simplify(substitute(index, next) - index, bounds)) != 1) continue;
    const BufferPtr held = make_buffer(wanted->buffer->name + "_lanes", wanted->dtype, {lanes}, MemoryScope::kRegister);
    parts.push_back(each_lane("lane", ForKind::kVectorized, [&](const Var& lane) {
      return store(held, {lane},
                   load(wanted->buffer, {simplify(substitute(wanted->operands[0], at_lane(lane)), bounds)}));
    }));
    registers.push_back(held);
    of_load[wanted.get()] = held;
  }
  const BufferPtr& out = kernel.out();
  const BufferPtr results = make_buffer("result_lanes", out->dtype, {lanes}, MemoryScope::kRegister);
  parts.push_back(each_lane("each", ForKind::kUnrolled, [&](const Var& lane) {
    const Expr value = transform(kernel.value, [&](const Expr& e) -> Expr {
      const auto it = of_load.find(e.get());
      return it == of_load.end() ? Expr() : load(it->second, {lane});
    });
    return store(results, {lane}, substitute(value, at_lane(lane)));
  }));
  parts.push_back(each_lane("lane", ForKind::kVectorized, [&](const Var& lane) {
    return store(out, {simplify(substitute(kernel.out_index, at_lane(lane)), bounds)}, load(results, {lane}));
  }));
  Stmt body = alloc(results, seq(std::move(parts)));
  for (size_t i = registers.size(); i-- > 0;) body = alloc(registers[i], std::move(body));
  return body;
}

}  // namespace

GpuRuleResult gpu_map(const TensorProgram& program, const GpuLimits& limits) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why, Results::kPairs, Sizes::kOpen);
  if (!kernel) return Declined{why};
  Bounds bounds = kernel->bounds;
  int64_t elements = 1;
  for (const OutputLoop& loop : kernel->loops) elements *= typical_size(loop.size);
  const int64_t lanes = kernel->loops.empty() ? 1 : lanes_for(*kernel, elements, limits);
  FlatAxes outputs;
  for (const OutputLoop& loop : kernel->loops)
    outputs.add(loop.var, &loop == &kernel->loops.back() && lanes > 1 ? Expr(loop.extent / lanes) : loop.size);
  const int64_t wanted = as_int(outputs.size) ? (outputs.extent + 31) / 32 * 32 : limits.threads;
  const int64_t threads = std::min(limits.threads, wanted);
  if (!outputs.is_at_most(INT32_MAX, threads)) return Declined{"too many elements for a grid of blocks"};
  const Expr blocks = outputs.tiles(threads);
  const Var block = var_below("block", blocks, bounds);
  const Stmt body = thread_nest(
      "thread", 1, threads,
      [&](const Expr&, const Expr& thread) {
        const Expr number = block * Expr(threads) + thread;
        VarMap at;
        outputs.values_at(number, bounds, at);
        Stmt element;
        if (lanes > 1) {
          Expr& last = at[kernel->loops.back().var.get()];
          last = last * Expr(lanes);
          element = elements_of_vector(*kernel, at, lanes, bounds);
        } else {
          element = one_element(*kernel, at);
        }
        if (const Expr inside = kernel->padded ? kernel->inside() : Expr(); inside)
          element = if_then(substitute(inside, at), element);
        return outputs.has_whole(threads) ? element : if_then(number < outputs.size, element);
      },
      bounds);
  return gpu_program(program.name, *kernel, for_loop(block, 0, blocks, ForKind::kBlockX, body));
}

}  // namespace tessera::inline schedule
