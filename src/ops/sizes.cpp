// sizes: sizes of tensors as values, where symbols make them up: what a mean divides by, the result of ONNX's Shape.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const Shape sizes = require_sizes(ctx, "sizes", ctx.attrs.get_sizes("sizes").size(), -kMaxExtent, kMaxExtent);
  const DType dtype = ctx.attrs.get<DType>("dtype");
  if (!is_arithmetic(dtype)) ctx.fail("TSR-2020", "dtype = " + std::string(dtype_name(dtype)), kArithmeticTypes);
  return {TensorType{dtype, {static_cast<int64_t>(sizes.size())}, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Shape sizes = ctx.attrs.get_sizes("sizes");
  const DType dtype = ctx.attrs.get<DType>("dtype");
  body.value = const_of(dtype, 0);
  for (size_t i = sizes.size(); i-- > 0;) {
    const Expr element = cast(dtype, sizes[i]);
    const bool last = i + 1 == sizes.size();
    body.value = last ? element : select(equal(body.axes[0].var, static_cast<int64_t>(i)), element, body.value);
  }
  return body;
}

}  // namespace

const OpDef& sizes_op() {
  static const OpDef op{
      .name = "sizes",
      .doc = "A list of sizes as values.",
      .min_inputs = 0,
      .max_inputs = 0,
      .attrs = {{"sizes", AttrKind::kSizes, true, "the elements"},
                {"dtype", AttrKind::kDType, true, "the result's element type"}},
      .infer = infer,
      .body = body,
      .gradient = no_gradient("it has no operands"),
      .example = R"(
graph @main() -> (%y: i64[3]) {
  %y = sizes {dtype = i64, sizes = [2, 3, -1]} : i64[3]
}
run -> y = 2 3 -1
)",
  };
  return op;
}

}  // namespace tessera::inline ops
