// slice: every steps[d]-th element of dimension d, sizes[d] of them, from starts[d] on; steps may be negative.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  const size_t rank = x.shape.size();
  const Shape starts = require_sizes(ctx, "starts", rank, 0, kMaxExtent);
  const Shape sizes = require_sizes(ctx, "sizes", rank, 0, kMaxExtent);
  const auto& steps = require_ints(ctx, "steps", rank, -kMaxExtent, kMaxExtent);
  for (size_t d = 0; d < rank; ++d) {
    if (steps[d] == 0) ctx.fail("TSR-2025", fmt::format("steps = {}", join(steps)), "steps other than 0");
    const auto extent = as_int(x.shape[d]);
    if (is_const_int(sizes[d], 0)) continue;
    const auto start = as_int(starts[d]), size = as_int(sizes[d]);
    bool inside = true;
    if (start && size) {
      // Products of two extents may overflow 64 bits; a double tells whether the last index is anywhere near.
      const double last = static_cast<double>(*start) + static_cast<double>(*size - 1) * static_cast<double>(steps[d]);
      inside = last >= 0 && (!extent || (*start < *extent && last < static_cast<double>(*extent)));
    }
    if (inside && !(start && size && extent)) {
      // Of no elements, neither end counts.
      const Expr last = starts[d] + (sizes[d] - Expr(1)) * Expr(steps[d]);
      inside = steps[d] > 0 ? size_at_most(0, starts[d]) && size_at_most(last, x.shape[d] - Expr(1))
                            : size_at_most(0, last) && size_at_most(starts[d], x.shape[d] - Expr(1));
    }
    if (!inside)
      ctx.fail("TSR-2032",
               fmt::format("dimension {} of {}: {} elements from {} on in steps of {}", d, describe_operand(ctx, 0),
                           to_string(sizes[d]), to_string(starts[d]), steps[d]),
               fmt::format("indices within 0 to {}", to_string(normalize_size(x.shape[d] - Expr(1)))));
  }
  return {TensorType{x.dtype, sizes, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Shape starts = ctx.attrs.get_sizes("starts");
  const auto& steps = ctx.attrs.get_ints("steps");
  std::vector<Expr> index;
  for (size_t d = 0; d < body.axes.size(); ++d) index.push_back(body.axes[d].var * Expr(steps[d]) + starts[d]);
  body.value = load(body.inputs[0], index);
  return body;
}

// Back to where the elements came from, in three steps: those that were read backwards are turned around, zeros come
// between those that lay apart, and around them what was not read.
std::vector<ValueId> gradient(Adjoint& a) {
  const Shape x = a.type(a.in(0)).shape, sizes = a.type(a.out()).shape, starts = a.attrs().get_sizes("starts");
  const std::vector<int64_t> steps = a.attrs().get_ints("steps");
  const size_t rank = x.size();
  ValueId g = a.gradient();
  const ValueId zero = a.scalar(0, g);
  Shape first = starts;  // the lowest index that was read
  Shape turned(rank, Expr(0)), apart, zeros, joined;
  std::vector<int64_t> directions(rank, 1);
  bool turns = false, spreads = false;
  for (size_t d = 0; d < rank; ++d) {
    if (is_const_int(sizes[d], 0)) return {a.filled(0, a.type(g).dtype, x)};
    const int64_t step = std::abs(steps[d]);
    if (steps[d] < 0) {
      first[d] = normalize_size(starts[d] + (sizes[d] - Expr(1)) * Expr(steps[d]));
      if (!is_const_int(sizes[d], 1)) turned[d] = normalize_size(sizes[d] - Expr(1)), directions[d] = -1, turns = true;
    }
    const bool spread = step != 1 && !is_const_int(sizes[d], 1);
    spreads |= spread;
    apart.insert(apart.end(), {sizes[d], Expr(1)});
    zeros.insert(zeros.end(), {Expr(0), Expr(spread ? step - 1 : 0)});
    joined.push_back(normalize_size(sizes[d] * Expr(spread ? step : 1)));
  }
  if (turns) g = a.op("slice", {g}, {{"starts", turned}, {"sizes", sizes}, {"steps", directions}});
  const auto padded = [&](ValueId v, const Shape& low, const Shape& high) {
    return a.op("pad", {v, zero}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  };
  if (spreads) g = a.reshape(padded(a.reshape(g, apart), Shape(2 * rank, Expr(0)), zeros), joined);
  Shape behind;
  bool pads = false;
  for (size_t d = 0; d < rank; ++d) {
    behind.push_back(normalize_size(x[d] - first[d] - joined[d]));
    pads |= !is_const_int(first[d], 0) || !is_const_int(behind[d], 0);
  }
  return {pads ? padded(g, first, behind) : g};
}

}  // namespace

const OpDef& slice_op() {
  static const OpDef op{
      .name = "slice",
      .doc = "A regular part of x: per dimension a start, a number of elements and a step.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"starts", AttrKind::kSizes, true, "index of the first element, per dimension"},
                {"sizes", AttrKind::kSizes, true, "the result's extents"},
                {"steps", AttrKind::kInts, true, "distance between elements, not 0; negative walks backwards"},
                {"in_place", AttrKind::kInt, false, "1: set by the compiler where the result is a view of x"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[2,4]) -> (%y: f32[1,2]) {
  %y = slice(%x) {sizes = [1, 2], starts = [1, 3], steps = [1, -2]} : f32[1,2]
}
run x = 1 2 3 4 5 6 7 8 -> y = 8 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
