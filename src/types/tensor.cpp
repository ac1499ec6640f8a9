#include "types/tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/error.h"
#include "support/hash.h"

namespace tessera::inline types {
namespace {

// Shape of a small float format: sign bit (if any), exponent and mantissa widths, and what its top codes mean.
struct FloatFormat {
  int exponent_bits, mantissa_bits, bias;
  bool has_sign;
  bool has_infinity;     // IEEE-like: top exponent is infinity and NaN
  bool nan_is_neg_zero;  // fnuz: the only NaN is the code of -0
  bool has_nan;
};

FloatFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {5, 10, 15, true, true, false, true};
    case DType::kBF16: return {8, 7, 127, true, true, false, true};
    case DType::kF8E4M3FN: return {4, 3, 7, true, false, false, true};
    case DType::kF8E4M3FNUZ: return {4, 3, 8, true, false, true, true};
    case DType::kF8E5M2: return {5, 2, 15, true, true, false, true};
    case DType::kF8E5M2FNUZ: return {5, 2, 16, true, false, true, true};
    case DType::kF4E2M1: return {2, 1, 1, true, false, false, false};
    default: break;
  }
  throw InternalError("not a small float format");
}

// 2^exponent for exponents of normal doubles.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

// Towards zero; what Integer has not becomes the end of its range, and NaN 0.
template <typename Integer>
Integer saturated(double value) {
  using Limits = std::numeric_limits<Integer>;
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();  // 2^63 or 2^64: max itself is no double
  return static_cast<Integer>(value);
}

uint64_t low_mask(int bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }

}  // namespace

double decode_float(DType dtype, uint32_t bits) {
  if (dtype == DType::kF8E8M0) return bits == 0xff ? std::nan("") : std::ldexp(1.0, static_cast<int>(bits) - 127);
  const FloatFormat f = format_of(dtype);
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const uint32_t mantissa = bits & low_mask(f.mantissa_bits);
  const uint32_t exponent = (bits >> f.mantissa_bits) & low_mask(f.exponent_bits);
  const bool negative = (bits >> (width - 1)) & 1;
  const uint32_t top = static_cast<uint32_t>(low_mask(f.exponent_bits));
  if (f.nan_is_neg_zero && bits == (1u << (width - 1))) return std::nan("");
  if (f.has_infinity && exponent == top) {
    if (mantissa) return std::nan("");
    return negative ? -INFINITY : INFINITY;
  }
  if (f.has_nan && !f.has_infinity && !f.nan_is_neg_zero && exponent == top && mantissa == low_mask(f.mantissa_bits))
    return std::nan("");
  double value = exponent == 0 ? std::ldexp(static_cast<double>(mantissa), 1 - f.bias - f.mantissa_bits)
                               : static_cast<double>(mantissa | (1u << f.mantissa_bits)) *
                                     power_of_two(static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  return negative ? -value : value;
}

uint32_t encode_float(DType dtype, double value) {
  if (dtype == DType::kF8E8M0) {  // powers of two only; rounds up, as ONNX's default does
    if (!(value > 0)) return std::isnan(value) ? 0xff : 0;
    if (std::isinf(value)) return 254;
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    const int code = (fraction == 0.5 ? exponent - 1 : exponent) + 127;
    return static_cast<uint32_t>(code < 0 ? 0 : code > 254 ? 254 : code);
  }
  const FloatFormat f = format_of(dtype);
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const uint32_t sign_bit = 1u << (width - 1);
  const uint32_t top = static_cast<uint32_t>(low_mask(f.exponent_bits)) << f.mantissa_bits;
  const bool negative = std::signbit(value);
  uint32_t nan_code = f.nan_is_neg_zero ? sign_bit
                      : f.has_infinity  ? top | (1u << (f.mantissa_bits - 1))
                                        : top | static_cast<uint32_t>(low_mask(f.mantissa_bits));
  if (std::isnan(value)) return f.has_nan ? nan_code : 0;
  const double magnitude = std::fabs(value);
  // The largest finite code.
  uint32_t max_code = f.has_infinity ? top - 1 : top | static_cast<uint32_t>(low_mask(f.mantissa_bits));
  if (f.has_nan && !f.has_infinity && !f.nan_is_neg_zero) max_code -= 1;
  uint32_t code;
  if (std::isinf(magnitude)) {
    code = f.has_infinity ? top : max_code + 1;
  } else {
    const int exponent = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;  // of a normal double
    const int e = exponent + f.bias < 1 ? 1 : exponent + f.bias;
    const double scaled = magnitude * power_of_two(f.bias + f.mantissa_bits - e);
    constexpr double kShift = 4503599627370496.0;  // 2^52: adding it leaves no digits behind the point
    const auto rounded = static_cast<uint64_t>(scaled + kShift - kShift);
    // Adding lets a carry out of the mantissa raise the exponent.
    const uint64_t wide = (static_cast<uint64_t>(e - 1) << f.mantissa_bits) + rounded;
    code = wide > max_code ? max_code + 1 : static_cast<uint32_t>(wide);
  }
  if (code > max_code) {  // overflow: infinity where there is one, else NaN (ONNX saturates only on request)
    if (f.has_infinity) code = top;
    else if (f.has_nan) return f.nan_is_neg_zero ? nan_code : nan_code | (negative ? sign_bit : 0);
    else code = max_code;
  }
  if (code == 0 && f.nan_is_neg_zero) return 0;
  return code | (negative ? sign_bit : 0);
}

Tensor::Tensor(DType dtype, std::vector<int64_t> dims) : dtype_(dtype), dims_(std::move(dims)) {
  const auto size = static_cast<size_t>(num_bytes());
  auto storage = std::shared_ptr<std::byte[]>(new std::byte[size ? size : 1]());
  mutable_data_ = storage.get();
  data_ = storage.get();
  owner_ = std::move(storage);
}

Tensor::Tensor(DType dtype, std::vector<int64_t> dims, std::shared_ptr<const void> owner, const void* data)
    : dtype_(dtype), dims_(std::move(dims)), owner_(std::move(owner)), data_(static_cast<const std::byte*>(data)) {}

int64_t Tensor::num_elements() const {
  int64_t count = 1;
  for (int64_t dim : dims_) count *= dim;
  return count;
}

double Tensor::get_double(int64_t index) const {
  switch (dtype_) {
    case DType::kF64: {
      double v;
      std::memcpy(&v, data_ + index * 8, 8);
      return v;
    }
    case DType::kF32: {
      float v;
      std::memcpy(&v, data_ + index * 4, 4);
      return v;
    }
    case DType::kF16:
    case DType::kBF16: {
      uint16_t v;
      std::memcpy(&v, data_ + index * 2, 2);
      return decode_float(dtype_, v);
    }
    case DType::kF4E2M1: {
      const auto byte = std::to_integer<uint32_t>(data_[index / 2]);
      return decode_float(dtype_, (byte >> (4 * (index % 2))) & 15);
    }
    case DType::kU64: return static_cast<double>(static_cast<uint64_t>(get_int(index)));
    default: break;
  }
  if (is_float(dtype_)) return decode_float(dtype_, std::to_integer<uint32_t>(data_[index]));
  return static_cast<double>(get_int(index));
}

int64_t Tensor::get_int(int64_t index) const {
  if (is_float(dtype_)) return static_cast<int64_t>(get_double(index));
  const int bits = dtype_bits(dtype_);
  check(bits != 0, "get_int on a string tensor");
  if (bits < 8) {
    const int per_byte = 8 / bits;
    const auto byte = std::to_integer<uint32_t>(data_[index / per_byte]);
    const auto raw = static_cast<int64_t>((byte >> (bits * (index % per_byte))) & low_mask(bits));
    return is_signed_int(dtype_) && (raw >> (bits - 1)) ? raw - (1 << bits) : raw;
  }
  uint64_t raw = 0;
  std::memcpy(&raw, data_ + index * (bits / 8), static_cast<size_t>(bits / 8));
  if (is_signed_int(dtype_) && bits < 64 && (raw >> (bits - 1))) raw |= ~low_mask(bits);
  return static_cast<int64_t>(raw);
}

void Tensor::set_double(int64_t index, double value) {
  switch (dtype_) {
    case DType::kF64: std::memcpy(mutable_data_ + index * 8, &value, 8); return;
    case DType::kF32: {
      const auto v = static_cast<float>(value);
      std::memcpy(mutable_data_ + index * 4, &v, 4);
      return;
    }
    case DType::kF16:
    case DType::kBF16: {
      const auto v = static_cast<uint16_t>(encode_float(dtype_, value));
      std::memcpy(mutable_data_ + index * 2, &v, 2);
      return;
    }
    default: break;
  }
  if (!is_float(dtype_)) {
    return set_int(index, dtype_ == DType::kU64 && value > 0 ? static_cast<int64_t>(saturated<uint64_t>(value))
                                                             : saturated<int64_t>(value));
  }
  const uint32_t code = encode_float(dtype_, value);
  if (dtype_ == DType::kF4E2M1) {
    auto byte = std::to_integer<uint32_t>(mutable_data_[index / 2]);
    const int shift = 4 * static_cast<int>(index % 2);
    byte = (byte & ~(15u << shift)) | (code << shift);
    mutable_data_[index / 2] = static_cast<std::byte>(byte);
    return;
  }
  mutable_data_[index] = static_cast<std::byte>(code);
}

void Tensor::set_int(int64_t index, int64_t value) {
  if (is_float(dtype_)) return set_double(index, static_cast<double>(value));
  const int bits = dtype_bits(dtype_);
  check(bits != 0, "set_int on a string tensor");
  if (dtype_ == DType::kBool) value = value != 0;
  if (bits < 8) {
    const int per_byte = 8 / bits;
    const int shift = bits * static_cast<int>(index % per_byte);
    auto byte = std::to_integer<uint32_t>(mutable_data_[index / per_byte]);
    byte = (byte & ~(static_cast<uint32_t>(low_mask(bits)) << shift)) |
           (static_cast<uint32_t>(static_cast<uint64_t>(value) & low_mask(bits)) << shift);
    mutable_data_[index / per_byte] = static_cast<std::byte>(byte);
    return;
  }
  std::memcpy(mutable_data_ + index * (bits / 8), &value, static_cast<size_t>(bits / 8));
}

Tensor Tensor::without_data(DType dtype, std::vector<int64_t> dims, uint64_t content_hash) {
  Tensor tensor(dtype, std::move(dims), nullptr, nullptr);
  tensor.elided_hash_ = content_hash;
  return tensor;
}

Tensor Tensor::of_strings(std::vector<std::string> texts, std::vector<int64_t> dims) {
  Tensor tensor(DType::kString, std::move(dims));
  check(static_cast<int64_t>(texts.size()) == tensor.num_elements(), "as many strings as elements");
  tensor.strings_ = std::make_shared<const std::vector<std::string>>(std::move(texts));
  return tensor;
}

const std::vector<std::string>& Tensor::strings() const {
  static const std::vector<std::string> kNone;
  return strings_ ? *strings_ : kNone;
}

Tensor Tensor::with_dims(std::vector<int64_t> dims) const {
  Tensor other = *this;
  other.mutable_data_ = nullptr;
  other.dims_ = std::move(dims);
  check(other.num_elements() == num_elements(), "as many elements in another shape");
  return other;
}

uint64_t Tensor::content_hash() const {
  if (!has_data()) return elided_hash_;
  Hasher hasher;
  hasher.add(static_cast<uint64_t>(dtype_));
  for (const int64_t dim : dims_) hasher.add(static_cast<uint64_t>(dim));
  hasher.add_bytes(data_, static_cast<size_t>(num_bytes()));
  for (const std::string& text : strings()) hasher.add(text);
  return hasher.value();
}

Tensor Tensor::scalar_f32(float value) {
  Tensor tensor(DType::kF32, {});
  tensor.set_double(0, value);
  return tensor;
}

Tensor Tensor::from_ints(std::vector<int64_t> values) {
  Tensor tensor(DType::kI64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.set_int(static_cast<int64_t>(i), values[i]);
  return tensor;
}

}  // namespace tessera::inline types
