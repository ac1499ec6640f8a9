#include "te/work_formulas.h"

#include <algorithm>
#include <vector>

#include "arith/simplify.h"

namespace tessera::inline tensor_programs {
namespace {

// Adds the terms `place mod stride = 0` of a conjunction that `found` has not yet.
void add_gaps(const Expr& condition, std::vector<Expr>& found) {
  if (condition->kind != ExprKind::kBinary) return;
  if (condition->binary == BinaryOp::kAnd) {
    add_gaps(condition->operands[0], found);
    add_gaps(condition->operands[1], found);
  }
  const Expr& place = condition->operands[0];
  if (condition->binary != BinaryOp::kEq || place->kind != ExprKind::kBinary || place->binary != BinaryOp::kFloorMod ||
      !is_const_int(condition->operands[1], 0) || !as_int(place->operands[1]))
    return;
  const auto is_same = [&](const Expr& other) { return structurally_equal(other, condition); };
  if (std::none_of(found.begin(), found.end(), is_same)) found.push_back(condition);
}

// One of how many iterations of a reduction folds something in: those of a transposed convolution that meet a gap
// between the input's elements multiply by zero, which the operator as a model states it does not do.
int64_t dilution(const Body& body) {
  std::vector<Expr> gaps;
  walk(body.value, [&](const Expr& node) {
    if (node->kind == ExprKind::kSelect && structurally_equal(node->operands[2], const_of(node->dtype, 0)))
      add_gaps(node->operands[0], gaps);
  });
  int64_t total = 1;
  for (const Expr& gap : gaps) total *= std::max<int64_t>(1, *as_int(gap->operands[0]->operands[1]));
  return total;
}

Expr extent_of(const std::vector<Axis>& axes) {
  Expr count = 1;
  for (const Axis& axis : axes) count = count * axis.extent;
  return count;
}

Expr bytes_of(const BufferPtr& buffer, const Layout& layout) {
  Expr bits = dtype_bits(buffer->dtype);
  for (const Expr& dim : physical_shape(buffer->shape, layout)) bits = bits * dim;
  return floordiv(bits + Expr(7), 8);
}

}  // namespace

Expr flops_formula(const TensorProgram& program) {
  Expr total = 0;
  for (const Stage& stage : program.stages) {
    const bool combines = stage.body.is_reduction() && is_float(stage.out->dtype);
    Expr folded = extent_of(stage.body.axes) * extent_of(stage.body.reduce_axes);
    if (combines) folded = floordiv(folded, dilution(stage.body));
    total = total + folded * Expr(count_flops(stage.body.value) + (combines ? 1 : 0));
  }
  return normalize_size(total);
}

Expr bytes_formula(const TensorProgram& program) {
  Expr total = 0;
  for (const Stage& result : program.results()) total = total + bytes_of(result.out, result.layout);
  for (const TensorParam& param : program.params) total = total + bytes_of(param.buffer, param.layout);
  return normalize_size(total);
}

}  // namespace tessera::inline tensor_programs
