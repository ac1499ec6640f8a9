#include <algorithm>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kFewSteps = 32;  // of a window that is written out

// "" when lanes along `row` read all operands at once: lane by lane, every second element, or one element for all.
std::string check_lanes(const LinearKernel& kernel, const OutputLoop& row) {
  bool reads_along = false;
  std::string why;
  walk(kernel.reduce_value, [&](const Expr& node) {
    if (node->kind != ExprKind::kLoad) return;
    const auto step = linear_coefficient(node->operands[0], row.var, kernel.bounds);
    if (!step || *step < 0 || *step > 2) why = "an operand's elements lie far apart along the output's innermost axis";
    else reads_along |= *step > 0;
  });
  if (why.empty() && !reads_along) why = "no operand is read along the output's innermost axis";
  return why;
}

// Whether `row` is one place of an axis that a run decides about: what windows leave is done by such places.
bool is_single_place(const TensorProgram& program, const OutputLoop& row) {
  const auto innermost = program.output().out->shape.size() - 1;
  return row.extent == 1 && program.output().layout.row_major() &&
         std::any_of(program.windows.begin(), program.windows.end(),
                     [&](const Window& window) { return window.axis == innermost && window.extent == 1; });
}

}  // namespace

RuleResult window_rows(const TensorProgram& program, const Target& target, Knobs& knobs) {
  std::string why;
  auto made = make_flat_reduction(program, why);
  if (!made) return Declined{why};
  LinearKernel& kernel = *made;
  if (kernel.loops.empty()) return Declined{"the output is one element"};
  const OutputLoop row = kernel.loops.back();
  if (row.stride != 1) return Declined{"the output's innermost axis is not contiguous"};
  if (row.extent < 4 && !is_single_place(program, row))
    return Declined{"the output's innermost axis is shorter than 4"};
  if (row.extent >= 4) why = check_lanes(kernel, row);
  // One place after another would take one element of the reduced axis after another.
  if (const int axis = contiguous_reduced_axis(kernel);
      row.extent < 4 && axis >= 0 && *as_int(kernel.reduce[static_cast<size_t>(axis)].extent) >= target.f32_lanes())
    return Declined{"a vector of the reduced axis lies together"};
  if (!why.empty()) return Declined{why};

  const int64_t width = std::max(target.vector_bits() / dtype_bits(kernel.reduce_dtype), 1);
  const int64_t vectors = knobs.choose("vectors", {1, 2, 4}, 1);
  const int64_t parallel = knobs.choose("parallel", kParallelChoices, 64);
  const int64_t lanes = std::min(row.extent, vectors * width);

  // `lanes` outputs from `begin` on. What stands at their ends, and no condition decides in the middle, is masked.
  const auto part = [&](VarMap at, const Expr& begin) {
    const BufferPtr acc = make_buffer("acc", kernel.reduce_dtype, {lanes}, MemoryScope::kRegister);
    std::vector<Var> window;
    for (const Axis& axis : kernel.reduce) {
      window.push_back(make_var(axis.var->name));
      at[axis.var.get()] = window.back();
    }
    const auto lane_by_lane = [&](const std::function<Stmt(const Var&, const VarMap&)>& body) {
      return vectorized("l", lanes, [&](const Var& l) {
        VarMap map = at;
        map[row.var.get()] = begin + l;
        return body(l, map);
      });
    };
    Stmt sum = lane_by_lane([&](const Var& l, const VarMap& map) {
      return store(acc, {l}, combine(kernel.combiner, load(acc, {l}), substitute(kernel.reduce_value, map)));
    });
    int64_t steps = 1;
    for (size_t i = kernel.reduce.size(); i-- > 0;) {
      steps *= *as_int(kernel.reduce[i].extent);
      sum = for_loop(window[i], 0, kernel.reduce[i].extent, steps <= kFewSteps ? ForKind::kUnrolled : ForKind::kSerial,
                     sum);
    }
    return alloc(acc, seq({lane_by_lane([&](const Var& l, const VarMap&) {
                             return store(acc, {l}, combiner_identity(kernel.combiner, kernel.reduce_dtype));
                           }),
                           sum, lane_by_lane([&](const Var& l, VarMap map) {
                             map[kernel.result_var.get()] = load(acc, {l});
                             return store(kernel.out(), {substitute(kernel.out_index, map)},
                                          substitute(kernel.value, map));
                           })}));
  };
  std::vector<OutputLoop> outer = kernel.loops;
  outer.pop_back();
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.body = outer_nest(outer, parallel, [&](const VarMap& at) {
    const Var step = make_var("v");
    Stmt whole = for_loop(step, 0, row.extent / lanes, ForKind::kSerial, part(at, step * Expr(lanes)));
    // The last outputs again, with those before them that make a vector.
    return row.extent % lanes == 0 ? whole : seq({std::move(whole), part(at, Expr(row.extent - lanes))});
  });
  return result;
}

}  // namespace tessera::inline schedule
