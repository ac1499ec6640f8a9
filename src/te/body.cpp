#include "te/body.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "support/error.h"
#include "types/tensor.h"

namespace tessera::inline tensor_programs {

const char* combiner_name(Combiner combiner) {
  static constexpr const char* kNames[] = {"none", "sum", "prod", "min", "max"};
  return kNames[static_cast<int>(combiner)];
}

namespace {

// The largest number of a float type, or the smallest: where it has no infinity, a finite one.
Expr extreme(DType dtype, bool smallest) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Expr e = const_float(dtype, smallest ? -infinity : infinity);
  if (!std::isnan(e->float_value)) return e;
  uint32_t code = (1u << (dtype_bits(dtype) - 1)) - 1;
  while (!std::isfinite(decode_float(dtype, code))) --code;
  const double largest = decode_float(dtype, code);
  return const_float(dtype, smallest ? -largest : largest);
}

}  // namespace

Expr combiner_identity(Combiner combiner, DType dtype) {
  const int bits = dtype_bits(dtype);
  const bool is_signed = is_signed_int(dtype);
  switch (combiner) {
    case Combiner::kSum: return const_of(dtype, 0);
    case Combiner::kProd: return const_of(dtype, 1);
    case Combiner::kMin:
      if (is_float(dtype)) return extreme(dtype, false);
      if (dtype == DType::kBool) return const_int(dtype, 1);
      return const_int(dtype, is_signed ? static_cast<int64_t>((1ull << (bits - 1)) - 1) : -1);
    case Combiner::kMax:
      if (is_float(dtype)) return extreme(dtype, true);
      return const_int(dtype, is_signed ? static_cast<int64_t>(1ull << (bits - 1)) : 0);
    case Combiner::kNone: break;
  }
  throw InternalError("an injective body has no identity");
}

Expr combine(Combiner combiner, Expr a, Expr b) {
  switch (combiner) {
    case Combiner::kSum: return std::move(a) + std::move(b);
    case Combiner::kProd: return std::move(a) * std::move(b);
    case Combiner::kMin: return min(std::move(a), std::move(b));
    case Combiner::kMax: return max(std::move(a), std::move(b));
    case Combiner::kNone: break;
  }
  throw InternalError("an injective body combines nothing");
}

std::vector<Expr> Body::axis_vars() const {
  std::vector<Expr> vars;
  for (const Axis& axis : axes) vars.push_back(axis.var);
  return vars;
}

std::vector<Axis> make_axes(const std::string& prefix, const Shape& shape) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < shape.size(); ++i) axes.push_back({make_var(fmt::format("{}{}", prefix, i)), shape[i]});
  return axes;
}

Body with_fresh_axes(const Body& body) {
  Body copy = body;
  VarMap map;
  for (auto* axes : {&copy.axes, &copy.reduce_axes})
    for (Axis& axis : *axes) {
      Var fresh = make_var(axis.var->name);
      map[axis.var.get()] = fresh;
      axis.var = fresh;
    }
  copy.value = substitute(body.value, map);
  return copy;
}

namespace {

bool is_16_bit_float(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// The same value as f32. Casts go to the loads, so that padding (a select of a load and 0) is still seen as such.
Expr in_f32(const Expr& e) {
  if (e->kind == ExprKind::kConst) return const_float(DType::kF32, e->float_value);
  if (e->kind == ExprKind::kSelect) return select(e->operands[0], in_f32(e->operands[1]), in_f32(e->operands[2]));
  return cast(DType::kF32, e);
}

}  // namespace

Body with_wide_accumulation(const Body& body) {
  if ((body.combiner != Combiner::kSum && body.combiner != Combiner::kProd) || !is_16_bit_float(body.value.dtype()))
    return body;
  Body wide = body;
  const Expr& e = body.value;
  const bool is_product = e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul;
  wide.value = is_product ? in_f32(e->operands[0]) * in_f32(e->operands[1]) : in_f32(e);
  return wide;
}

std::string to_string(const Body& body) {
  std::string text = "out[";
  for (size_t i = 0; i < body.axes.size(); ++i)
    text += fmt::format("{}{}<{}", i ? ", " : "", to_string(body.axes[i].var), to_string(body.axes[i].extent));
  text += "] = ";
  if (body.is_reduction()) {
    text += combiner_name(body.combiner);
    text += "[";
    for (size_t i = 0; i < body.reduce_axes.size(); ++i)
      text += fmt::format("{}{}<{}", i ? ", " : "", to_string(body.reduce_axes[i].var),
                          to_string(body.reduce_axes[i].extent));
    text += "] ";
  }
  return text + to_string(body.value);
}

}  // namespace tessera::inline tensor_programs
