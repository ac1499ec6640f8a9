// Sliding windows over spatial dimensions: what conv and reduce_window share.
#pragma once

#include <vector>

#include "ops/op_util.h"

namespace tessera::inline ops {

// One spatial dimension. Window position k of output o looks at place o * stride + k * dilation - pad_begin of the
// input, whose elements lie input_dilation apart (with nothing in between).
struct WindowDim {
  Expr extent;  // of the input
  Expr window;
  int64_t stride = 1;
  int64_t pad_begin = 0, pad_end = 0;
  int64_t dilation = 1;
  int64_t input_dilation = 1;
};

// Reads strides, pads_begin, pads_end, dilations and, where the operator has it, input_dilations, with their checks;
// `extents` and `windows` are those of the spatial dimensions.
std::vector<WindowDim> window_dims(const OpContext& ctx, const Shape& extents, const Shape& windows);

// How many windows fit. TSR-2026 when none does.
Expr window_count(const OpContext& ctx, const WindowDim& dim, size_t spatial_dim);

// Where a window position reads, and when that is an element and not padding. Conditions that always hold are left
// out; the rest is a conjunction of `0 <= place`, `place < end` and, with input dilation, `place mod d = 0`.
struct WindowPlace {
  Expr index;
  Expr inside;
};
WindowPlace window_place(const WindowDim& dim, const Expr& output, const Expr& k, const Expr& output_extent);

// The attributes above, for an OpDef's list.
std::vector<AttrDef> window_attrs();

}  // namespace tessera::inline ops
