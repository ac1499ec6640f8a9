#include "codegen/llvm/ops.h"

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <cmath>

#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

namespace {

bool is_small(DType dtype) { return is_float(dtype) && dtype_bits(dtype) <= 8; }
bool is_narrow(DType dtype) { return is_float(dtype) && dtype_bits(dtype) <= 16; }  // computed in f32 and rounded
bool is_part_of_byte(DType dtype) { return is_int(dtype) && dtype_bits(dtype) < 8; }

}  // namespace

Type* Ops::value_type(DType dtype, int lanes) const {
  check(dtype != DType::kString, "code for strings");
  Type* t = nullptr;
  if (dtype == DType::kF64) t = b_.getDoubleTy();
  else if (is_float(dtype)) t = b_.getFloatTy();
  else t = b_.getIntNTy(dtype == DType::kBool ? 1 : static_cast<unsigned>(dtype_bits(dtype)));
  return lanes == 1 ? t : llvm::FixedVectorType::get(t, static_cast<unsigned>(lanes));
}

Type* Ops::storage_type(DType dtype, int lanes) const {
  Type* t = nullptr;
  if (is_small(dtype) || is_part_of_byte(dtype) || dtype == DType::kBool) t = b_.getInt8Ty();
  else if (is_narrow(dtype)) t = b_.getInt16Ty();
  else return value_type(dtype, lanes);
  return lanes == 1 ? t : llvm::FixedVectorType::get(t, static_cast<unsigned>(lanes));
}

Value* Ops::to_storage(DType dtype, Value* value) {
  if (is_small(dtype)) return f32_to_code8(dtype, value);
  if (is_narrow(dtype)) return f32_to_bits16(dtype, value);
  if (dtype == DType::kBool || is_part_of_byte(dtype)) return b_.CreateZExt(value, like(value, b_.getInt8Ty()));
  return value;
}

Value* Ops::from_storage(DType dtype, Value* stored) {
  if (is_small(dtype)) return code8_to_f32(dtype, stored);
  if (is_narrow(dtype)) return bits16_to_f32(dtype, stored);
  if (is_part_of_byte(dtype)) return b_.CreateTrunc(stored, like(stored, value_type(dtype)));
  if (dtype == DType::kBool) return b_.CreateICmpNE(stored, llvm::Constant::getNullValue(stored->getType()));
  return stored;
}

Value* Ops::constant(const ExprNode& node) const {
  Type* t = value_type(node.dtype);
  if (is_float(node.dtype)) return llvm::ConstantFP::get(t, node.float_value);
  return llvm::ConstantInt::get(t, static_cast<uint64_t>(node.int_value), /*isSigned=*/false);
}

int Ops::lanes_of(const Value* v) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return vector ? static_cast<int>(vector->getNumElements()) : 1;
}

Value* Ops::splat(Value* v, int lanes) {
  if (lanes == 1 || lanes_of(v) == lanes) return v;
  check(lanes_of(v) == 1, "splat of a vector of another width");
  return b_.CreateVectorSplat(static_cast<unsigned>(lanes), v);
}

void Ops::widen(Value*& a, Value*& b) {
  const int lanes = std::max(lanes_of(a), lanes_of(b));
  a = splat(a, lanes);
  b = splat(b, lanes);
}

Type* Ops::like(const Value* shape, Type* element) const {
  const int lanes = lanes_of(shape);
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

Value* Ops::bits32(uint32_t value, const Value* shape) const {
  return llvm::ConstantInt::get(like(shape, b_.getInt32Ty()), value);
}

// ---- 16-bit floats -------------------------------------------------------------------------------------------------

Value* Ops::bits16_to_f32(DType dtype, Value* bits) {
  Type* i32 = like(bits, b_.getInt32Ty());
  Type* f32 = like(bits, b_.getFloatTy());
  if (dtype == DType::kBF16) return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(bits, i32), 16), f32);
  if (target_.has("f16c") || target_.has("avx512f") || target_.triple.starts_with("aarch64"))
    return b_.CreateFPExt(b_.CreateBitCast(bits, like(bits, b_.getHalfTy())), f32);
  // Integer arithmetic: exponents are rebased by 112; subnormals are whole multiples of 2^-24.
  Value* wide = b_.CreateZExt(bits, i32);
  Value* sign = b_.CreateShl(b_.CreateAnd(wide, bits32(0x8000, wide)), 16);
  Value* magnitude = b_.CreateAnd(wide, bits32(0x7fff, wide));
  Value* shifted = b_.CreateShl(magnitude, 13);
  Value* normal = b_.CreateAdd(shifted, bits32(112u << 23, wide));
  Value* special = b_.CreateOr(shifted, bits32(0x7f800000, wide));
  Value* subnormal =
      b_.CreateBitCast(b_.CreateFMul(b_.CreateSIToFP(magnitude, f32), llvm::ConstantFP::get(f32, 0x1p-24)), i32);
  Value* result = b_.CreateSelect(b_.CreateICmpULT(magnitude, bits32(0x400, wide)), subnormal, normal);
  result = b_.CreateSelect(b_.CreateICmpUGE(magnitude, bits32(0x7c00, wide)), special, result);
  return b_.CreateBitCast(b_.CreateOr(result, sign), f32);
}

Value* Ops::f32_to_bits16(DType dtype, Value* f32) {
  Type* i32 = like(f32, b_.getInt32Ty());
  Type* i16 = like(f32, b_.getInt16Ty());
  Value* bits = b_.CreateBitCast(f32, i32);
  if (dtype == DType::kBF16) {
    const auto nearest_even = [&] {
      Value* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), bits32(1, bits));
      Value* rounded = b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(odd, bits32(0x7fff, bits))), 16);
      Value* quiet = b_.CreateOr(b_.CreateLShr(bits, 16), bits32(0x40, bits));
      return b_.CreateTrunc(b_.CreateSelect(b_.CreateFCmpUNO(f32, f32), quiet, rounded), i16);
    };
    const bool has_instruction = target_.has("avx512bf16") && target_.has("avx512dq") && lanes_of(f32) == 16;
    return has_instruction ? bf16_of_vector(f32, nearest_even) : nearest_even();
  }
  if (target_.has("f16c") || target_.has("avx512f") || target_.triple.starts_with("aarch64"))
    return b_.CreateBitCast(b_.CreateFPTrunc(f32, like(f32, b_.getHalfTy())), i16);
  Value* sign = b_.CreateLShr(b_.CreateAnd(bits, bits32(0x80000000u, bits)), 16);
  Value* magnitude = b_.CreateAnd(bits, bits32(0x7fffffff, bits));
  Value* rebased = b_.CreateSub(magnitude, bits32(112u << 23, bits));
  Value* odd = b_.CreateAnd(b_.CreateLShr(rebased, 13), bits32(1, bits));
  Value* normal = b_.CreateLShr(b_.CreateAdd(rebased, b_.CreateAdd(odd, bits32(0xfff, bits))), 13);
  normal = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, normal, bits32(0x7c00, bits));
  // Below 2^-14 the result counts multiples of 2^-24, which is the spacing of floats just above one half.
  Value* half = llvm::ConstantFP::get(f32->getType(), 0.5);
  Value* subnormal =
      b_.CreateSub(b_.CreateBitCast(b_.CreateFAdd(b_.CreateBitCast(magnitude, f32->getType()), half), i32),
                   bits32(0x3f000000, bits));
  Value* result = b_.CreateSelect(b_.CreateICmpULT(magnitude, bits32(0x38800000, bits)), subnormal, normal);
  result = b_.CreateSelect(b_.CreateFCmpUNO(f32, f32), bits32(0x7e00, bits), result);
  return b_.CreateTrunc(b_.CreateOr(result, sign), i16);
}

// By avx512bf16's instruction, which flushes denormals: vectors that have some, which hardly ever happens, go another
// way.
Value* Ops::bf16_of_vector(Value* f32, const std::function<Value*()>& with_denormals) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* rare = llvm::BasicBlock::Create(b_.getContext(), "denormal", before->getParent());
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "rounded", before->getParent());
  Type* i16 = like(f32, b_.getInt16Ty());
  constexpr uint32_t kDenormal = 0x20;
  Value* classes = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_fpclass_ps_512, {}, {f32, b_.getInt32(kDenormal)});
  Value* some = b_.CreateIsNotNull(b_.CreateBitCast(classes, b_.getInt16Ty()));
  Value* fast = b_.CreateBitCast(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {f32}), i16);
  llvm::MDBuilder weights(b_.getContext());
  b_.CreateCondBr(some, rare, after, weights.createBranchWeights(1, 1000));
  b_.SetInsertPoint(rare);
  Value* slow = with_denormals();
  b_.CreateBr(after);
  llvm::BasicBlock* rare_end = b_.GetInsertBlock();
  b_.SetInsertPoint(after);
  llvm::PHINode* result = b_.CreatePHI(i16, 2);
  result->addIncoming(fast, before);
  result->addIncoming(slow, rare_end);
  return result;
}

Value* Ops::round_to_narrow(DType dtype, Value* f32) { return from_storage(dtype, to_storage(dtype, f32)); }

// Rounds so that a second rounding to a narrower type gives what a single one would: truncates, and makes the last
// bit odd when something was cut off.
Value* Ops::f64_to_f32_odd(Value* f64) {
  Type* f32 = like(f64, b_.getFloatTy());
  Type* i32 = like(f64, b_.getInt32Ty());
  Value* nearest = b_.CreateFPTrunc(f64, f32);
  Value* back = b_.CreateFPExt(nearest, f64->getType());
  Value* too_big = b_.CreateFCmpOGT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                    b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, f64));
  Value* inexact = b_.CreateFCmpONE(back, f64);
  Value* bits = b_.CreateBitCast(nearest, i32);
  bits = b_.CreateSub(bits, b_.CreateZExt(too_big, i32));
  bits = b_.CreateOr(bits, b_.CreateZExt(inexact, i32));
  return b_.CreateBitCast(bits, f32);
}

// ---- unary ---------------------------------------------------------------------------------------------------------

Value* Ops::round_to_integer(UnaryOp op, Value* a) {
  const bool has_instruction = !target_.triple.starts_with("x86_64") || target_.has("sse4.1");
  if (has_instruction) {
    const ID id = op == UnaryOp::kFloor   ? llvm::Intrinsic::floor
                  : op == UnaryOp::kCeil  ? llvm::Intrinsic::ceil
                  : op == UnaryOp::kRound ? llvm::Intrinsic::roundeven
                                          : llvm::Intrinsic::trunc;
    return b_.CreateUnaryIntrinsic(id, a);
  }
  // Without roundps: values from 2^23 (2^52) on are integers already; below, adding that number rounds.
  Type* t = a->getType();
  const bool is_double = t->getScalarType()->isDoubleTy();
  Value* limit = llvm::ConstantFP::get(t, is_double ? 0x1p52 : 0x1p23);
  Value* one = llvm::ConstantFP::get(t, 1.0);
  Value* magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
  Value* small = b_.CreateFCmpOLT(magnitude, limit);
  Value* even = b_.CreateFSub(b_.CreateFAdd(magnitude, limit), limit);  // of |a|, to nearest even
  Value* result = even;
  if (op != UnaryOp::kRound) {
    Value* floor =
        b_.CreateFSub(even, b_.CreateSelect(b_.CreateFCmpOGT(even, magnitude), one, llvm::Constant::getNullValue(t)));
    Value* ceil =
        b_.CreateFAdd(floor, b_.CreateSelect(b_.CreateFCmpOLT(floor, magnitude), one, llvm::Constant::getNullValue(t)));
    Value* negative = b_.CreateFCmpOLT(a, llvm::Constant::getNullValue(t));
    result = op == UnaryOp::kTrunc   ? floor
             : op == UnaryOp::kFloor ? b_.CreateSelect(negative, ceil, floor)
                                     : b_.CreateSelect(negative, floor, ceil);
  }
  result = b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, a);
  return b_.CreateSelect(small, result, a);
}

Value* Ops::unary(UnaryOp op, DType operand, DType result, Value* a) {
  Type* t = a->getType();
  const bool real = is_float(operand);
  switch (op) {
    case UnaryOp::kBitcast: {
      Value* bits = to_storage(operand, a);
      return from_storage(result, b_.CreateBitCast(bits, like(bits, storage_type(result))));
    }
    case UnaryOp::kNeg: {
      if (!real) return b_.CreateNeg(a);
      // Types without a negative zero, or without negative numbers, round what they do not have.
      const bool has_all = operand != DType::kF8E8M0 && operand != DType::kF8E4M3FNUZ && operand != DType::kF8E5M2FNUZ;
      Value* negative = b_.CreateFNeg(a);
      return has_all ? negative : round_to_narrow(operand, negative);
    }
    case UnaryOp::kAbs:
      if (real) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      return is_signed_int(operand) ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse()) : a;
    case UnaryOp::kNot: return b_.CreateNot(a);
    case UnaryOp::kSqrt: {
      Value* root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
      return is_narrow(operand) ? round_to_narrow(operand, root) : root;
    }
    case UnaryOp::kFloor:
    case UnaryOp::kCeil:
    case UnaryOp::kRound:
    case UnaryOp::kTrunc: {
      if (!real) return a;
      Value* rounded = round_to_integer(op, a);
      return is_narrow(operand) ? round_to_narrow(operand, rounded) : rounded;
    }
    case UnaryOp::kSign: {
      Value* zero = llvm::Constant::getNullValue(t);
      if (real) {
        Value* negative = b_.CreateSelect(b_.CreateFCmpOLT(a, zero), llvm::ConstantFP::get(t, -1.0), a);
        return b_.CreateSelect(b_.CreateFCmpOGT(a, zero), llvm::ConstantFP::get(t, 1.0), negative);  // NaN and 0 stay
      }
      if (operand == DType::kBool) return a;
      Value* positive = b_.CreateZExt(b_.CreateICmpNE(a, zero), t);
      if (!is_signed_int(operand)) return positive;
      return b_.CreateSelect(b_.CreateICmpSLT(a, zero), llvm::Constant::getAllOnesValue(t), positive);
    }
    case UnaryOp::kIsNan: return real ? b_.CreateFCmpUNO(a, a) : llvm::Constant::getNullValue(like(a, b_.getInt1Ty()));
    case UnaryOp::kIsInf:
      if (!real) return llvm::Constant::getNullValue(like(a, b_.getInt1Ty()));
      return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a), llvm::ConstantFP::getInfinity(t));
    default: break;
  }
  throw InternalError(std::string("code generation met ") + unary_name(op) + "; expand_math must run before");
}

// ---- binary --------------------------------------------------------------------------------------------------------

Value* Ops::select(Value* condition, Value* a, Value* b) {
  widen(a, b);
  const int lanes = lanes_of(condition);
  if (lanes > 1) {
    a = splat(a, lanes);
    b = splat(b, lanes);
  }
  return b_.CreateSelect(condition, a, b);
}

Value* Ops::fma(DType dtype, Value* a, Value* b, Value* c) {
  const int lanes = std::max({lanes_of(a), lanes_of(b), lanes_of(c)});
  a = splat(a, lanes);
  b = splat(b, lanes);
  c = splat(c, lanes);
  // Without the instruction llvm.fma would become a call. Of f64 there is none on every machine.
  const bool is_f64 = dtype == DType::kF64;
  Value* result = nullptr;
  if (is_fixed_ ? is_f64 : !target_.has_fma()) result = b_.CreateFAdd(b_.CreateFMul(a, b), c);
  else if (target_.has_fma()) result = b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
  else result = fma_by_f64(a, b, c);
  return is_narrow(dtype) ? round_to_narrow(dtype, result) : result;
}

// a * b + c of f32, rounded once, on machines without the instruction. The product is exact in f64. Their sum is
// rounded to odd: what the addition lost (Knuth's two-sum) says whether the last bit has to be set, so that rounding to
// f32 sees on which side of the middle the exact sum lies (Boldo and Melquiond, 2008).
Value* Ops::fma_by_f64(Value* a, Value* b, Value* c) {
  Type* f64 = like(a, b_.getDoubleTy());
  Type* i64 = like(a, b_.getInt64Ty());
  Value* product = b_.CreateFMul(b_.CreateFPExt(a, f64), b_.CreateFPExt(b, f64));
  Value* addend = b_.CreateFPExt(c, f64);
  Value* sum = b_.CreateFAdd(product, addend);
  Value* of_addend = b_.CreateFSub(sum, product);
  Value* lost = b_.CreateFAdd(b_.CreateFSub(product, b_.CreateFSub(sum, of_addend)), b_.CreateFSub(addend, of_addend));
  Value* inexact = b_.CreateFCmpONE(lost, llvm::Constant::getNullValue(f64));  // false for sums that are not finite
  Value* bits = b_.CreateBitCast(sum, i64);
  // The sum is too large in magnitude where what it lost has the other sign.
  Value* too_large = b_.CreateAnd(
      inexact, b_.CreateICmpSLT(b_.CreateXor(bits, b_.CreateBitCast(lost, i64)), llvm::Constant::getNullValue(i64)));
  bits = b_.CreateAdd(bits, b_.CreateSExt(too_large, i64));
  bits = b_.CreateOr(bits, b_.CreateZExt(inexact, i64));
  return b_.CreateFPTrunc(b_.CreateBitCast(bits, f64), a->getType());
}

// min and max return NaN when either operand is NaN. `a < b ? a : b` is one minps and keeps NaN in b, so with a
// constant on the left nothing else is needed. Which of two zeros comes out does not matter, unless all machines must
// agree: then it is the second.
Value* Ops::float_min_max(bool is_min, Value* a, Value* b) {
  if (llvm::isa<llvm::Constant>(b)) std::swap(a, b);
  if (llvm::isa<llvm::Constant>(a)) {
    const auto* fp = llvm::dyn_cast_if_present<llvm::ConstantFP>(
        lanes_of(a) == 1 ? llvm::cast<llvm::Constant>(a) : llvm::cast<llvm::Constant>(a)->getSplatValue());
    if (fp && !fp->isNaN()) return b_.CreateSelect(is_min ? b_.CreateFCmpOLT(a, b) : b_.CreateFCmpOGT(a, b), a, b);
  }
  if (is_fixed_) {
    Value* of_numbers = b_.CreateSelect(is_min ? b_.CreateFCmpOLT(a, b) : b_.CreateFCmpOGT(a, b), a, b);
    return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, of_numbers);
  }
  auto* result = llvm::cast<llvm::Instruction>(
      b_.CreateBinaryIntrinsic(is_min ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum, b, a));
  result->setHasNoSignedZeros(true);
  return result;
}

Value* Ops::compare(BinaryOp op, DType dtype, Value* a, Value* b) {
  using Predicate = llvm::CmpInst::Predicate;
  const bool real = is_float(dtype);
  const bool is_signed = is_signed_int(dtype);
  const auto pick = [&](Predicate f, Predicate s, Predicate u) {
    return real ? b_.CreateFCmp(f, a, b) : b_.CreateICmp(is_signed ? s : u, a, b);
  };
  switch (op) {
    case BinaryOp::kEq: return pick(Predicate::FCMP_OEQ, Predicate::ICMP_EQ, Predicate::ICMP_EQ);
    case BinaryOp::kNe: return pick(Predicate::FCMP_UNE, Predicate::ICMP_NE, Predicate::ICMP_NE);
    case BinaryOp::kLt: return pick(Predicate::FCMP_OLT, Predicate::ICMP_SLT, Predicate::ICMP_ULT);
    case BinaryOp::kLe: return pick(Predicate::FCMP_OLE, Predicate::ICMP_SLE, Predicate::ICMP_ULE);
    case BinaryOp::kGt: return pick(Predicate::FCMP_OGT, Predicate::ICMP_SGT, Predicate::ICMP_UGT);
    default: return pick(Predicate::FCMP_OGE, Predicate::ICMP_SGE, Predicate::ICMP_UGE);
  }
}

// Never traps: division by zero gives 0 (the dividend for remainders), INT_MIN / -1 wraps.
Value* Ops::integer_division(BinaryOp op, bool is_signed, Value* a, Value* b) {
  Type* t = a->getType();
  Value* zero = llvm::Constant::getNullValue(t);
  Value* one = llvm::ConstantInt::get(t, 1);
  const llvm::ConstantInt* divisor = nullptr;
  if (const auto* c = llvm::dyn_cast<llvm::Constant>(b))
    divisor = llvm::dyn_cast_if_present<llvm::ConstantInt>(lanes_of(b) == 1 ? c : c->getSplatValue());
  const bool quotient = op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv;
  const bool floors = is_signed && (op == BinaryOp::kFloorDiv || op == BinaryOp::kFloorMod);
  const bool safe = divisor && !divisor->isZero() && !(is_signed && divisor->isMinusOne());
  if (floors && divisor && divisor->getValue().isStrictlyPositive() && divisor->getValue().isPowerOf2()) {
    if (quotient) return b_.CreateAShr(a, llvm::ConstantInt::get(t, divisor->getValue().logBase2()));
    return b_.CreateAnd(a, llvm::ConstantInt::get(t, divisor->getValue() - 1));
  }
  Value* is_zero = b_.CreateICmpEQ(b, zero);
  Value* is_minus_one = is_signed ? b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(t)) : nullptr;
  Value* unsafe = is_signed ? b_.CreateOr(is_zero, is_minus_one) : is_zero;
  Value* d = safe ? b : b_.CreateSelect(unsafe, one, b);
  Value* result = nullptr;
  if (!floors) {
    result = quotient ? (is_signed ? b_.CreateSDiv(a, d) : b_.CreateUDiv(a, d))
                      : (is_signed ? b_.CreateSRem(a, d) : b_.CreateURem(a, d));
  } else {
    Value* q = b_.CreateSDiv(a, d);
    Value* r = b_.CreateSub(a, b_.CreateMul(q, d));
    Value* below = b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(r, d), zero));
    result = quotient ? b_.CreateSub(q, b_.CreateZExt(below, t)) : b_.CreateAdd(r, b_.CreateSelect(below, d, zero));
  }
  if (safe) return result;
  if (is_signed) result = b_.CreateSelect(is_minus_one, quotient ? b_.CreateNeg(a) : zero, result);
  return b_.CreateSelect(is_zero, quotient ? zero : a, result);
}

// Shifting by the width or more moves every bit out.
Value* Ops::shift(BinaryOp op, bool is_signed, Value* a, Value* b) {
  Type* t = a->getType();
  const unsigned bits = t->getScalarSizeInBits();
  Value* zero = llvm::Constant::getNullValue(t);
  Value* last = llvm::ConstantInt::get(t, bits - 1);
  Value* inside = b_.CreateICmpULE(b, last);
  Value* amount = b_.CreateSelect(inside, b, last);
  if (op == BinaryOp::kShr && is_signed) return b_.CreateAShr(a, amount);
  Value* shifted = op == BinaryOp::kShl ? b_.CreateShl(a, amount) : b_.CreateLShr(a, amount);
  return b_.CreateSelect(inside, shifted, zero);
}

Value* Ops::integer_binary(BinaryOp op, DType dtype, Value* a, Value* b) {
  const bool is_signed = is_signed_int(dtype);
  switch (op) {
    // One bit wraps, but any sum of bools that is not 0 is true.
    case BinaryOp::kAdd: return dtype == DType::kBool ? b_.CreateOr(a, b) : b_.CreateAdd(a, b);
    case BinaryOp::kSub: return b_.CreateSub(a, b);
    case BinaryOp::kMul: return b_.CreateMul(a, b);
    case BinaryOp::kDiv:
    case BinaryOp::kRem:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: return integer_division(op, is_signed, a, b);
    case BinaryOp::kMin:
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, a, b);
    case BinaryOp::kMax:
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a, b);
    case BinaryOp::kAnd: return b_.CreateAnd(a, b);
    case BinaryOp::kOr: return b_.CreateOr(a, b);
    case BinaryOp::kXor: return b_.CreateXor(a, b);
    case BinaryOp::kShl:
    case BinaryOp::kShr: return shift(op, is_signed, a, b);
    default: break;
  }
  throw InternalError(std::string("code generation met ") + binary_name(op) + " on " + std::string(dtype_name(dtype)) +
                      "; expand_math must run before");
}

Value* Ops::binary(BinaryOp op, DType operand, Value* a, Value* b) {
  widen(a, b);
  if (is_comparison(op)) return compare(op, operand, a, b);
  if (!is_float(operand)) return integer_binary(op, operand, a, b);
  Value* result = nullptr;
  switch (op) {
    case BinaryOp::kAdd: result = b_.CreateFAdd(a, b); break;
    case BinaryOp::kSub: result = b_.CreateFSub(a, b); break;
    case BinaryOp::kMul: result = b_.CreateFMul(a, b); break;
    case BinaryOp::kDiv: result = b_.CreateFDiv(a, b); break;
    case BinaryOp::kFloorDiv: result = round_to_integer(UnaryOp::kFloor, b_.CreateFDiv(a, b)); break;
    case BinaryOp::kMin: return float_min_max(true, a, b);
    case BinaryOp::kMax: return float_min_max(false, a, b);
    default:
      throw InternalError(std::string("code generation met ") + binary_name(op) +
                          " on floats; expand_math must run before");
  }
  return is_narrow(operand) ? round_to_narrow(operand, result) : result;
}

Value* Ops::horizontal(BinaryOp op, DType dtype, Value* vector) {
  for (int lanes = lanes_of(vector); lanes > 1; lanes /= 2) {
    llvm::SmallVector<int, 64> low;
    llvm::SmallVector<int, 64> high;
    for (int i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(i + lanes / 2);
    }
    if (lanes == 2)
      return binary(op, dtype, b_.CreateExtractElement(vector, uint64_t{0}),
                    b_.CreateExtractElement(vector, uint64_t{1}));
    vector = binary(op, dtype, b_.CreateShuffleVector(vector, low), b_.CreateShuffleVector(vector, high));
  }
  return vector;
}

// ---- casts ---------------------------------------------------------------------------------------------------------

// Saturating conversions to fewer than 32 bits have no instructions, and LLVM takes vectors of them apart: the float is
// clamped before a conversion to i32.
Value* Ops::small_integer(DType to, Value* a) {
  const int bits = dtype_bits(to);
  const bool has_sign = is_signed_int(to);
  const auto number = [&](double value) { return llvm::ConstantFP::get(a->getType(), value); };
  Value* low = number(has_sign ? -std::ldexp(1, bits - 1) : 0);
  Value* high = number(std::ldexp(1, has_sign ? bits - 1 : bits) - 1);
  // NaN becomes 0.
  Value* value = has_sign ? b_.CreateSelect(b_.CreateFCmpUNO(a, a), number(0), a) : a;
  value = b_.CreateSelect(b_.CreateFCmpOGT(value, low), value, low);
  value = b_.CreateSelect(b_.CreateFCmpOLT(value, high), value, high);
  return b_.CreateTrunc(b_.CreateFPToSI(value, like(a, b_.getInt32Ty())), like(a, value_type(to)));
}

Value* Ops::cast(DType to, DType from, Value* a) {
  if (to == from) return a;
  Type* t = like(a, value_type(to));
  if (to == DType::kBool) {
    Value* zero = llvm::Constant::getNullValue(a->getType());
    return is_float(from) ? b_.CreateFCmpUNE(a, zero) : b_.CreateICmpNE(a, zero);
  }
  const bool from_signed = is_signed_int(from);
  if (!is_float(from)) {
    if (!is_float(to)) return from_signed ? b_.CreateSExtOrTrunc(a, t) : b_.CreateZExtOrTrunc(a, t);
    const auto convert = [&](Type* type) { return from_signed ? b_.CreateSIToFP(a, type) : b_.CreateUIToFP(a, type); };
    if (!is_narrow(to)) return convert(t);
    if (from == DType::kBool || dtype_bits(from) <= 16) return round_to_narrow(to, convert(t));
    return round_to_narrow(to, f64_to_f32_odd(convert(like(a, b_.getDoubleTy()))));
  }
  if (!is_float(to)) {
    if (dtype_bits(to) <= 16 && a->getType()->getScalarType()->isFloatTy()) return small_integer(to, a);
    const ID id = is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b_.CreateIntrinsic(id, {t, a->getType()}, {a});
  }
  if (from == DType::kF64) {
    if (is_narrow(to)) return round_to_narrow(to, f64_to_f32_odd(a));
    return b_.CreateFPTrunc(a, t);
  }
  if (to == DType::kF64) return b_.CreateFPExt(a, t);
  return is_narrow(to) ? round_to_narrow(to, a) : a;
}

}  // namespace tessera::inline llvm_codegen
