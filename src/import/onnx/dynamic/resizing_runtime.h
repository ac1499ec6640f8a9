// Resize out of the graph's own operators: with scales that only a run knows, and in the ways that the resize operator
// (ops/resize.cpp) does not have: without aliasing, and of a part of the operand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

struct RuntimeResize {
  std::vector<int64_t> axes;   // that are resized
  std::vector<int64_t> sizes;  // of the result, for every dimension
  ValueId scales = -1;         // f64[axes]: output extent per input extent
  std::string mode, coordinate, nearest_mode;
  double cubic_coeff = -0.75;
  bool exclude_outside = false, antialias = false;
  std::optional<ValueId> roi;  // f64[2 * axes]: of tf_crop_and_resize, starts then ends, in parts of the extent
  double extrapolation = 0;    // tf_crop_and_resize: for places outside the operand
};

// One axis after the other. Coordinates are computed in f64, sums in f32 or wider. UnsupportedNode when an axis without
// elements grows, or numbers that are no floats are interpolated.
ValueId resize_when_run(NodeContext& c, ValueId x, const RuntimeResize& r);

}  // namespace tessera::inline onnx_import
