#include "arith/int_ops.h"

#include <string>

#include "support/error.h"

namespace tessera::inline arith {
namespace {

uint64_t mask_of(int bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }

[[noreturn]] void no_such(const char* name, DType dtype) {
  throw InternalError(std::string(name) + " does not exist on " + std::string(dtype_name(dtype)));
}

int64_t divide(DType dtype, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (is_unsigned_int(dtype)) return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  return b == -1 ? wrap_sub(0, a) : a / b;
}

int64_t remainder(DType dtype, int64_t a, int64_t b) {
  if (b == 0) return a;
  if (is_unsigned_int(dtype)) return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  return b == -1 ? 0 : a % b;
}

// Rounds the quotient towards minus infinity; for unsigned types that is divide().
int64_t floor_divide(DType dtype, int64_t a, int64_t b) {
  const int64_t quotient = divide(dtype, a, b);
  const bool inexact = remainder(dtype, a, b) != 0;
  return b != 0 && !is_unsigned_int(dtype) && inexact && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// By squaring, wrapping; a negative exponent gives the truncated reciprocal power.
int64_t power(DType dtype, int64_t base, int64_t exponent) {
  if (!is_unsigned_int(dtype) && exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 ? -1 : 1;
    return 0;
  }
  int64_t result = 1;
  for (auto e = static_cast<uint64_t>(exponent); e; e >>= 1) {
    if (e & 1) result = wrap_mul(result, base);
    base = wrap_mul(base, base);
  }
  return result;
}

// Amounts of the width or more, taken as unsigned, shift everything out.
int64_t shift(BinaryOp op, DType dtype, int64_t a, int64_t amount) {
  const int bits = dtype_bits(dtype);
  const bool all = amount < 0 || amount >= bits;
  if (op == BinaryOp::kShl) return all ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << amount);
  if (is_unsigned_int(dtype)) return all ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> amount);
  return all ? (a < 0 ? -1 : 0) : a >> amount;
}

bool less(DType dtype, int64_t a, int64_t b) {
  return dtype == DType::kU64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}

}  // namespace

int64_t canonical_int(DType dtype, int64_t value) {
  if (dtype == DType::kBool) return value != 0;
  const int bits = dtype_bits(dtype);
  if (bits >= 64) return value;
  uint64_t raw = static_cast<uint64_t>(value) & mask_of(bits);
  if (is_signed_int(dtype) && (raw >> (bits - 1))) raw |= ~mask_of(bits);
  return static_cast<int64_t>(raw);
}

int64_t int_unary(UnaryOp op, DType dtype, int64_t a) {
  switch (op) {
    case UnaryOp::kNeg: return canonical_int(dtype, wrap_sub(0, a));
    case UnaryOp::kAbs: return is_signed_int(dtype) && a < 0 ? canonical_int(dtype, wrap_sub(0, a)) : a;
    case UnaryOp::kNot: return dtype == DType::kBool ? !a : canonical_int(dtype, ~a);
    case UnaryOp::kSign: return is_signed_int(dtype) ? (a > 0) - (a < 0) : a != 0;
    default: no_such(unary_name(op), dtype);
  }
}

int64_t int_binary(BinaryOp op, DType dtype, int64_t a, int64_t b) {
  switch (op) {
    case BinaryOp::kAdd: return canonical_int(dtype, wrap_add(a, b));
    case BinaryOp::kSub: return canonical_int(dtype, wrap_sub(a, b));
    case BinaryOp::kMul: return canonical_int(dtype, wrap_mul(a, b));
    case BinaryOp::kDiv: return canonical_int(dtype, divide(dtype, a, b));
    case BinaryOp::kRem: return remainder(dtype, a, b);
    case BinaryOp::kFloorDiv: return canonical_int(dtype, floor_divide(dtype, a, b));
    case BinaryOp::kFloorMod:
      return b == 0 ? a : canonical_int(dtype, wrap_sub(a, wrap_mul(floor_divide(dtype, a, b), b)));
    case BinaryOp::kMin: return less(dtype, b, a) ? b : a;
    case BinaryOp::kMax: return less(dtype, a, b) ? b : a;
    case BinaryOp::kPow: return canonical_int(dtype, power(dtype, a, b));
    case BinaryOp::kAnd: return a & b;
    case BinaryOp::kOr: return a | b;
    case BinaryOp::kXor: return a ^ b;
    case BinaryOp::kShl:
    case BinaryOp::kShr: return canonical_int(dtype, shift(op, dtype, a, b));
    case BinaryOp::kEq: return a == b;
    case BinaryOp::kNe: return a != b;
    case BinaryOp::kLt: return less(dtype, a, b);
    case BinaryOp::kLe: return !less(dtype, b, a);
    case BinaryOp::kGt: return less(dtype, b, a);
    case BinaryOp::kGe: return !less(dtype, a, b);
  }
  no_such(binary_name(op), dtype);
}

int64_t floor_div(int64_t a, int64_t b) { return floor_divide(DType::kI64, a, b); }

bool commutes(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
    case BinaryOp::kMul:
    case BinaryOp::kMin:
    case BinaryOp::kMax:
    case BinaryOp::kAnd:
    case BinaryOp::kOr:
    case BinaryOp::kXor:
    case BinaryOp::kEq:
    case BinaryOp::kNe: return true;
    default: return false;
  }
}

}  // namespace tessera::inline arith
