// slice: every steps[d]-th element of dimension d, sizes[d] of them, from starts[d] on; steps may be negative.
#include <fmt/format.h>

#include "arith/simplify.h"
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
