// The operators of two operands that work element by element, with numpy's broadcasting; both operands and the result
// have one element type.
#include <fmt/format.h>

#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

struct Row {
  const char* name;
  BinaryOp op;
  bool (*accepts)(DType);
  const char* legal;
  const char* doc;
  const char* type;  // the example's element type; its operands are [3] and [1]
  const char* a;
  const char* b;
  const char* y;
};

bool is_bool(DType dtype) { return dtype == DType::kBool; }

constexpr Row kRows[] = {
    {"add", BinaryOp::kAdd, is_arithmetic, kArithmeticTypes, "a + b; integers wrap.", "f32", "1 2 3", "0.5",
     "1.5 2.5 3.5"},
    {"sub", BinaryOp::kSub, is_arithmetic, kArithmeticTypes, "a - b; integers wrap.", "u8", "1 2 3", "2", "255 0 1"},
    {"mul", BinaryOp::kMul, is_arithmetic, kArithmeticTypes, "a * b; integers wrap.", "i8", "1 -2 100", "3", "3 -6 44"},
    {"div", BinaryOp::kDiv, is_arithmetic, kArithmeticTypes,
     "a / b; integers truncate towards zero, and division by zero gives 0.", "i32", "7 -7 1", "2", "3 -3 0"},
    {"rem", BinaryOp::kRem, is_arithmetic, kArithmeticTypes,
     "What truncating division leaves, with the sign of a; a itself for an integer b of 0.", "i32", "7 -7 4", "3",
     "1 -1 1"},
    {"pow", BinaryOp::kPow, is_arithmetic, kArithmeticTypes,
     "a to the power b; integers wrap, and a negative power of an integer is its truncated reciprocal.", "f32", "1 2 3",
     "2", "1 4 9"},
    {"min", BinaryOp::kMin, is_arithmetic, kArithmeticTypes, "The smaller; NaN when either is NaN.", "f32", "1 2 nan",
     "1.5", "1 1.5 nan"},
    {"max", BinaryOp::kMax, is_arithmetic, kArithmeticTypes, "The larger; NaN when either is NaN.", "f32", "1 2 nan",
     "1.5", "1.5 2 nan"},
    {"bitwise_and", BinaryOp::kAnd, is_integral, kIntegralTypes, "The bits set in both.", "i32", "1 6 -1", "3",
     "1 2 3"},
    {"bitwise_or", BinaryOp::kOr, is_integral, kIntegralTypes, "The bits set in either.", "i32", "1 6 -1", "3",
     "3 7 -1"},
    {"bitwise_xor", BinaryOp::kXor, is_integral, kIntegralTypes, "The bits set in one of the two.", "i32", "1 6 -1",
     "3", "2 5 -4"},
    {"shift_left", BinaryOp::kShl, is_integral, kIntegralTypes,
     "a shifted left by b bits; 0 when b is not in 0 .. bits - 1.", "u8", "1 3 255", "1", "2 6 254"},
    {"shift_right", BinaryOp::kShr, is_integral, kIntegralTypes,
     "a shifted right by b bits, keeping the sign; all sign bits when b is not in 0 .. bits - 1.", "i8", "4 7 -8", "1",
     "2 3 -4"},
    {"logical_and", BinaryOp::kAnd, is_bool, "bool", "a and b.", "bool", "1 0 1", "1", "1 0 1"},
    {"logical_or", BinaryOp::kOr, is_bool, "bool", "a or b.", "bool", "1 0 1", "0", "1 0 1"},
    {"logical_xor", BinaryOp::kXor, is_bool, "bool", "a or b but not both.", "bool", "1 0 1", "1", "0 1 0"},
};

OpDef make_op(const Row& row) {
  return OpDef{
      .name = row.name,
      .doc = row.doc,
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = {},
      .infer = [&row](const OpContext& ctx) -> std::vector<TensorType> {
        require_dtype(ctx, 0, row.accepts, row.legal);
        require_same_dtype(ctx);
        return {TensorType{ctx.inputs[0].dtype, broadcast_shapes(ctx, ctx.inputs[0].shape, ctx.inputs[1].shape), {}}};
      },
      .body =
          [&row](const OpContext& ctx) {
            return elementwise_body(ctx, [&](const std::vector<Expr>& x) { return binary(row.op, x[0], x[1]); });
          },
      .example =
          fmt::format("\ngraph @main(%a: {0}[3], %b: {0}[1]) -> (%y: {0}[3]) {{\n  %y = {1}(%a, %b) : {0}[3]\n}}\n"
                      "run a = {2} ; b = {3} -> y = {4}\n",
                      row.type, row.name, row.a, row.b, row.y),
  };
}

}  // namespace

const std::vector<OpDef>& binary_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> result;
    for (const Row& row : kRows) result.push_back(make_op(row));
    return result;
  }();
  return ops;
}

}  // namespace tessera::inline ops
