// iota: the position along one dimension, as values.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const Shape shape = require_sizes(ctx, "shape", ctx.attrs.get_sizes("shape").size(), 0, kMaxExtent);
  require_int(ctx, "axis", 0, static_cast<int64_t>(shape.size()) - 1);
  const DType dtype = ctx.attrs.get<DType>("dtype");
  if (!is_arithmetic(dtype)) ctx.fail("TSR-2020", "dtype = " + std::string(dtype_name(dtype)), kArithmeticTypes);
  return {TensorType{dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  body.value = cast(ctx.attrs.get<DType>("dtype"), body.axes[static_cast<size_t>(ctx.attrs.get_int("axis"))].var);
  return body;
}

}  // namespace

const OpDef& iota_op() {
  static const OpDef op{
      .name = "iota",
      .doc = "A tensor whose every element is its own index along `axis`.",
      .min_inputs = 0,
      .max_inputs = 0,
      .attrs = {{"shape", AttrKind::kSizes, true, "the result's extents"},
                {"axis", AttrKind::kInt, true, "the dimension that is counted"},
                {"dtype", AttrKind::kDType, true, "the result's element type"}},
      .infer = infer,
      .body = body,
      .gradient = no_gradient("it has no operands"),
      .example = R"(
graph @main() -> (%y: i32[2,3]) {
  %y = iota {axis = 1, dtype = i32, shape = [2, 3]} : i32[2,3]
}
run -> y = 0 1 2 0 1 2
)",
  };
  return op;
}

}  // namespace tessera::inline ops
