// Elements of fewer than 8 bits in memory: several to a byte, lowest bits first. Registers hold one to a byte.
#include <bit>

#include "codegen/llvm/kernel_emitter.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

namespace {

uint64_t per_byte(DType dtype) { return static_cast<uint64_t>(8 / dtype_bits(dtype)); }
uint8_t code_mask(DType dtype) { return static_cast<uint8_t>((1u << dtype_bits(dtype)) - 1); }

}  // namespace

// The element's number, of every lane when the lanes differ.
Value* KernelEmitter::element_number(const Resolved& index) {
  const int lanes = vec_ && index.lane_stride != 0 ? vec_->lanes : 1;
  if (!index.lane_stride) return ops_.splat(value(index.varying), lanes);
  Value* at = b_.getInt64(static_cast<uint64_t>(index.offset));
  if (!is_const_int(index.rest, 0)) at = b_.CreateAdd(at, index_value(index.rest));
  for (const auto& [e, factor] : index.added)
    at = b_.CreateAdd(at, b_.CreateMul(index_value(e), b_.getInt64(static_cast<uint64_t>(factor))));
  if (lanes == 1) return at;
  llvm::SmallVector<uint64_t, 64> ramp;
  for (int i = 0; i < lanes; ++i) ramp.push_back(static_cast<uint64_t>(i * *index.lane_stride));
  return b_.CreateAdd(ops_.splat(at, lanes), llvm::ConstantDataVector::get(context_, ramp));
}

// Where in its byte an element begins, in bits.
Value* KernelEmitter::bit_position(DType dtype, Value* number) {
  const int lanes = Ops::lanes_of(number);
  llvm::Type* i64 = number->getType();
  Value* in_byte = b_.CreateAnd(number, llvm::ConstantInt::get(i64, per_byte(dtype) - 1));
  in_byte = b_.CreateMul(in_byte, llvm::ConstantInt::get(i64, static_cast<uint64_t>(dtype_bits(dtype))));
  llvm::Type* i8 = b_.getInt8Ty();
  return b_.CreateTrunc(in_byte, lanes == 1 ? i8 : llvm::FixedVectorType::get(i8, static_cast<unsigned>(lanes)));
}

Value* KernelEmitter::load_packed(const Place& place, DType dtype, const Resolved& index) {
  Value* number = element_number(index);
  const int lanes = Ops::lanes_of(number);
  const auto load = [&]() -> Value* {
    Value* byte = b_.CreateLShr(number, llvm::ConstantInt::get(number->getType(), std::countr_zero(per_byte(dtype))));
    Value* pointer = b_.CreateInBoundsGEP(b_.getInt8Ty(), place.pointer, byte);
    Value* loaded = nullptr;
    if (lanes == 1) {
      loaded = b_.CreateAlignedLoad(b_.getInt8Ty(), pointer, llvm::Align(1));
    } else {
      llvm::Type* type = llvm::FixedVectorType::get(b_.getInt8Ty(), static_cast<unsigned>(lanes));
      Value* all =
          llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(lanes)));
      loaded = b_.CreateMaskedGather(type, pointer, llvm::Align(1), vec_->mask ? vec_->mask : all,
                                     llvm::Constant::getNullValue(type));
    }
    return b_.CreateAnd(b_.CreateLShr(loaded, bit_position(dtype, number)),
                        llvm::ConstantInt::get(loaded->getType(), code_mask(dtype)));
  };
  if (lanes > 1 || !vec_ || !vec_->mask || !vec_->mask_may_be_empty) return load();
  return branch_select(b_.CreateOrReduce(vec_->mask), load, [&]() -> Value* { return b_.getInt8(0); });
}

// Two threads may store to elements of one byte: each clears and sets its own bits only. The bits behind the last
// element become 0, so that equal tensors are equal bytes.
void KernelEmitter::store_packed(const Place& place, const Buffer& buffer, const Resolved& index, Value* stored) {
  const DType dtype = buffer.dtype;
  Value* numbers = element_number(index);
  const int lanes = Ops::lanes_of(numbers);
  if (lanes == 1) stored = last_lane(stored);
  stored = ops_.splat(stored, lanes);
  Expr elements = 1;
  for (const Expr& extent : buffer.shape) elements = elements * extent;
  elements = simplify(elements, bounds_);
  keep_.push_back(elements);
  const auto count = as_int(elements);
  const bool fills_bytes = count && *count % static_cast<int64_t>(per_byte(dtype)) == 0;
  Value* last = fills_bytes ? nullptr : b_.CreateSub(index_value(elements), b_.getInt64(1));
  const bool shared = !f_.host;  // with other threads: also an allocation that stands around the parallel loop
  llvm::Value* nowhere =
      vec_ && vec_->mask && lanes > 1 ? stack_slot(b_.getInt8Ty(), "nowhere", llvm::Align(1)) : nullptr;
  if (nowhere) b_.CreateStore(b_.getInt8(0), nowhere);
  for (int i = 0; i < lanes; ++i) {
    const auto lane = [&](Value* v) { return lanes == 1 ? v : b_.CreateExtractElement(v, static_cast<uint64_t>(i)); };
    Value* number = lane(numbers);
    Value* position = bit_position(dtype, number);
    Value* bits = b_.CreateShl(b_.getInt8(code_mask(dtype)), position);
    if (last) bits = b_.CreateSelect(b_.CreateICmpEQ(number, last), b_.CreateShl(b_.getInt8(0xff), position), bits);
    Value* keep = b_.CreateNot(bits);
    Value* set = b_.CreateShl(lane(stored), position);
    Value* pointer = b_.CreateInBoundsGEP(
        b_.getInt8Ty(), place.pointer, b_.CreateLShr(number, static_cast<uint64_t>(std::countr_zero(per_byte(dtype)))));
    if (nowhere) {
      Value* runs = lane(vec_->mask);
      pointer = b_.CreateSelect(runs, pointer, nowhere);
    }
    if (shared) {
      const auto change = [&](llvm::AtomicRMWInst::BinOp op, Value* with) {
        b_.CreateAtomicRMW(op, pointer, with, llvm::Align(1), llvm::AtomicOrdering::Monotonic);
      };
      change(llvm::AtomicRMWInst::And, keep);
      change(llvm::AtomicRMWInst::Or, set);
    } else {
      Value* old = b_.CreateAlignedLoad(b_.getInt8Ty(), pointer, llvm::Align(1));
      b_.CreateAlignedStore(b_.CreateOr(b_.CreateAnd(old, keep), set), pointer, llvm::Align(1));
    }
  }
}

}  // namespace tessera::inline llvm_codegen
