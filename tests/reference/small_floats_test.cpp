// The small float formats: every code, and rounding between every two neighbours.
#include <cmath>
#include <map>

#include "reference_util.h"

namespace tessera {
namespace {

struct Format {
  DType dtype;
  int bits, exponent_bits, mantissa_bits, bias;
  bool has_infinity, unsigned_zero;  // unsigned_zero: the code of -0 is the NaN
  double largest;
};

const Format kFormats[] = {
    {DType::kF16, 16, 5, 10, 15, true, false, 65504},  {DType::kBF16, 16, 8, 7, 127, true, false, 0x1.FEp127},
    {DType::kF8E4M3FN, 8, 4, 3, 7, false, false, 448}, {DType::kF8E4M3FNUZ, 8, 4, 3, 8, false, true, 240},
    {DType::kF8E5M2, 8, 5, 2, 15, true, false, 57344}, {DType::kF8E5M2FNUZ, 8, 5, 2, 16, false, true, 57344},
    {DType::kF4E2M1, 4, 2, 1, 1, false, false, 6},
};

TEST(SmallFloats, EveryCodeDecodesByTheFormatsFormula) {
  for (const Format& f : kFormats) {
    double largest = 0;
    for (uint32_t code = 0; code < 1u << f.bits; ++code) {
      const double value = decode_float(f.dtype, code);
      if (std::isnan(value) || std::isinf(value)) continue;
      const auto mantissa = static_cast<int>(code & ((1u << f.mantissa_bits) - 1));
      const auto exponent = static_cast<int>(code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
      const double magnitude = exponent == 0
                                   ? std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits)
                                   : std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
      const bool negative = code >> (f.bits - 1);
      ASSERT_EQ(value, negative ? -magnitude : magnitude) << dtype_name(f.dtype) << " " << code;
      ASSERT_EQ(std::signbit(value), negative);
      ASSERT_EQ(encode_float(f.dtype, value), code) << dtype_name(f.dtype);
      largest = std::max(largest, value);
    }
    EXPECT_EQ(largest, f.largest) << dtype_name(f.dtype);
    EXPECT_EQ(std::isinf(decode_float(f.dtype, encode_float(f.dtype, INFINITY))), f.has_infinity)
        << dtype_name(f.dtype);
    EXPECT_EQ(std::signbit(decode_float(f.dtype, encode_float(f.dtype, -0.0))), !f.unsigned_zero)
        << dtype_name(f.dtype);
  }
}

TEST(SmallFloats, NumbersBetweenTwoCodesRoundToTheNearerOrTheEvenOne) {
  for (const Format& f : kFormats) {
    std::map<double, uint32_t> codes;  // of the values from 0 on
    for (uint32_t code = 0; code < 1u << (f.bits - 1); ++code)
      if (const double value = decode_float(f.dtype, code); std::isfinite(value)) codes.emplace(value, code);
    for (auto low = codes.begin(), high = std::next(low); high != codes.end(); ++low, ++high) {
      const double middle = (low->first + high->first) / 2;
      const uint32_t even = low->second % 2 == 0 ? low->second : high->second;
      ASSERT_EQ(encode_float(f.dtype, middle), even) << dtype_name(f.dtype) << " " << middle;
      ASSERT_EQ(encode_float(f.dtype, std::nextafter(middle, 0)), low->second) << dtype_name(f.dtype) << " " << middle;
      ASSERT_EQ(encode_float(f.dtype, std::nextafter(middle, INFINITY)), high->second) << dtype_name(f.dtype);
    }
    // Doubles far below the smallest code, and the smallest of all.
    EXPECT_EQ(encode_float(f.dtype, 1e-300), 0u) << dtype_name(f.dtype);
    EXPECT_EQ(encode_float(f.dtype, 5e-324), 0u) << dtype_name(f.dtype);
  }
}

TEST(SmallFloats, NumbersBeyondTheLargestOverflow) {
  EXPECT_EQ(decode_float(DType::kF16, encode_float(DType::kF16, 65519.999)), 65504);
  EXPECT_TRUE(std::isinf(decode_float(DType::kF16, encode_float(DType::kF16, 65520))));
  EXPECT_TRUE(std::isinf(decode_float(DType::kBF16, encode_float(DType::kBF16, 1e300))));
  EXPECT_TRUE(std::isnan(decode_float(DType::kF8E4M3FN, encode_float(DType::kF8E4M3FN, 1e300))));
  EXPECT_EQ(decode_float(DType::kF4E2M1, encode_float(DType::kF4E2M1, 1e300)), 6);
  for (const double large : {1e300, static_cast<double>(INFINITY)})  // saturates, as ONNX's default does
    EXPECT_EQ(decode_float(DType::kF8E8M0, encode_float(DType::kF8E8M0, large)), 0x1p127);
}

}  // namespace
}  // namespace tessera
