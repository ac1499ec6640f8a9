// The meaning of every operation of arith/expr.h on integers, in one place: what folds constants, simulates and
// interprets calls these. Integers of any type are held as int64_t in canonical form (sign- or zero-extended; bool 0 or
// 1; u64 as the signed number with the same bits).
#pragma once

#include <cstdint>

#include "arith/expr.h"

namespace tessera::inline arith {

// Products and differences of two i64 do not overflow it.
__extension__ typedef __int128 Int128;

// Brings an integer into the canonical form of `dtype`: wraps modulo 2^bits; bool tests != 0.
int64_t canonical_int(DType dtype, int64_t value);

// Results are in canonical form. InternalError for an operation that there is not on integers.
int64_t int_unary(UnaryOp op, DType dtype, int64_t a);
int64_t int_binary(BinaryOp op, DType dtype, int64_t a, int64_t b);  // comparisons give 0 or 1

// Whether the operation gives the same for its operands the other way round, on numbers of every type.
bool commutes(BinaryOp op);

// Modulo 2^64.
inline int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t wrap_sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// kFloorDiv of i64.
int64_t floor_div(int64_t a, int64_t b);

}  // namespace tessera::inline arith
