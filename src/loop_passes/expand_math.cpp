#include "loop_passes/expand_math.h"

#include <cmath>
#include <limits>
#include <vector>

#include "loop/intrinsic.h"
#include "loop_passes/math_functions.h"

namespace tessera::inline loop_passes {
namespace {

using Function = Expr (*)(const Expr&);
using NarrowFunction = Expr (*)(const Expr&, bool);

// Computes in `wide` and rounds back.
template <typename F>
Expr through(DType wide, const Expr& x, F&& function) {
  return cast(x.dtype(), function(cast(wide, x)));
}

Expr own_type(const Expr& x, Function function) {
  const bool is_small = x.dtype() != DType::kF32 && x.dtype() != DType::kF64;
  return is_small ? through(DType::kF32, x, function) : function(x);
}

Expr in_f64(const Expr& x, Function function) {
  return x.dtype() == DType::kF64 ? function(x) : through(DType::kF64, x, function);
}

Expr in_f64(const Expr& x, NarrowFunction function) {
  if (x.dtype() == DType::kF64) return function(x, false);
  return through(DType::kF64, x, [&](const Expr& wide) { return function(wide, true); });
}

Expr expand_unary(UnaryOp op, const Expr& x) {
  switch (op) {
    case UnaryOp::kExp: return own_type(x, math::exp);
    case UnaryOp::kLog: return own_type(x, math::log);
    case UnaryOp::kTanh: return own_type(x, math::tanh);
    case UnaryOp::kErf: return own_type(x, math::erf);
    case UnaryOp::kSin: return in_f64(x, math::sin);
    case UnaryOp::kCos: return in_f64(x, math::cos);
    case UnaryOp::kTan: return in_f64(x, math::tan);
    case UnaryOp::kAsin: return in_f64(x, math::asin);
    case UnaryOp::kAcos: return in_f64(x, math::acos);
    case UnaryOp::kAtan: return in_f64(x, math::atan);
    case UnaryOp::kSinh: return in_f64(x, math::sinh);
    case UnaryOp::kCosh: return in_f64(x, math::cosh);
    case UnaryOp::kAsinh: return in_f64(x, math::asinh);
    case UnaryOp::kAcosh: return in_f64(x, math::acosh);
    case UnaryOp::kAtanh: return in_f64(x, math::atanh);
    default: return {};
  }
}

// x to the power `quarters` / 4 by square roots; null where intermediate results may leave the range, or where more of
// them lose more.
Expr power_of_quarters(const Expr& x, int quarters) {
  const int count = std::abs(quarters);
  if (count > (quarters < 0 ? 2 : 6)) return {};
  const DType dtype = x.dtype();
  const double inf = std::numeric_limits<double>::infinity();
  const Expr base = select(equal(x, const_float(dtype, -inf)), const_float(dtype, inf), x);
  const Expr root = unary(UnaryOp::kSqrt, base);
  std::vector<Expr> factors;
  if (count & 4) factors.push_back(base);
  if (count & 2) factors.push_back(root);
  if (count & 1) factors.push_back(unary(UnaryOp::kSqrt, root));
  Expr result = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) result = result * factors[i];
  if (factors.size() % 2) result = unary(UnaryOp::kAbs, result);  // of -0
  return quarters < 0 ? binary(BinaryOp::kDiv, const_float(dtype, 1), result) : result;
}

Expr expand_pow(const Expr& x, const Expr& y) {
  const DType dtype = x.dtype();
  if (y->kind == ExprKind::kConst) {
    const double power = y->float_value;
    if (power == 1) return x;
    if (power == 2) return x * x;
    if (power == -1) return binary(BinaryOp::kDiv, const_float(dtype, 1), x);
    if (power == 0.5) {
      const double inf = std::numeric_limits<double>::infinity();
      const Expr root = unary(UnaryOp::kSqrt, x), least = const_float(dtype, -inf);
      return least->float_value == -inf ? select(equal(x, least), const_float(dtype, inf), root) : root;
    }
    const double quarters = 4 * power;
    const bool is_whole = quarters == std::floor(quarters) && std::fabs(quarters) <= 6 && std::fmod(quarters, 4) != 0;
    if (dtype == DType::kF32 && is_whole)
      if (Expr result = power_of_quarters(x, static_cast<int>(quarters))) return result;
  }
  return cast(dtype, math::pow(cast(DType::kF64, x), cast(DType::kF64, y), dtype != DType::kF64));
}

Expr expand_binary(BinaryOp op, const Expr& a, const Expr& b) {
  const DType dtype = a.dtype();
  if (op == BinaryOp::kPow) return is_float(dtype) ? expand_pow(a, b) : math::integer_pow(a, b);
  if (!is_float(dtype) || (op != BinaryOp::kRem && op != BinaryOp::kFloorMod)) return {};
  const Expr y = cast(DType::kF64, b);
  Expr r = math::fmod(cast(DType::kF64, a), y, dtype != DType::kF64);
  if (op == BinaryOp::kFloorMod) {
    const Expr zero = const_float(DType::kF64, 0);
    const Expr other_sign = binary(BinaryOp::kNe, r < zero, y < zero);
    r = select(logical_and(binary(BinaryOp::kNe, r, zero), other_sign), r + y, r);
  }
  return cast(dtype, r);
}

Expr rewrite(const Expr& e) {
  if (e->kind == ExprKind::kUnary) return expand_unary(e->unary, e->operands[0]);
  if (e->kind == ExprKind::kBinary) return expand_binary(e->binary, e->operands[0], e->operands[1]);
  return {};
}

bool has_functions(const Stmt& s) {
  bool found = false;
  walk(s, nullptr, [&](const Expr& e) { found = found || rewrite(e); });
  return found;
}

bool loads_a_range(const Stmt& s) {
  bool found = false;
  const auto look = [&](const Expr& e) { found |= e->kind == ExprKind::kLoad; };
  walk(
      s,
      [&](const Stmt& loop) {
        if (loop->kind != StmtKind::kFor) return;
        walk(loop->begin, look);
        walk(loop->extent, look);
      },
      nullptr);
  return found;
}

Stmt expand_statement(const Stmt& s, const Target* target, bool in_vector) {
  if (s->kind == StmtKind::kTensorized && s->intrinsic->pattern()) {
    const bool is_used =
        !target || (has_intrinsic(*target, *s->intrinsic) && !in_vector && !loads_a_range(s->stmts[0]));
    return is_used || !has_functions(s->stmts[0]) ? s : expand_statement(s->stmts[0], target, in_vector);
  }
  in_vector |= s->kind == StmtKind::kFor && s->for_kind == ForKind::kVectorized;
  auto copy = std::make_shared<StmtNode>(*s.get());
  for (Stmt& child : copy->stmts) child = expand_statement(child, target, in_vector);
  for (Expr* e : {&copy->begin, &copy->extent, &copy->condition, &copy->value})
    if (*e) *e = transform(*e, rewrite);
  for (Expr& index : copy->indices) index = transform(index, rewrite);
  if (copy->kind == StmtKind::kIf)  // a condition may have become a constant
    return if_then(copy->condition, copy->stmts[0], copy->stmts.size() > 1 ? copy->stmts[1] : Stmt());
  return copy->kind == StmtKind::kSeq ? seq(copy->stmts) : Stmt(std::move(copy));
}

}  // namespace

Expr expand_math(const Expr& e) { return transform(e, rewrite); }

LoopProgram expand_math(const LoopProgram& program, const Target* target) {
  LoopProgram result = program;
  result.body = expand_statement(program.body, target, false);
  return result;
}

}  // namespace tessera::inline loop_passes
