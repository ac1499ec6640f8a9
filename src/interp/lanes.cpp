#include "interp/lanes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "arith/int_ops.h"
#include "interp/scalar_ops.h"

namespace tessera::inline interp {
namespace {

using Kind = Lanes::Kind;

template <typename F>
void each(const LaneMask& mask, F f) {
  if (mask.bits) {
    for (int lane = mask.begin; lane < mask.end; ++lane)
      if (mask.bits[lane]) f(lane);
  } else {
    for (int lane = mask.begin; lane < mask.end; ++lane) f(lane);
  }
}

// out[lane] = f(a, b) with the loops specialised by which operand is one number, so that they vectorize.
template <typename F>
void zip(const Lanes& a, const Lanes& b, const LaneMask& mask, double* __restrict out, F f) {
  const double* pa = a.reals;
  const double* pb = b.reals;
  const double ua = a.real_value;
  const double ub = b.real_value;
  if (a.is_uniform()) {
    each(mask, [=](int l) { out[l] = f(ua, pb[l]); });
  } else if (b.is_uniform()) {
    each(mask, [=](int l) { out[l] = f(pa[l], ub); });
  } else {
    each(mask, [=](int l) { out[l] = f(pa[l], pb[l]); });
  }
}

bool is_16_bit(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// round_to for f16 and bf16, in place of going through their codes where the result is a normal number.
double round_16(DType dtype, double value) {
  const bool half = dtype == DType::kF16;
  const double magnitude = std::fabs(value);
  if (!(magnitude >= (half ? 0x1p-14 : 0x1p-126) && magnitude < (half ? 0x1p15 : 0x1p127)))
    return round_to(dtype, value);
  const int dropped = half ? 42 : 45;  // mantissa bits
  auto bits = std::bit_cast<uint64_t>(value);
  bits += (uint64_t{1} << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return std::bit_cast<double>(bits >> dropped << dropped);
}

double read_16(DType dtype, uint16_t code) {
  if (dtype == DType::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
  const uint64_t exponent = code >> 10 & 31;
  if (exponent == 0 || exponent == 31) return float_from_bits(dtype, code);
  return std::bit_cast<double>(static_cast<uint64_t>(code >> 15) << 63 | (exponent + 1008) << 52 |
                               static_cast<uint64_t>(code & 1023) << 42);
}

// Rounding that vectorizes for the types where speed matters.
template <typename F>
void zip_rounded(DType dtype, const Lanes& a, const Lanes& b, const LaneMask& mask, double* out, F f) {
  if (dtype == DType::kF64) {
    zip(a, b, mask, out, f);
  } else if (dtype == DType::kF32) {
    zip(a, b, mask, out, [=](double x, double y) { return static_cast<double>(static_cast<float>(f(x, y))); });
  } else if (is_16_bit(dtype)) {
    zip(a, b, mask, out, [=](double x, double y) { return round_16(dtype, f(x, y)); });
  } else {
    zip(a, b, mask, out, [=](double x, double y) { return round_to(dtype, f(x, y)); });
  }
}

void real_arithmetic(BinaryOp op, DType dtype, const Lanes& a, const Lanes& b, const LaneMask& mask, double* out) {
  switch (op) {
    case BinaryOp::kAdd: return zip_rounded(dtype, a, b, mask, out, [](double x, double y) { return x + y; });
    case BinaryOp::kSub: return zip_rounded(dtype, a, b, mask, out, [](double x, double y) { return x - y; });
    case BinaryOp::kMul: return zip_rounded(dtype, a, b, mask, out, [](double x, double y) { return x * y; });
    case BinaryOp::kDiv: return zip_rounded(dtype, a, b, mask, out, [](double x, double y) { return x / y; });
    case BinaryOp::kMin:
      return zip(a, b, mask, out, [](double x, double y) { return float_binary(BinaryOp::kMin, x, y); });
    case BinaryOp::kMax:
      return zip(a, b, mask, out, [](double x, double y) { return float_binary(BinaryOp::kMax, x, y); });
    default: return zip_rounded(dtype, a, b, mask, out, [op](double x, double y) { return float_binary(op, x, y); });
  }
}

bool progression(const Lanes& a) { return a.kind == Kind::kUniform || a.kind == Kind::kAffine; }

// Progressions small enough that no lane's value and no difference of two overflows.
bool is_small(const Lanes& a) {
  constexpr int64_t kLimit = int64_t{1} << 60;
  constexpr int64_t kStepLimit = kLimit / kMaxLanes;
  return a.first > -kLimit && a.first < kLimit && a.step > -kStepLimit && a.step < kStepLimit;
}

// Lanes where first + step * lane < 0, within begin .. end.
Lanes negative_lanes(int64_t first, int64_t step, const LaneMask& mask) {
  const auto below = [&](int64_t lane) { return first + step * lane < 0; };
  if (step == 0 || below(mask.begin) == below(mask.end - 1)) return Lanes::uniform_int(below(mask.begin));
  // The first lane of the other sign.
  const int64_t crossing = step > 0 ? (-first + step - 1) / step : first / -step + 1;
  return step > 0 ? Lanes::range(mask.begin, crossing) : Lanes::range(crossing, mask.end);
}

Lanes invert(const Lanes& a, const LaneMask& mask) {
  if (a.is_uniform()) return Lanes::uniform_int(!a.first);
  return a.first <= mask.begin ? Lanes::range(a.step, mask.end) : Lanes::range(mask.begin, a.first);
}

// Index arithmetic on progressions without going through every lane; empty where the result is no progression.
std::optional<Lanes> affine_binary(BinaryOp op, const Lanes& a, const Lanes& b, const LaneMask& mask) {
  switch (op) {
    case BinaryOp::kAdd: return Lanes::affine(wrap_add(a.first, b.first), wrap_add(a.step, b.step));
    case BinaryOp::kSub: return Lanes::affine(wrap_sub(a.first, b.first), wrap_sub(a.step, b.step));
    case BinaryOp::kMul:
      if (b.is_uniform()) return Lanes::affine(wrap_mul(a.first, b.first), wrap_mul(a.step, b.first));
      if (a.is_uniform()) return Lanes::affine(wrap_mul(a.first, b.first), wrap_mul(a.first, b.step));
      return std::nullopt;
    default: break;
  }
  if (!is_small(a) || !is_small(b)) return std::nullopt;
  const auto less = [&](const Lanes& x, const Lanes& y) {
    return negative_lanes(x.first - y.first, x.step - y.step, mask);
  };
  switch (op) {
    case BinaryOp::kLt: return less(a, b);
    case BinaryOp::kGt: return less(b, a);
    case BinaryOp::kGe: return invert(less(a, b), mask);
    case BinaryOp::kLe: return invert(less(b, a), mask);
    case BinaryOp::kMin:
    case BinaryOp::kMax: {
      const Lanes first_is_less = less(a, b);
      if (!first_is_less.is_uniform()) return std::nullopt;
      return (first_is_less.first != 0) == (op == BinaryOp::kMin) ? a : b;
    }
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: {
      if (!b.is_uniform() || b.first <= 0) return std::nullopt;
      const bool div = op == BinaryOp::kFloorDiv;
      const auto quotient = [&](int64_t x) { return x / b.first - (x % b.first < 0); };
      const int64_t q = quotient(a.int_at(mask.begin));
      if (a.step % b.first == 0)
        return div ? Lanes::affine(quotient(a.first), a.step / b.first)
                   : Lanes::uniform_int(a.first - quotient(a.first) * b.first);
      if (q != quotient(a.int_at(mask.end - 1))) return std::nullopt;
      return div ? Lanes::uniform_int(q) : Lanes::affine(a.first - q * b.first, a.step);
    }
    default: return std::nullopt;
  }
}

// and / or of runs.
std::optional<Lanes> bool_binary(BinaryOp op, const Lanes& a, const Lanes& b) {
  if (op != BinaryOp::kAnd && op != BinaryOp::kOr) return std::nullopt;
  const bool is_and = op == BinaryOp::kAnd;
  if (a.is_uniform()) return (a.first != 0) == is_and ? b : a;
  if (b.is_uniform()) return (b.first != 0) == is_and ? a : b;
  if (!is_and || a.kind != Kind::kRange || b.kind != Kind::kRange) return std::nullopt;
  const int64_t begin = std::max(a.first, b.first);
  const int64_t end = std::min(a.step, b.step);
  return begin < end ? Lanes::range(begin, end) : Lanes::uniform_int(0);
}

// The lanes' numbers one by one: the value's own, or written to `room`.
const int64_t* as_vector(const Lanes& a, const LaneMask& mask, int64_t* room) {
  if (a.kind == Kind::kVector) return a.ints;
  for (int l = mask.begin; l < mask.end; ++l) room[l] = a.int_at(l);
  return room;
}

Lanes int_binary_lanes(BinaryOp op, DType dtype, const Lanes& a, const Lanes& b, const LaneMask& mask, int64_t* out) {
  if (dtype == DType::kI64 && progression(a) && progression(b))
    if (const auto result = affine_binary(op, a, b, mask)) return *result;
  if (a.is_uniform() && b.is_uniform()) return Lanes::uniform_int(int_binary(op, dtype, a.first, b.first));
  if (dtype == DType::kBool)
    if (const auto result = bool_binary(op, a, b)) return *result;
  std::array<int64_t, kMaxLanes> room[2];
  const int64_t* pa = as_vector(a, mask, room[0].data());
  const int64_t* pb = as_vector(b, mask, room[1].data());
  const auto with = [&](auto f) { each(mask, [=](int l) { out[l] = f(pa[l], pb[l]); }); };
  // Indices that are no progression, mostly those of dilated inputs and resized images, are worth a loop of their own.
  const bool power_of_two = b.is_uniform() && b.first > 0 && (b.first & (b.first - 1)) == 0;
  const int shift = power_of_two ? std::countr_zero(static_cast<uint64_t>(b.first)) : 0;
  const int64_t low_bits = power_of_two ? b.first - 1 : 0;
  if (dtype == DType::kI64 && op == BinaryOp::kAdd) {
    with([](int64_t x, int64_t y) { return wrap_add(x, y); });
  } else if (dtype == DType::kI64 && op == BinaryOp::kMul) {
    with([](int64_t x, int64_t y) { return wrap_mul(x, y); });
  } else if (dtype == DType::kI64 && op == BinaryOp::kFloorDiv && power_of_two) {
    with([shift](int64_t x, int64_t) { return x >> shift; });
  } else if (dtype == DType::kI64 && op == BinaryOp::kFloorMod && power_of_two) {
    with([low_bits](int64_t x, int64_t) { return x & low_bits; });
  } else if (op == BinaryOp::kEq) {
    with([](int64_t x, int64_t y) { return static_cast<int64_t>(x == y); });
  } else if (dtype == DType::kBool && op == BinaryOp::kAnd) {
    with([](int64_t x, int64_t y) { return x & y; });
  } else {
    with([op, dtype](int64_t x, int64_t y) { return int_binary(op, dtype, x, y); });
  }
  return Lanes::int_vector(out);
}

}  // namespace

Lanes lanes_unary(UnaryOp op, DType from, DType to, const Lanes& a, const LaneMask& mask, LaneStorage out) {
  if (op == UnaryOp::kBitcast) {
    const auto convert = [&](int l, Lanes& result, bool store) {
      const uint64_t bits = a.real ? float_bits(from, a.real_at(l)) : int_bits(from, a.int_at(l));
      if (is_float(to)) {
        (store ? out.reals[l] : result.real_value) = float_from_bits(to, bits);
      } else {
        (store ? out.ints[l] : result.first) = int_from_bits(to, bits);
      }
    };
    Lanes result = is_float(to) ? Lanes::uniform_real(0) : Lanes::uniform_int(0);
    if (a.is_uniform()) {
      convert(mask.begin, result, false);
      return result;
    }
    each(mask, [&](int l) { convert(l, result, true); });
    return is_float(to) ? Lanes::real_vector(out.reals) : Lanes::int_vector(out.ints);
  }
  if (!a.real) {
    if (a.is_uniform()) return Lanes::uniform_int(int_unary(op, from, a.first));
    if (op == UnaryOp::kNeg && a.kind == Kind::kAffine) return Lanes::affine(wrap_sub(0, a.first), wrap_sub(0, a.step));
    each(mask, [&](int l) { out.ints[l] = int_unary(op, from, a.int_at(l)); });
    return Lanes::int_vector(out.ints);
  }
  if (to == DType::kBool) {
    if (a.is_uniform()) return Lanes::uniform_int(float_test(op, a.real_value));
    each(mask, [&](int l) { out.ints[l] = float_test(op, a.reals[l]); });
    return Lanes::int_vector(out.ints);
  }
  if (a.is_uniform()) return Lanes::uniform_real(round_to(to, float_unary(op, a.real_value)));
  each(mask, [&](int l) { out.reals[l] = round_to(to, float_unary(op, a.reals[l])); });
  return Lanes::real_vector(out.reals);
}

Lanes lanes_binary(BinaryOp op, DType dtype, const Lanes& a, const Lanes& b, const LaneMask& mask, LaneStorage out) {
  if (!is_float(dtype)) return int_binary_lanes(op, dtype, a, b, mask, out.ints);
  const bool uniform = a.is_uniform() && b.is_uniform();
  if (is_comparison(op)) {
    if (uniform) return Lanes::uniform_int(float_compare(op, a.real_value, b.real_value));
    each(mask, [&](int l) { out.ints[l] = float_compare(op, a.real_at(l), b.real_at(l)); });
    return Lanes::int_vector(out.ints);
  }
  if (uniform) return Lanes::uniform_real(round_to(dtype, float_binary(op, a.real_value, b.real_value)));
  real_arithmetic(op, dtype, a, b, mask, out.reals);
  return Lanes::real_vector(out.reals);
}

Lanes lanes_fma(DType dtype, const Lanes& a, const Lanes& b, const Lanes& c, const LaneMask& mask, LaneStorage out) {
  const auto at = [&](int l) { return round_to(dtype, std::fma(a.real_at(l), b.real_at(l), c.real_at(l))); };
  if (a.is_uniform() && b.is_uniform() && c.is_uniform()) return Lanes::uniform_real(at(mask.begin));
  each(mask, [&](int l) { out.reals[l] = at(l); });
  return Lanes::real_vector(out.reals);
}

Lanes lanes_cast(DType from, DType to, const Lanes& a, const LaneMask& mask, LaneStorage out) {
  if (is_float(to)) {
    const auto at = [&](int l) { return a.real ? round_to(to, a.real_at(l)) : int_to_float(from, to, a.int_at(l)); };
    if (a.is_uniform()) return Lanes::uniform_real(at(mask.begin));
    each(mask, [&](int l) { out.reals[l] = at(l); });
    return Lanes::real_vector(out.reals);
  }
  const auto at = [&](int l) { return a.real ? float_to_int(to, a.real_at(l)) : canonical_int(to, a.int_at(l)); };
  if (a.is_uniform()) return Lanes::uniform_int(at(mask.begin));
  each(mask, [&](int l) { out.ints[l] = at(l); });
  return Lanes::int_vector(out.ints);
}

namespace {

template <typename Stored, typename Out>
void read_lanes(const Stored* data, int64_t base, int64_t step, const int64_t* at, const LaneMask& mask, Out* out) {
  if (at) {
    each(mask, [=](int l) { out[l] = static_cast<Out>(data[at[l]]); });
  } else if (step == 1) {
    each(mask, [=](int l) { out[l] = static_cast<Out>(data[base + l]); });
  } else {
    each(mask, [=](int l) { out[l] = static_cast<Out>(data[base + step * l]); });
  }
}

}  // namespace

Lanes lanes_load(DType dtype, const std::byte* data, int64_t base, int64_t step, const int64_t* at,
                 const LaneMask& mask, LaneStorage out) {
  const bool real = is_float(dtype);
  if (!at && step == 0)
    return real ? Lanes::uniform_real(read_float(dtype, data, base)) : Lanes::uniform_int(read_int(dtype, data, base));
  const auto native = [&](auto* typed, auto* result) { read_lanes(typed, base, step, at, mask, result); };
  switch (dtype) {
    case DType::kF32: native(reinterpret_cast<const float*>(data), out.reals); break;
    case DType::kF64: native(reinterpret_cast<const double*>(data), out.reals); break;
    case DType::kF16:
    case DType::kBF16:
      each(mask, [&](int l) {
        out.reals[l] = read_16(dtype, reinterpret_cast<const uint16_t*>(data)[at ? at[l] : base + step * l]);
      });
      break;
    case DType::kI64: native(reinterpret_cast<const int64_t*>(data), out.ints); break;
    case DType::kI32: native(reinterpret_cast<const int32_t*>(data), out.ints); break;
    case DType::kI8: native(reinterpret_cast<const int8_t*>(data), out.ints); break;
    case DType::kU8:
    case DType::kBool: native(reinterpret_cast<const uint8_t*>(data), out.ints); break;
    default:
      each(mask, [&](int l) {
        const int64_t index = at ? at[l] : base + step * l;
        if (real) {
          out.reals[l] = read_float(dtype, data, index);
        } else {
          out.ints[l] = read_int(dtype, data, index);
        }
      });
  }
  return real ? Lanes::real_vector(out.reals) : Lanes::int_vector(out.ints);
}

namespace {

template <typename T>
void store(bool uniform, T value, const T* values, const LaneMask& mask, T* out) {
  if (uniform) {
    each(mask, [=](int l) { out[l] = value; });
  } else {
    each(mask, [=](int l) { out[l] = values[l]; });
  }
}

}  // namespace

void lanes_store(const Lanes& a, const LaneMask& mask, LaneStorage out) {
  if (a.real) {
    store(a.is_uniform(), a.real_value, a.reals, mask, out.reals);
  } else if (a.kind == Kind::kUniform || a.kind == Kind::kVector) {
    store(a.is_uniform(), a.first, a.ints, mask, out.ints);
  } else {
    each(mask, [&](int l) { out.ints[l] = a.int_at(l); });
  }
}

}  // namespace tessera::inline interp
