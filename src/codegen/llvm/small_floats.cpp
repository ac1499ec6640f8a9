// Floats of 8 bits and fewer, held as f32 in registers and as a code in the low bits of a byte in memory. What the
// codes mean and how values round to them is decode_float and encode_float of types/tensor.cpp; this is the same on
// vectors.
#include <bit>
#include <cmath>

#include "codegen/llvm/ops.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

namespace {

struct SmallFormat {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;
  bool nan_is_neg_zero;  // then the code of -0 is the only NaN
  bool has_nan;

  uint32_t magnitude_mask() const { return (1u << (exponent_bits + mantissa_bits)) - 1; }
  uint32_t sign() const { return magnitude_mask() + 1; }
  uint32_t top() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }  // the highest exponent's first code
  uint32_t nan() const {
    return nan_is_neg_zero ? sign() : has_infinity ? top() | (1u << (mantissa_bits - 1)) : magnitude_mask();
  }
  uint32_t largest() const {
    return has_infinity ? top() - 1 : has_nan && !nan_is_neg_zero ? magnitude_mask() - 1 : magnitude_mask();
  }
};

SmallFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN: return {4, 3, 7, false, false, true};
    case DType::kF8E4M3FNUZ: return {4, 3, 8, false, true, true};
    case DType::kF8E5M2: return {5, 2, 15, true, false, true};
    case DType::kF8E5M2FNUZ: return {5, 2, 16, false, true, true};
    case DType::kF4E2M1: return {2, 1, 1, false, false, false};
    default: break;
  }
  throw InternalError("not a float of 8 bits or fewer with a sign");
}

}  // namespace

Value* Ops::code8_to_f32(DType dtype, Value* code) {
  llvm::Type* f32 = like(code, b_.getFloatTy());
  Value* wide = b_.CreateZExt(code, like(code, b_.getInt32Ty()));
  const auto bits = [&](uint32_t value) { return bits32(value, wide); };
  if (dtype == DType::kF8E8M0) {  // powers of two from 2^-127, which is below the normal numbers of f32
    Value* result = b_.CreateSelect(b_.CreateICmpEQ(wide, bits(0)), bits(0x400000), b_.CreateShl(wide, 23));
    result = b_.CreateSelect(b_.CreateICmpEQ(wide, bits(255)), bits(0x7fc00000), result);
    return b_.CreateBitCast(result, f32);
  }
  const SmallFormat f = format_of(dtype);
  Value* magnitude = b_.CreateAnd(wide, bits(f.magnitude_mask()));
  Value* sign = b_.CreateShl(b_.CreateAnd(wide, bits(f.sign())), 31 - f.exponent_bits - f.mantissa_bits);
  Value* shifted = b_.CreateShl(magnitude, static_cast<uint64_t>(23 - f.mantissa_bits));
  Value* normal = b_.CreateAdd(shifted, bits(static_cast<uint32_t>(127 - f.bias) << 23));
  // Below the normal numbers the code counts multiples of the smallest one.
  const double smallest = std::ldexp(1.0, 1 - f.bias - f.mantissa_bits);
  Value* subnormal = b_.CreateBitCast(
      b_.CreateFMul(b_.CreateSIToFP(magnitude, f32), llvm::ConstantFP::get(f32, smallest)), wide->getType());
  Value* result = b_.CreateSelect(b_.CreateICmpULT(magnitude, bits(1u << f.mantissa_bits)), subnormal, normal);
  if (f.has_infinity)
    result =
        b_.CreateSelect(b_.CreateICmpUGE(magnitude, bits(f.top())), b_.CreateOr(shifted, bits(0x7f800000)), result);
  else if (f.has_nan && !f.nan_is_neg_zero)
    result = b_.CreateSelect(b_.CreateICmpEQ(magnitude, bits(f.nan())), bits(0x7fc00000), result);
  result = b_.CreateOr(result, sign);
  if (f.nan_is_neg_zero) result = b_.CreateSelect(b_.CreateICmpEQ(wide, bits(f.nan())), bits(0x7fc00000), result);
  return b_.CreateBitCast(result, f32);
}

Value* Ops::f32_to_code8(DType dtype, Value* f32) {
  llvm::Type* i32 = like(f32, b_.getInt32Ty());
  llvm::Type* i8 = like(f32, b_.getInt8Ty());
  Value* given = b_.CreateBitCast(f32, i32);
  const auto bits = [&](uint32_t value) { return bits32(value, given); };
  Value* is_nan = b_.CreateFCmpUNO(f32, f32);
  if (dtype ==
      DType::kF8E8M0) {  // up to the next power of two, at most the largest; what is not above 0 is the smallest
    Value* code = b_.CreateLShr(b_.CreateAdd(given, bits(0x7fffff)), 23);
    code = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, code, bits(254));
    code = b_.CreateSelect(b_.CreateICmpSLE(given, bits(0x400000)), bits(0), code);
    return b_.CreateTrunc(b_.CreateSelect(is_nan, bits(255), code), i8);
  }
  const SmallFormat f = format_of(dtype);
  const auto cut = static_cast<uint64_t>(23 - f.mantissa_bits);
  Value* sign = b_.CreateAnd(b_.CreateLShr(given, 31 - f.exponent_bits - f.mantissa_bits), bits(f.sign()));
  Value* magnitude = b_.CreateAnd(given, bits(0x7fffffff));
  Value* rebased = b_.CreateSub(magnitude, bits(static_cast<uint32_t>(127 - f.bias) << 23));
  Value* odd = b_.CreateAnd(b_.CreateLShr(rebased, cut), bits(1));
  Value* normal = b_.CreateLShr(b_.CreateAdd(rebased, b_.CreateAdd(odd, bits((1u << (cut - 1)) - 1))), cut);
  // Below the normal numbers: adding the f32 whose last bit is worth the smallest number rounds to multiples of it.
  const float anchor = std::ldexp(1.0f, 23 + 1 - f.bias - f.mantissa_bits);
  Value* sum = b_.CreateFAdd(b_.CreateBitCast(magnitude, f32->getType()),
                             llvm::ConstantFP::get(f32->getType(), static_cast<double>(anchor)));
  Value* subnormal = b_.CreateSub(b_.CreateBitCast(sum, i32), bits(std::bit_cast<uint32_t>(anchor)));
  const uint32_t smallest_normal = static_cast<uint32_t>(1 - f.bias + 127) << 23;
  Value* code = b_.CreateSelect(b_.CreateICmpULT(magnitude, bits(smallest_normal)), subnormal, normal);
  // Too large: infinity where there is one, else NaN where there is one, else the largest number.
  const uint32_t overflow = f.has_infinity ? f.top() : f.has_nan ? f.nan() : f.largest();
  Value* too_large = b_.CreateICmpUGT(code, bits(f.largest()));
  code = b_.CreateSelect(too_large, bits(overflow), code);
  Value* is_unsigned = f.nan_is_neg_zero ? b_.CreateOr(too_large, b_.CreateICmpEQ(code, bits(0))) : nullptr;
  sign = is_unsigned ? b_.CreateSelect(is_unsigned, bits(0), sign) : sign;
  code = b_.CreateSelect(is_nan, bits(f.has_nan ? f.nan() : 0), b_.CreateOr(code, sign));
  return b_.CreateTrunc(code, i8);
}

}  // namespace tessera::inline llvm_codegen
