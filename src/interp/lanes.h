// The value of one scalar expression for a run of neighbouring indices ("lanes") of one axis, kept as simple as it is:
// one number for all lanes, an arithmetic progression, a contiguous run of trues, or one number per lane. Index
// arithmetic stays a progression through whole loop nests, and a padding condition a run; that is what makes the
// interpreters fast enough for whole models without any code per operator.
//
// Numbers are those of scalar_ops.h: integers and bools as canonical int64_t, floats as double rounded to their type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arith/expr.h"

namespace tessera::inline interp {

inline constexpr int kMaxLanes = 256;

struct Lanes {
  enum class Kind : uint8_t {
    kUniform,  // `first` or `real_value` in every lane
    kAffine,   // i64: first + step * lane
    kRange,    // bool: true for first <= lane < step
    kVector,   // ints[lane] or reals[lane]
  };
  Kind kind = Kind::kUniform;
  bool real = false;  // a float
  int64_t first = 0;
  int64_t step = 0;
  double real_value = 0;
  int64_t* ints = nullptr;  // owned by whoever computed the value
  double* reals = nullptr;

  static Lanes uniform_int(int64_t value) { return {.first = value}; }
  static Lanes uniform_real(double value) { return {.real = true, .real_value = value}; }
  static Lanes affine(int64_t first, int64_t step) {
    return {.kind = step == 0 ? Kind::kUniform : Kind::kAffine, .first = first, .step = step};
  }
  static Lanes range(int64_t first, int64_t end) { return {.kind = Kind::kRange, .first = first, .step = end}; }
  static Lanes int_vector(int64_t* data) { return {.kind = Kind::kVector, .ints = data}; }
  static Lanes real_vector(double* data) { return {.kind = Kind::kVector, .real = true, .reals = data}; }

  bool is_uniform() const { return kind == Kind::kUniform; }
  int64_t int_at(int lane) const {
    switch (kind) {
      case Kind::kUniform: return first;
      case Kind::kAffine:  // wraps, as i64 arithmetic does
        return static_cast<int64_t>(static_cast<uint64_t>(first) +
                                    static_cast<uint64_t>(step) * static_cast<uint64_t>(lane));
      case Kind::kRange: return first <= lane && lane < step;
      case Kind::kVector: break;
    }
    return ints[lane];
  }
  double real_at(int lane) const { return kind == Kind::kUniform ? real_value : reals[lane]; }
};

// The lanes an evaluation is for: begin <= lane < end and, where `bits` is given, bits[lane].
struct LaneMask {
  int begin = 0, end = 0;
  const uint8_t* bits = nullptr;
  uint64_t id = 0;  // tells evaluations of one iteration under different masks apart

  bool active(int lane) const { return !bits || bits[lane]; }
};

// Where a vector result goes: room for kMaxLanes numbers. Only active lanes are written.
struct LaneStorage {
  int64_t* ints;
  double* reals;
};

Lanes lanes_unary(UnaryOp op, DType from, DType to, const Lanes& a, const LaneMask& mask, LaneStorage out);
// `dtype` is that of the operands.
Lanes lanes_binary(BinaryOp op, DType dtype, const Lanes& a, const Lanes& b, const LaneMask& mask, LaneStorage out);
Lanes lanes_fma(DType dtype, const Lanes& a, const Lanes& b, const Lanes& c, const LaneMask& mask, LaneStorage out);
Lanes lanes_cast(DType from, DType to, const Lanes& a, const LaneMask& mask, LaneStorage out);
// Elements base + step * lane of packed memory, or at[lane] where `at` is given.
Lanes lanes_load(DType dtype, const std::byte* data, int64_t base, int64_t step, const int64_t* at,
                 const LaneMask& mask, LaneStorage out);
// Copies the active lanes of `a` to `out`.
void lanes_store(const Lanes& a, const LaneMask& mask, LaneStorage out);

}  // namespace tessera::inline interp
