// The meaning of every scalar operation of arith/expr.h, in one place: the interpreters call these. Those on integers
// are in arith/int_ops.h, with the form in which integers are held. Floats narrower than f64 are computed in double and
// rounded to their type afterwards, which for + - * / and sqrt gives the correctly rounded result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arith/expr.h"
#include "arith/int_ops.h"

namespace tessera::inline interp {

// Rounds to the nearest value of the float type, ties to even.
double round_to(DType dtype, double value);

// Results are not yet rounded to the type.
double float_unary(UnaryOp op, double a);              // not kIsNan, kIsInf, kNot
double float_binary(BinaryOp op, double a, double b);  // not comparisons
bool float_compare(BinaryOp op, double a, double b);
bool float_test(UnaryOp op, double a);  // kIsNan, kIsInf

int64_t float_to_int(DType to, double a);              // truncates, saturates, NaN gives 0; to bool: != 0
double int_to_float(DType from, DType to, int64_t a);  // rounded once, to `to`

// Raw bits of one element, in the low bits, and back: what kBitcast goes through.
uint64_t int_bits(DType dtype, int64_t a);
uint64_t float_bits(DType dtype, double a);
int64_t int_from_bits(DType dtype, uint64_t bits);
double float_from_bits(DType dtype, uint64_t bits);

// Element `index` of packed memory of `dtype`.
int64_t read_int(DType dtype, const std::byte* data, int64_t index);
double read_float(DType dtype, const std::byte* data, int64_t index);
void write_int(DType dtype, std::byte* data, int64_t index, int64_t value);
void write_float(DType dtype, std::byte* data, int64_t index, double value);

}  // namespace tessera::inline interp
