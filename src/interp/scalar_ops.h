// The meaning of every scalar operation of arith/expr.h, in one place: the interpreters call these.
// Integers of any type are held as int64_t in canonical form (sign- or zero-extended; bool 0 or 1; u64 as the signed
// number with the same bits). Floats narrower than f64 are computed in double and rounded to their type afterwards,
// which for + - * / and sqrt gives the correctly rounded result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arith/expr.h"

namespace tessera {

// Brings an integer into the canonical form of `dtype`: wraps modulo 2^bits; bool tests != 0.
int64_t canonical_int(DType dtype, int64_t value);
// Rounds to the nearest value of the float type, ties to even.
double round_to(DType dtype, double value);

// Results are in canonical form (int_*) or not yet rounded to the type (float_*).
int64_t int_unary(UnaryOp op, DType dtype, int64_t a);
int64_t int_binary(BinaryOp op, DType dtype, int64_t a, int64_t b);  // comparisons give 0 or 1
double float_unary(UnaryOp op, double a);                            // not kIsNan, kIsInf, kNot
double float_binary(BinaryOp op, double a, double b);                // not comparisons
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

}  // namespace tessera
