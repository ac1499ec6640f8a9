// scaled_matmul: rows of bytes, whose groups have a scale each, times the rows of a matrix.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, [](DType dtype) { return dtype == DType::kI8; }, "i8");
  for (size_t i = 1; i < 3; ++i) require_dtype(ctx, i, [](DType dtype) { return dtype == DType::kF32; }, "f32");
  for (size_t i = 0; i < 2; ++i) require_rank(ctx, i, 2, std::numeric_limits<int>::max());
  require_rank(ctx, 2, 2, 2);
  const Shape &x = ctx.inputs[0].shape, &scales = ctx.inputs[1].shape, &w = ctx.inputs[2].shape;
  if (!equal_extents(x.back(), w[1]))
    ctx.fail("TSR-2024", fmt::format("{} and {}", describe_operand(ctx, 0), describe_operand(ctx, 2)),
             "rows of one length");
  const auto elements = as_int(x.back()), groups = as_int(scales.back());
  if (!elements || !groups)
    ctx.fail("TSR-2030", describe_operand(ctx, elements ? 1 : 0), "rows whose length is known while compiling");
  bool fits = scales.size() == x.size() && *groups > 0 && *elements % *groups == 0;
  for (size_t d = 0; fits && d + 1 < x.size(); ++d) fits = equal_extents(x[d], scales[d]);
  if (!fits)
    ctx.fail("TSR-2024", describe_operand(ctx, 1), fmt::format("scales of groups of {}", describe_operand(ctx, 0)));
  Shape shape = x;
  shape.back() = w[0];
  return {TensorType{DType::kF32, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Axis k{make_var("k"), ctx.inputs[0].shape.back()};
  const int64_t group = *as_int(ctx.inputs[0].shape.back()) / *as_int(ctx.inputs[1].shape.back());
  std::vector<Expr> index = body.axis_vars();
  const Expr column = index.back();
  index.back() = k.var;
  const Expr x = cast(DType::kF32, load(body.inputs[0], index));
  index.back() = floordiv(k.var, group);
  const Expr scale = load(body.inputs[1], index);
  body.reduce_axes = {k};
  body.combiner = Combiner::kSum;
  body.value = (x * scale) * load(body.inputs[2], {column, k.var});
  return body;
}

}  // namespace

const OpDef& scaled_matmul_op() {
  static const OpDef op{
      .name = "scaled_matmul",
      .doc =
          "Rows of bytes times the rows of a matrix: the sums over k of x[.., k] * scales[.., k / group] * w[column, "
          "k]. "
          "As many neighbours of a row as there are elements for each of its scales are a group.",
      .min_inputs = 3,
      .max_inputs = 3,
      .attrs = {},
      .infer = infer,
      .body = body,
      .gradient = no_gradient("its first operand is bytes"),
      .example = R"(
graph @main(%x: i8[1,4], %s: f32[1,2], %w: f32[2,4]) -> (%y: f32[1,2]) {
  %y = scaled_matmul(%x, %s, %w) : f32[1,2]
}
run x = 1 2 3 -4 ; s = 10 0.5 ; w = 1 1 1 1 0 1 0 2 -> y = 29.5 16
)",
  };
  return op;
}

}  // namespace tessera::inline ops
