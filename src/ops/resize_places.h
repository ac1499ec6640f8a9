// Where the elements of a resized tensor stand in the one that it is made of, along one dimension.
//
// Each output index o stands for a coordinate of the input, with scale s = output extent / input extent:
//   half_pixel             (o + 1/2) / s - 1/2
//   pytorch_half_pixel     the same, 0 when the output has one element
//   half_pixel_symmetric   half_pixel moved so that the middles agree when s * extent is not the output's extent
//   asymmetric             o / s
//   align_corners          o * (extent - 1) / (output extent - 1), 0 when the output has one element
//   tf_half_pixel_for_nn   (o + 1/2) / s
//   crop                   align_corners of the part of the input from `begin` to `end`, which are parts of extent - 1;
//                          the middle of both when the output has one element
// A scale that is a ratio of small integers (as 2, 0.5, 0.6 are meant) gives coordinates in exact integer arithmetic;
// others, and those that only a run knows, are computed in f64.
#pragma once

#include <string>

#include "arith/expr.h"
#include "graph/op_def.h"

namespace tessera::inline ops {

enum class ResizeCoordinate : uint8_t {
  kHalfPixel,
  kPytorchHalfPixel,
  kHalfPixelSymmetric,
  kAsymmetric,
  kAlignCorners,
  kTfHalfPixel,
  kCrop
};
enum class ResizeRounding : uint8_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };

// The attributes `coordinate` and `nearest_mode`; TSR-2031 for other words.
ResizeCoordinate resize_coordinate(const OpContext& ctx);
ResizeRounding resize_rounding(const OpContext& ctx);

struct ResizedAxis {
  Expr output, input;  // extents
  double scale = 0;    // known while compiling; 0: the ratio of the extents
  Expr run_scale;      // f64, of a run; null: `scale` counts
  Expr begin, end;     // f64: of kCrop, which has a run_scale
};

// A coordinate: its floor, the part above it, and its rounding, in whichever arithmetic it has.
class ResizePlace {
 public:
  static ResizePlace ratio(Expr numerator, Expr denominator) {
    return ResizePlace(std::move(numerator), std::move(denominator));
  }
  static ResizePlace real(Expr value) { return ResizePlace(std::move(value), {}); }

  void be_zero_if(const Expr& condition) { value_ = select(condition, const_of(value_.dtype(), 0), value_); }

  Expr floor() const;
  Expr fraction(DType dtype) const;
  Expr nearest(ResizeRounding mode) const;
  // To the precision of an f32: a scale of 2.4 comes as the f32 next to it, and places that are meant to be whole are
  // whole.
  ResizePlace rounded_to_single() const;
  Expr real_value() const;  // f64

 private:
  ResizePlace(Expr value, Expr denominator) : value_(std::move(value)), denominator_(std::move(denominator)) {}

  Expr value_;        // i64 numerator, or the f64 coordinate
  Expr denominator_;  // i64, positive; null for an f64 coordinate
};

// Of output index `o`.
ResizePlace place_of(ResizeCoordinate mode, const Expr& o, const ResizedAxis& axis);

// The axes of a resize, one for each dimension of operand 0: `scales` of the attribute, or of operand 1 with the region
// of operand 2, each for the dimensions of the attribute `axes` (all without it), which `operands` are the buffers of.
// The others keep their extents.
std::vector<ResizedAxis> resized_axes(const OpContext& ctx, const std::vector<BufferPtr>& operands);
// Checks the attributes and operands that resized_axes reads, and answers the result's extents.
Shape require_resize(const OpContext& ctx);

}  // namespace tessera::inline ops
