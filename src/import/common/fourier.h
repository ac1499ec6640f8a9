// Discrete Fourier transforms as graphs: n log n for lengths with small factors. The length is split into factors, each
// of which is a product with a small matrix; a long prime factor becomes a convolution.
#pragma once

#include "import/common/emitter.h"

namespace tessera::inline import_common {

constexpr int64_t kLongestTransform = 1 << 24;

// What readers ask for along one axis. Complex numbers are two values along the last dimension, real ones are one.
struct FourierTransform {
  int64_t length;  // of the transform: operands are cut, or filled up with zeros
  bool inverse;    // with the factor 1 / length
  bool onesided;   // of real values length / 2 + 1 complex ones, or the inverse: real values of so many

  int64_t read() const { return inverse && onesided ? length / 2 + 1 : length; }
  int64_t kept() const { return !inverse && onesided ? length / 2 + 1 : length; }

  // x [..., 1 or 2] along `axis`, which is not the last: the same with kept() values there, and 2 parts (1 of real
  // results). Computed in f32, of f64 in f64. UnsupportedNode for lengths outside of 1 to kLongestTransform.
  ValueId along(Emitter& c, ValueId x, size_t axis) const;
};

// An extent as a number, where others of the value may be expressions. UnsupportedNode when it is one itself.
int64_t fixed_extent(Emitter& c, ValueId x, size_t axis);

// The first `kept` values of the transforms of x [batch, parts, n], forwards: [batch, 2, kept].
ValueId fourier_transform(Emitter& c, ValueId x, int64_t kept);

}  // namespace tessera::inline import_common
