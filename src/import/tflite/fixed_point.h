// How LiteRT's kernels scale sums of products of integers: by a factor of 31 bits and a shift, rounded as they round.
// Which of them rounds how was measured (tests/python/tflite_rounding_test.py holds it): convolutions and everything
// else round twice, to the factor's unit and then to the result's, halves upwards first and away from zero then; dense
// layers round once, halves away from zero.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "import/common/emitter.h"

namespace tessera::inline tflite_import {

// factor / 2^31 * 2^shift
struct FixedScale {
  int32_t factor = 0;
  int shift = 0;
};

FixedScale fixed_scale(double scale);

enum class FixedRounding : uint8_t { kTwice, kOnce };

// x times the scale. Exact for every x; what leaves i32 by a left shift wraps.
int64_t multiply(int32_t x, FixedScale scale, FixedRounding rounding);

// The integers that a result may be, and the one that stands for zero.
struct StoredRange {
  int64_t low = 0, high = 0, zero = 0;
};

// The numbers that x may be: of sums of products, as far as their weights let them get.
struct SumBounds {
  int64_t low = INT32_MIN, high = INT32_MAX;
};

// x, i32, scaled, moved by the zero point and kept within the range, in `dtype`; `scales` has one entry, or one for
// each entry of dimension `axis`, and so have `bounds`; none: x may be anything. Floats where they give the same for every
// x that there can be, which is proved; else integers of 64 bits.
ValueId requantize(Emitter& c, ValueId x, const std::vector<FixedScale>& scales, int axis, FixedRounding rounding,
                   const StoredRange& range, DType dtype, const std::vector<SumBounds>& bounds = {});

// x times one scale, in i32, not kept within anything.
ValueId multiply(Emitter& c, ValueId x, FixedScale scale, FixedRounding rounding);

// ---- of numbers of 32 bits in i64 ----
// The upper half of twice a product, halves away from zero.
ValueId high_product(Emitter& c, ValueId a, ValueId b);
ValueId kept_in_32(Emitter& c, ValueId x);
// x / 2^bits, halves away from zero.
ValueId halved(Emitter& c, ValueId x, ValueId bits);

// round(x * scale + offset), halves to even, is the same as the integers' result for every x within bounds, rounded once or twice in
// f32; the offset is another one below zero.
struct FloatScale {
  float scale = 0, offset = 0, offset_below = 0;
};
std::optional<FloatScale> float_scale(FixedScale scale, FixedRounding rounding, const StoredRange& range,
                                      const SumBounds& bounds = {});

}  // namespace tessera::inline tflite_import
