// The attributes that convolutions and pooling share, with auto_pad resolved.
#pragma once

#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

struct WindowAttributes {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end;  // one entry per spatial dimension
  // What auto_pad asks for besides, where that depends on symbolic extents; empty elsewhere.
  Shape more_begin, more_end;
};

// Reads kernel_shape, strides, dilations, pads and auto_pad of a node whose operand has the spatial extents `extents`.
// `kernel` is what the weights say; empty for pooling, where kernel_shape is required. With `pad_for_output` false
// auto_pad SAME leaves the pads 0 (transposed convolutions have their own rule).
WindowAttributes read_window(NodeContext& c, const Shape& extents, std::vector<int64_t> kernel,
                             bool pad_for_output = true);

// UnsupportedNode where the padding depends on symbolic extents.
void require_fixed_pads(NodeContext& c, const WindowAttributes& window);

// The extents after batch and channels. UnsupportedNode for less than one or more than three of them.
Shape spatial_extents(NodeContext& c, ValueId x);

}  // namespace tessera::inline onnx_import
