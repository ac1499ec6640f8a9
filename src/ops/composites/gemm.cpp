// gemm: a matrix product with a scaled addend.
#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

std::vector<ValueId> gemm(CompositeBody& b) {
  require_dtype(b.context(), 0, is_arithmetic, kArithmeticTypes);
  require_same_dtype(b.context());
  for (size_t i = 0; i < 2; ++i) require_rank(b.context(), i, 2, 2);
  const Attrs& attrs = b.attrs();
  ValueId y = b.add(
      "matmul", {b.operand(0), b.operand(1)},
      {{"transpose_a", attrs.get_or<bool>("trans_a", false)}, {"transpose_b", attrs.get_or<bool>("trans_b", false)}});
  const double alpha = attrs.get_or<double>("alpha", 1);
  if (alpha != 1) y = b.add_scalar("mul", y, alpha);
  if (b.num_operands() == 3) {
    const Shape shape = b.type(y).shape;
    if (!same_shape(broadcast_shapes(b.context(), shape, b.type(b.operand(2)).shape), shape))
      b.context().fail("TSR-2023", describe_operand(b.context(), 2),
                       "a shape that broadcasts to the product's, " + to_string(shape));
    ValueId c = b.operand(2);
    const double beta = attrs.get_or<double>("beta", 1);
    if (beta != 1) c = b.add_scalar("mul", c, beta);
    y = b.add("add", {y, c});
  }
  return {y};
}

}  // namespace

const std::vector<CompositeDef>& gemm_composites() {
  static const std::vector<CompositeDef> list = {
      {"gemm",
       "alpha * a * b + beta * c, where c is optional and broadcasts.",
       2,
       3,
       {{"alpha", AttrKind::kFloat, false, "factor of the product; default 1"},
        {"beta", AttrKind::kFloat, false, "factor of c; default 1"},
        {"trans_a", AttrKind::kBool, false, "a is given transposed; default false"},
        {"trans_b", AttrKind::kBool, false, "b is given transposed; default false"}},
       gemm,
       "gemm(a: f32[1,2], b: f32[2,2], c: f32[2]) {alpha = 2.0, beta = 10.0, trans_b = true}\n"
       "run a = 1 2 ; b = 1 2 3 4 ; c = 1 2 -> y = 20 42"},
  };
  return list;
}

}  // namespace tessera::inline ops
