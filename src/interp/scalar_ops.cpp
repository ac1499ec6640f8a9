#include "interp/scalar_ops.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/error.h"
#include "types/tensor.h"

namespace tessera::inline interp {
namespace {

uint64_t mask_of(int bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }

[[noreturn]] void no_such(const char* name, DType dtype) {
  throw InternalError(std::string(name) + " does not exist on " + std::string(dtype_name(dtype)));
}

}  // namespace

double round_to(DType dtype, double value) {
  if (dtype == DType::kF64) return value;
  if (dtype == DType::kF32) return static_cast<float>(value);
  return decode_float(dtype, encode_float(dtype, value));
}

double float_unary(UnaryOp op, double a) {
  switch (op) {
    case UnaryOp::kNeg: return -a;
    case UnaryOp::kAbs: return std::fabs(a);
    case UnaryOp::kExp: return std::exp(a);
    case UnaryOp::kLog: return std::log(a);
    case UnaryOp::kSqrt: return std::sqrt(a);
    case UnaryOp::kTanh: return std::tanh(a);
    case UnaryOp::kErf: return std::erf(a);
    case UnaryOp::kSin: return std::sin(a);
    case UnaryOp::kCos: return std::cos(a);
    case UnaryOp::kTan: return std::tan(a);
    case UnaryOp::kAsin: return std::asin(a);
    case UnaryOp::kAcos: return std::acos(a);
    case UnaryOp::kAtan: return std::atan(a);
    case UnaryOp::kSinh: return std::sinh(a);
    case UnaryOp::kCosh: return std::cosh(a);
    case UnaryOp::kAsinh: return std::asinh(a);
    case UnaryOp::kAcosh: return std::acosh(a);
    case UnaryOp::kAtanh: return std::atanh(a);
    case UnaryOp::kFloor: return std::floor(a);
    case UnaryOp::kCeil: return std::ceil(a);
    case UnaryOp::kRound: return std::nearbyint(a);  // the default rounding mode: halves to even
    case UnaryOp::kTrunc: return std::trunc(a);
    case UnaryOp::kSign: return std::isnan(a) ? a : (a > 0) - (a < 0);
    default: no_such(unary_name(op), DType::kF64);
  }
}

double float_binary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSub: return a - b;
    case BinaryOp::kMul: return a * b;
    case BinaryOp::kDiv: return a / b;
    case BinaryOp::kRem: return std::fmod(a, b);
    case BinaryOp::kFloorDiv: return std::floor(a / b);
    case BinaryOp::kFloorMod: {
      const double r = std::fmod(a, b);
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case BinaryOp::kMin: return std::isnan(a) || std::isnan(b) ? a + b : b < a ? b : a;
    case BinaryOp::kMax: return std::isnan(a) || std::isnan(b) ? a + b : a < b ? b : a;
    case BinaryOp::kPow: return std::pow(a, b);
    default: no_such(binary_name(op), DType::kF64);
  }
}

bool float_compare(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kEq: return a == b;
    case BinaryOp::kNe: return a != b;
    case BinaryOp::kLt: return a < b;
    case BinaryOp::kLe: return a <= b;
    case BinaryOp::kGt: return a > b;
    case BinaryOp::kGe: return a >= b;
    default: no_such(binary_name(op), DType::kF64);
  }
}

bool float_test(UnaryOp op, double a) {
  if (op == UnaryOp::kIsNan) return std::isnan(a);
  if (op == UnaryOp::kIsInf) return std::isinf(a);
  no_such(unary_name(op), DType::kF64);
}

int64_t float_to_int(DType to, double a) {
  if (to == DType::kBool) return a != 0;
  if (std::isnan(a)) return 0;
  a = std::trunc(a);
  const int bits = dtype_bits(to);
  if (is_unsigned_int(to)) {
    if (a <= 0) return 0;
    if (a >= std::ldexp(1.0, bits)) return canonical_int(to, -1);
    return static_cast<int64_t>(static_cast<uint64_t>(a));
  }
  const double limit = std::ldexp(1.0, bits - 1);
  const auto smallest = static_cast<int64_t>(~mask_of(bits - 1));
  if (a < -limit) return smallest;
  if (a >= limit) return ~smallest;
  return static_cast<int64_t>(a);
}

double int_to_float(DType from, DType to, int64_t a) {
  if (to == DType::kF32)
    return from == DType::kU64 ? static_cast<float>(static_cast<uint64_t>(a)) : static_cast<float>(a);
  const double wide = from == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(a)) : static_cast<double>(a);
  return round_to(to, wide);
}

uint64_t int_bits(DType dtype, int64_t a) { return static_cast<uint64_t>(a) & mask_of(dtype_bits(dtype)); }

uint64_t float_bits(DType dtype, double a) {
  if (dtype == DType::kF64) return std::bit_cast<uint64_t>(a);
  if (dtype == DType::kF32) return std::bit_cast<uint32_t>(static_cast<float>(a));
  return encode_float(dtype, a);
}

int64_t int_from_bits(DType dtype, uint64_t bits) { return canonical_int(dtype, static_cast<int64_t>(bits)); }

double float_from_bits(DType dtype, uint64_t bits) {
  if (dtype == DType::kF64) return std::bit_cast<double>(bits);
  if (dtype == DType::kF32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return decode_float(dtype, static_cast<uint32_t>(bits));
}

namespace {

uint64_t read_bits(DType dtype, const std::byte* data, int64_t index) {
  const int bits = dtype_bits(dtype);
  if (bits < 8) {
    const int per_byte = 8 / bits;
    return (std::to_integer<uint64_t>(data[index / per_byte]) >> (bits * (index % per_byte))) & mask_of(bits);
  }
  uint64_t raw = 0;
  std::memcpy(&raw, data + index * (bits / 8), static_cast<size_t>(bits / 8));
  return raw;
}

void write_bits(DType dtype, std::byte* data, int64_t index, uint64_t raw) {
  const int bits = dtype_bits(dtype);
  if (bits < 8) {
    const int per_byte = 8 / bits;
    const auto shift = static_cast<int>(bits * (index % per_byte));
    const uint64_t others = std::to_integer<uint64_t>(data[index / per_byte]) & ~(mask_of(bits) << shift);
    data[index / per_byte] = static_cast<std::byte>(others | (raw << shift));
    return;
  }
  std::memcpy(data + index * (bits / 8), &raw, static_cast<size_t>(bits / 8));
}

}  // namespace

int64_t read_int(DType dtype, const std::byte* data, int64_t index) {
  return int_from_bits(dtype, read_bits(dtype, data, index));
}
double read_float(DType dtype, const std::byte* data, int64_t index) {
  return float_from_bits(dtype, read_bits(dtype, data, index));
}
void write_int(DType dtype, std::byte* data, int64_t index, int64_t value) {
  write_bits(dtype, data, index, int_bits(dtype, value));
}
void write_float(DType dtype, std::byte* data, int64_t index, double value) {
  write_bits(dtype, data, index, float_bits(dtype, value));
}

}  // namespace tessera::inline interp
