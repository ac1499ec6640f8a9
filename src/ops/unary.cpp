// The operators of one operand that work element by element.
#include <fmt/format.h>

#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

struct Row {
  const char* name;
  UnaryOp op;
  bool (*accepts)(DType);
  const char* legal;
  const char* doc;
  const char* example;  // values of x and y: "x -> y"; x is of the type below
  const char* type;     // "f32[2]"
};

bool is_bool(DType dtype) { return dtype == DType::kBool; }

constexpr Row kRows[] = {
    {"neg", UnaryOp::kNeg, is_arithmetic, kArithmeticTypes, "-x; integers wrap.", "1.5 -2 -> -1.5 2", "f32[2]"},
    {"abs", UnaryOp::kAbs, is_arithmetic, kArithmeticTypes, "|x|; the smallest integer stays itself.",
     "3 -3 -128 -> 3 3 -128", "i8[3]"},
    {"sign", UnaryOp::kSign, is_arithmetic, kArithmeticTypes, "-1, 0 or 1; NaN for NaN.", "-3 0 7 -> -1 0 1", "i32[3]"},
    {"exp", UnaryOp::kExp, is_real, kRealTypes, "e to the power x.", "0 1 -> 1 2.71828183", "f32[2]"},
    {"log", UnaryOp::kLog, is_real, kRealTypes, "The natural logarithm.", "1 0 -> 0 -inf", "f32[2]"},
    {"sqrt", UnaryOp::kSqrt, is_real, kRealTypes, "The square root.", "4 2.25 -> 2 1.5", "f32[2]"},
    {"tanh", UnaryOp::kTanh, is_real, kRealTypes, "The hyperbolic tangent.", "0 1 -> 0 0.76159416", "f32[2]"},
    {"erf", UnaryOp::kErf, is_real, kRealTypes, "The error function.", "0 1 -> 0 0.84270079", "f32[2]"},
    {"sin", UnaryOp::kSin, is_real, kRealTypes, "The sine of an angle in radians.", "0 1 -> 0 0.84147098", "f32[2]"},
    {"cos", UnaryOp::kCos, is_real, kRealTypes, "The cosine of an angle in radians.", "0 1 -> 1 0.54030231", "f32[2]"},
    {"tan", UnaryOp::kTan, is_real, kRealTypes, "The tangent of an angle in radians.", "0 1 -> 0 1.55740772", "f32[2]"},
    {"asin", UnaryOp::kAsin, is_real, kRealTypes, "The angle whose sine is x.", "0 1 -> 0 1.57079633", "f32[2]"},
    {"acos", UnaryOp::kAcos, is_real, kRealTypes, "The angle whose cosine is x.", "1 0 -> 0 1.57079633", "f32[2]"},
    {"atan", UnaryOp::kAtan, is_real, kRealTypes, "The angle whose tangent is x.", "0 1 -> 0 0.78539816", "f32[2]"},
    {"sinh", UnaryOp::kSinh, is_real, kRealTypes, "The hyperbolic sine.", "0 1 -> 0 1.17520119", "f32[2]"},
    {"cosh", UnaryOp::kCosh, is_real, kRealTypes, "The hyperbolic cosine.", "0 1 -> 1 1.54308063", "f32[2]"},
    {"asinh", UnaryOp::kAsinh, is_real, kRealTypes, "The inverse of sinh.", "0 1 -> 0 0.88137359", "f32[2]"},
    {"acosh", UnaryOp::kAcosh, is_real, kRealTypes, "The inverse of cosh.", "1 2 -> 0 1.31695790", "f32[2]"},
    {"atanh", UnaryOp::kAtanh, is_real, kRealTypes, "The inverse of tanh.", "0 0.5 -> 0 0.54930614", "f32[2]"},
    {"floor", UnaryOp::kFloor, is_real, kRealTypes, "The largest integer not above x.", "1.5 -1.5 -> 1 -2", "f32[2]"},
    {"ceil", UnaryOp::kCeil, is_real, kRealTypes, "The smallest integer not below x.", "1.5 -1.5 -> 2 -1", "f32[2]"},
    {"round", UnaryOp::kRound, is_real, kRealTypes, "The nearest integer, halves to even.", "0.5 1.5 -2.6 -> 0 2 -3",
     "f32[3]"},
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
