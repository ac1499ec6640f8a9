// The operators of one operand that work element by element.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

using Rule = ValueId (*)(Adjoint& a, ValueId g, ValueId x, ValueId y);

struct Row {
  const char* name;
  UnaryOp op;
  bool (*accepts)(DType);
  const char* legal;
  const char* doc;
  const char* example;      // values of x and y: "x -> y"; x is of the type below
  const char* type;         // "f32[2]"
  Rule gradient = nullptr;  // of x, from that of y
};

bool is_bool(DType dtype) { return dtype == DType::kBool; }

// (1 - x) (1 + x), which keeps its digits near 1 and -1.
ValueId one_minus_square(Adjoint& a, ValueId x) {
  const ValueId one = a.scalar(1, x);
  return a.mul(a.sub(one, x), a.add(one, x));
}

// Of what is constant between its jumps.
ValueId zero_gradient(Adjoint&, ValueId, ValueId, ValueId) { return Adjoint::kNone; }

ValueId neg_gradient(Adjoint& a, ValueId g, ValueId, ValueId) { return a.neg(g); }
// 0 at 0.
ValueId abs_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.mul(g, a.op("sign", {x})); }
ValueId exp_gradient(Adjoint& a, ValueId g, ValueId, ValueId y) { return a.mul(g, y); }
ValueId log_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.div(g, x); }
ValueId sqrt_gradient(Adjoint& a, ValueId g, ValueId, ValueId y) { return a.div(g, a.add(y, y)); }
ValueId tanh_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y) {
  return a.mul(g, a.sub(a.scalar(1, x), a.mul(y, y)));
}
ValueId erf_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return a.mul(g, a.mul(a.scalar(2 / std::sqrt(std::numbers::pi), x), a.op("exp", {a.neg(a.mul(x, x))})));
}
ValueId sin_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.mul(g, a.op("cos", {x})); }
ValueId cos_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.neg(a.mul(g, a.op("sin", {x}))); }
ValueId tan_gradient(Adjoint& a, ValueId g, ValueId x, ValueId y) {
  return a.mul(g, a.add(a.scalar(1, x), a.mul(y, y)));
}
ValueId asin_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return a.div(g, a.op("sqrt", {one_minus_square(a, x)}));
}
ValueId acos_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return a.neg(a.div(g, a.op("sqrt", {one_minus_square(a, x)})));
}
ValueId atan_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return a.div(g, a.add(a.mul(x, x), a.scalar(1, x)));
}
ValueId sinh_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.mul(g, a.op("cosh", {x})); }
ValueId cosh_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.mul(g, a.op("sinh", {x})); }
ValueId asinh_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return a.div(g, a.op("sqrt", {a.add(a.mul(x, x), a.scalar(1, x))}));
}
ValueId acosh_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return a.div(g, a.op("sqrt", {a.sub(a.mul(x, x), a.scalar(1, x))}));
}
ValueId atanh_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.div(g, one_minus_square(a, x)); }

constexpr Row kRows[] = {
    {"neg", UnaryOp::kNeg, is_arithmetic, kArithmeticTypes, "-x; integers wrap.", "1.5 -2 -> -1.5 2", "f32[2]",
     neg_gradient},
    {"abs", UnaryOp::kAbs, is_arithmetic, kArithmeticTypes, "|x|; the smallest integer stays itself.",
     "3 -3 -128 -> 3 3 -128", "i8[3]", abs_gradient},
    {"sign", UnaryOp::kSign, is_arithmetic, kArithmeticTypes, "-1, 0 or 1; NaN for NaN.", "-3 0 7 -> -1 0 1", "i32[3]",
     zero_gradient},
    {"exp", UnaryOp::kExp, is_real, kRealTypes, "e to the power x.", "0 1 -> 1 2.71828183", "f32[2]", exp_gradient},
    {"log", UnaryOp::kLog, is_real, kRealTypes, "The natural logarithm.", "1 0 -> 0 -inf", "f32[2]", log_gradient},
    {"sqrt", UnaryOp::kSqrt, is_real, kRealTypes, "The square root.", "4 2.25 -> 2 1.5", "f32[2]", sqrt_gradient},
    {"tanh", UnaryOp::kTanh, is_real, kRealTypes, "The hyperbolic tangent.", "0 1 -> 0 0.76159416", "f32[2]",
     tanh_gradient},
    {"erf", UnaryOp::kErf, is_real, kRealTypes, "The error function.", "0 1 -> 0 0.84270079", "f32[2]", erf_gradient},
    {"sin", UnaryOp::kSin, is_real, kRealTypes, "The sine of an angle in radians.", "0 1 -> 0 0.84147098", "f32[2]",
     sin_gradient},
    {"cos", UnaryOp::kCos, is_real, kRealTypes, "The cosine of an angle in radians.", "0 1 -> 1 0.54030231", "f32[2]",
     cos_gradient},
    {"tan", UnaryOp::kTan, is_real, kRealTypes, "The tangent of an angle in radians.", "0 1 -> 0 1.55740772", "f32[2]",
     tan_gradient},
    {"asin", UnaryOp::kAsin, is_real, kRealTypes, "The angle whose sine is x.", "0 1 -> 0 1.57079633", "f32[2]",
     asin_gradient},
    {"acos", UnaryOp::kAcos, is_real, kRealTypes, "The angle whose cosine is x.", "1 0 -> 0 1.57079633", "f32[2]",
     acos_gradient},
    {"atan", UnaryOp::kAtan, is_real, kRealTypes, "The angle whose tangent is x.", "0 1 -> 0 0.78539816", "f32[2]",
     atan_gradient},
    {"sinh", UnaryOp::kSinh, is_real, kRealTypes, "The hyperbolic sine.", "0 1 -> 0 1.17520119", "f32[2]",
     sinh_gradient},
    {"cosh", UnaryOp::kCosh, is_real, kRealTypes, "The hyperbolic cosine.", "0 1 -> 1 1.54308063", "f32[2]",
     cosh_gradient},
    {"asinh", UnaryOp::kAsinh, is_real, kRealTypes, "The inverse of sinh.", "0 1 -> 0 0.88137359", "f32[2]",
     asinh_gradient},
    {"acosh", UnaryOp::kAcosh, is_real, kRealTypes, "The inverse of cosh.", "1 2 -> 0 1.31695790", "f32[2]",
     acosh_gradient},
    {"atanh", UnaryOp::kAtanh, is_real, kRealTypes, "The inverse of tanh.", "0 0.5 -> 0 0.54930614", "f32[2]",
     atanh_gradient},
    {"floor", UnaryOp::kFloor, is_real, kRealTypes, "The largest integer not above x.", "1.5 -1.5 -> 1 -2", "f32[2]",
     zero_gradient},
    {"ceil", UnaryOp::kCeil, is_real, kRealTypes, "The smallest integer not below x.", "1.5 -1.5 -> 2 -1", "f32[2]",
     zero_gradient},
    {"round", UnaryOp::kRound, is_real, kRealTypes, "The nearest integer, halves to even.", "0.5 1.5 -2.6 -> 0 2 -3",
     "f32[3]", zero_gradient},
    {"logical_not", UnaryOp::kNot, is_bool, "bool", "not x.", "1 0 -> 0 1", "bool[2]"},
    {"bitwise_not", UnaryOp::kNot, is_integral, kIntegralTypes, "x with every bit inverted.", "0 5 -> -1 -6", "i32[2]"},
    {"is_nan", UnaryOp::kIsNan, is_real, kRealTypes, "Whether x is NaN.", "nan 1 inf -> 1 0 0", "f32[3]"},
    {"is_inf", UnaryOp::kIsInf, is_real, kRealTypes, "Whether x is an infinity of either sign.", "nan 1 -inf -> 0 0 1",
     "f32[3]"},
};

OpDef make_op(const Row& row) {
  const bool predicate = row.op == UnaryOp::kIsNan || row.op == UnaryOp::kIsInf;
  const std::string type = row.type;
  const std::string result = predicate ? "bool" + type.substr(type.find('[')) : type;
  const std::string values = row.example;
  const size_t arrow = values.find(" -> ");
  auto gradient = no_gradient(predicate ? "its results are bools" : "its operands are no real numbers");
  if (row.gradient)
    gradient = [&row](Adjoint& a) -> std::vector<ValueId> { return {row.gradient(a, a.gradient(), a.in(0), a.out())}; };
  return OpDef{
      .name = row.name,
      .doc = row.doc,
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {},
      .infer = [&row, predicate](const OpContext& ctx) -> std::vector<TensorType> {
        require_dtype(ctx, 0, row.accepts, row.legal);
        return {TensorType{predicate ? DType::kBool : ctx.inputs[0].dtype, ctx.inputs[0].shape, {}}};
      },
      .body =
          [&row](const OpContext& ctx) {
            return elementwise_body(ctx, [&](const std::vector<Expr>& x) { return unary(row.op, x[0]); });
          },
      .gradient = gradient,
      .example = fmt::format("\ngraph @main(%x: {}) -> (%y: {}) {{\n  %y = {}(%x) : {}\n}}\nrun x = {} -> y = {}\n",
                             type, result, row.name, result, values.substr(0, arrow), values.substr(arrow + 4)),
  };
}

}  // namespace

const std::vector<OpDef>& unary_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> result;
    for (const Row& row : kRows) result.push_back(make_op(row));
    return result;
  }();
  return ops;
}

}  // namespace tessera::inline ops
