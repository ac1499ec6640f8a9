// The operators of arith/expr.h as LLVM instructions, on scalars and on vectors alike.
//
// Values of an expression are held in a register type: f64 double; f32 and narrower float (always a value of the
// narrow type, because every operation rounds); integers iN; bool i1. Their storage type: f16 and bf16 as i16, bool as
// i8, floats of 8 bits and fewer and integers of 4 bits and fewer as the low bits of an i8 (memory packs those).
#pragma once

#include <functional>

#include "arith/expr.h"
#include "codegen/llvm/emit_target.h"
#include "codegen/llvm/llvm_headers.h"

namespace tessera::inline llvm_codegen {

class Ops {
 public:
  // `builder` is where instructions go; both must outlive this object.
  Ops(llvm::IRBuilder<>& builder, const EmitTarget& target)
      : b_(builder), target_(target.machine), is_fixed_(target.is_fixed()) {}

  llvm::Type* value_type(DType dtype, int lanes = 1) const;
  llvm::Type* storage_type(DType dtype, int lanes = 1) const;
  llvm::Value* to_storage(DType dtype, llvm::Value* value);
  llvm::Value* from_storage(DType dtype, llvm::Value* stored);

  llvm::Value* constant(const ExprNode& node) const;
  llvm::Value* unary(UnaryOp op, DType operand, DType result, llvm::Value* a);
  // Operands of different widths (scalar and vector) are brought to the wider.
  llvm::Value* binary(BinaryOp op, DType operand, llvm::Value* a, llvm::Value* b);
  llvm::Value* select(llvm::Value* condition, llvm::Value* a, llvm::Value* b);
  llvm::Value* fma(DType dtype, llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* cast(DType to, DType from, llvm::Value* a);

  static int lanes_of(const llvm::Value* v);
  llvm::Value* splat(llvm::Value* v, int lanes);  // vectors stay themselves
  void widen(llvm::Value*& a, llvm::Value*& b);
  llvm::Value* horizontal(BinaryOp op, DType dtype, llvm::Value* vector);  // lanes combined pairwise

 private:
  llvm::Value* integer_binary(BinaryOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* integer_division(BinaryOp op, bool is_signed, llvm::Value* a, llvm::Value* b);
  llvm::Value* shift(BinaryOp op, bool is_signed, llvm::Value* a, llvm::Value* b);
  llvm::Value* fma_by_f64(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* float_min_max(bool is_min, llvm::Value* a, llvm::Value* b);
  llvm::Value* compare(BinaryOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* round_to_integer(UnaryOp op, llvm::Value* a);
  llvm::Value* round_to_narrow(DType dtype, llvm::Value* f32);  // through its code and back
  llvm::Value* small_integer(DType to, llvm::Value* f32);
  llvm::Value* bf16_of_vector(llvm::Value* f32, const std::function<llvm::Value*()>& with_denormals);
  llvm::Value* f32_to_bits16(DType dtype, llvm::Value* f32);
  llvm::Value* bits16_to_f32(DType dtype, llvm::Value* bits);
  llvm::Value* f32_to_code8(DType dtype, llvm::Value* f32);   // small_floats.cpp
  llvm::Value* code8_to_f32(DType dtype, llvm::Value* code);  // the bits above the code are 0
  llvm::Value* f64_to_f32_odd(llvm::Value* f64);
  llvm::Type* like(const llvm::Value* shape, llvm::Type* element) const;  // vector of `element` when shape is one
  llvm::Value* bits32(uint32_t value, const llvm::Value* shape) const;

  llvm::IRBuilder<>& b_;
  const Target& target_;
  const bool is_fixed_;  // the same bits on every machine
};

}  // namespace tessera::inline llvm_codegen
