// What byte_rounding makes and pack_bytes reads: bytes of floats, rounded by the addition of a number without a
// fraction.
#pragma once

#include <functional>
#include <optional>

#include "arith/expr.h"
#include "loop/stmt.h"

namespace tessera::inline loop_passes {

inline constexpr double kRoundingAddend = 0x1.8p23;  // as a float its lowest 22 bits are 0, and one step is 1

inline bool is_binary(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }

inline std::optional<double> as_f32(const Expr& e) {
  return e->kind == ExprKind::kConst && e.dtype() == DType::kF32 ? std::optional(e->float_value) : std::nullopt;
}
inline Expr f32_number(double value) { return const_float(DType::kF32, value); }

// Within the limits: of NaN the lower one.
inline Expr within(const Expr& x, double low, double high) {
  return min(select(x > f32_number(low), x, f32_number(low)), f32_number(high));
}

// The statement with other stores and loops: `change` returns what replaces one of them, or null. What stands for an
// intrinsic's pattern stays as the pattern has it.
Stmt rewrite_statements(const Stmt& s, const std::function<Stmt(const Stmt&)>& change);

}  // namespace tessera::inline loop_passes
