// The operators of two operands that work element by element, with numpy's broadcasting; both operands and the result
// have one element type.
#include <fmt/format.h>

#include <array>

#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

// Of both operands in the shape of the result; what is not wanted may be left out.
using Rule = std::array<ValueId, 2> (*)(Adjoint& a, ValueId g, ValueId x, ValueId y, ValueId result);

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
  Rule gradient = nullptr;
};

bool is_bool(DType dtype) { return dtype == DType::kBool; }

std::array<ValueId, 2> add_gradient(Adjoint&, ValueId g, ValueId, ValueId, ValueId) { return {g, g}; }

std::array<ValueId, 2> sub_gradient(Adjoint& a, ValueId g, ValueId, ValueId, ValueId) {
  return {g, a.wants(1) ? a.neg(g) : Adjoint::kNone};
}

std::array<ValueId, 2> mul_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y, ValueId) {
  return {a.wants(0) ? a.mul(g, y) : Adjoint::kNone, a.wants(1) ? a.mul(g, x) : Adjoint::kNone};
}

std::array<ValueId, 2> div_gradient(Adjoint& a, ValueId g, ValueId, ValueId y, ValueId result) {
  const ValueId of_x = a.div(g, y);
  return {of_x, a.wants(1) ? a.neg(a.mul(of_x, result)) : Adjoint::kNone};
}

// x = trunc(x / y) * y + result, and the quotient does not change between jumps.
std::array<ValueId, 2> rem_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y, ValueId result) {
  return {g, a.wants(1) ? a.mul(g, a.div(a.sub(result, x), y)) : Adjoint::kNone};
}

// Whether `v` is a constant of one element that is not 0.
bool is_constant_but_zero(Adjoint& a, ValueId v) {
  const Node* producer = a.builder().graph().producer(v);
  if (!producer || producer->op->kind != OpKind::kConstant) return false;
  const TensorPtr& value = producer->attrs.get<TensorPtr>("value");
  return value->num_elements() == 1 && value->get_double(0) != 0;
}

// With an exponent of 0 it is 1 for every x, 0 among them. A power of 0 does not depend on its exponent, unless that is
// negative. Of what is less than 0 it is defined for whole exponents alone, and there is no derivative: NaN, as
// PyTorch has it.
std::array<ValueId, 2> pow_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y, ValueId result) {
  std::array<ValueId, 2> gradients = {Adjoint::kNone, Adjoint::kNone};
  if (a.wants(0)) {
    const ValueId slope = a.mul(y, a.op("pow", {x, a.sub(y, a.scalar(1, y))}));
    gradients[0] =
        a.mul(g, is_constant_but_zero(a, y) ? slope : a.select(a.op("eq", {y, a.scalar(0, y)}), a.scalar(0, y), slope));
  }
  if (a.wants(1)) {
    const ValueId zero = a.scalar(0, x);
    const ValueId is_flat = a.op("logical_and", {a.op("eq", {x, zero}), a.op("ge", {y, zero})});
    gradients[1] = a.mul(g, a.op("select", {is_flat, zero, a.mul(result, a.op("log", {x}))}));
  }
  return gradients;
}

// Where both are equal each has half of the gradient.
std::array<ValueId, 2> extremum_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y, const char* first_is_taken) {
  const ValueId zero = a.scalar(0, g), half = a.mul(g, a.scalar(0.5, g)), equal = a.op("eq", {x, y});
  const auto share = [&](ValueId own, ValueId other) {
    const ValueId rest = a.op("select", {equal, half, zero});
    return a.op("select", {a.op(first_is_taken, {own, other}), g, rest});
  };
  return {a.wants(0) ? share(x, y) : Adjoint::kNone, a.wants(1) ? share(y, x) : Adjoint::kNone};
}
std::array<ValueId, 2> min_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y, ValueId) {
  return extremum_gradient(a, g, x, y, "lt");
}
std::array<ValueId, 2> max_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y, ValueId) {
  return extremum_gradient(a, g, x, y, "gt");
}

constexpr Row kRows[] = {
    {"add", BinaryOp::kAdd, is_arithmetic, kArithmeticTypes, "a + b; integers wrap.", "f32", "1 2 3", "0.5",
     "1.5 2.5 3.5", add_gradient},
    {"sub", BinaryOp::kSub, is_arithmetic, kArithmeticTypes, "a - b; integers wrap.", "u8", "1 2 3", "2", "255 0 1",
     sub_gradient},
    {"mul", BinaryOp::kMul, is_arithmetic, kArithmeticTypes, "a * b; integers wrap.", "i8", "1 -2 100", "3", "3 -6 44",
     mul_gradient},
    {"div", BinaryOp::kDiv, is_arithmetic, kArithmeticTypes,
     "a / b; integers truncate towards zero, and division by zero gives 0.", "i32", "7 -7 1", "2", "3 -3 0",
     div_gradient},
    {"rem", BinaryOp::kRem, is_arithmetic, kArithmeticTypes,
     "What truncating division leaves, with the sign of a; a itself for an integer b of 0.", "i32", "7 -7 4", "3",
     "1 -1 1", rem_gradient},
    {"pow", BinaryOp::kPow, is_arithmetic, kArithmeticTypes,
     "a to the power b; integers wrap, and a negative power of an integer is its truncated reciprocal.", "f32", "1 2 3",
     "2", "1 4 9", pow_gradient},
    {"min", BinaryOp::kMin, is_arithmetic, kArithmeticTypes, "The smaller; NaN when either is NaN.", "f32", "1 2 nan",
     "1.5", "1 1.5 nan", min_gradient},
    {"max", BinaryOp::kMax, is_arithmetic, kArithmeticTypes, "The larger; NaN when either is NaN.", "f32", "1 2 nan",
     "1.5", "1.5 2 nan", max_gradient},
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
  auto gradient = no_gradient("its operands are no real numbers");
  if (row.gradient)
    gradient = [&row](Adjoint& a) {
      const auto whole = row.gradient(a, a.gradient(), a.in(0), a.in(1), a.out());
      std::vector<ValueId> gradients(2, Adjoint::kNone);
      for (size_t i = 0; i < 2; ++i)
        if (a.wants(i) && whole[i] != Adjoint::kNone) gradients[i] = a.sum_to(whole[i], a.in(i));
      return gradients;
    };
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
      .gradient = gradient,
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
