// slice: every steps[d]-th element of dimension d, sizes[d] of them, from starts[d] on; steps may be negative.
#include <fmt/format.h>

#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  const size_t rank = x.shape.size();
  const auto& starts = require_ints(ctx, "starts", rank, 0, kMaxExtent);
  const auto& sizes = require_ints(ctx, "sizes", rank, 0, kMaxExtent);
  const auto& steps = require_ints(ctx, "steps", rank, -kMaxExtent, kMaxExtent);
  for (size_t d = 0; d < rank; ++d) {
    if (steps[d] == 0) ctx.fail("TSR-2025", fmt::format("steps = {}", join(steps)), "steps other than 0");
    const auto extent = as_int(x.shape[d]);
    if (sizes[d] == 0) continue;
    // Products of two extents may overflow 64 bits; a double tells whether the last index is anywhere near.
    const double last =
        static_cast<double>(starts[d]) + static_cast<double>(sizes[d] - 1) * static_cast<double>(steps[d]);
    const bool after = extent && (starts[d] >= *extent || last >= static_cast<double>(*extent));
    if (last < 0 || after)
      ctx.fail("TSR-2032",
               fmt::format("dimension {} of {}: {} elements from {} on in steps of {}", d, describe_operand(ctx, 0),
                           sizes[d], starts[d], steps[d]),
               fmt::format("indices within 0 to {}", extent ? std::to_string(*extent - 1) : "the extent"));
  }
  return {TensorType{x.dtype, make_shape(sizes), {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const auto& starts = ctx.attrs.get_ints("starts");
  const auto& steps = ctx.attrs.get_ints("steps");
  std::vector<Expr> index;
  for (size_t d = 0; d < body.axes.size(); ++d) index.push_back(body.axes[d].var * Expr(steps[d]) + Expr(starts[d]));
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
      .attrs = {{"starts", AttrKind::kInts, true, "index of the first element, per dimension"},
                {"sizes", AttrKind::kInts, true, "the result's extents"},
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
