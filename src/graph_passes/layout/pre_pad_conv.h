// pre_pad_conv: the padding of convolutions whose window has many columns becomes a pad in front of them. Kernels
// compute several columns of the output at once and know for each column of the window which of them take part, as code
// of its own (schedule/rules/register_tile/register_tile.cpp): for a window of 128 columns that would be 128 copies,
// where a pad costs one pass over the image.
//
// before:
//   graph @main(%x: f32[1,16,49], %w: f32[8,16,128]) -> (%y: f32[1,8,50]) {
//     %y = conv(%x, %w) {dilations = [1], groups = 1, input_dilations = [1], pads_begin = [64], pads_end = [64],
//                        strides = [1]} : f32[1,8,50]
//   }
// after:
//   graph @main(%x: f32[1,16,49], %w: f32[8,16,128]) -> (%y: f32[1,8,50]) {
//     %y.zero = constant {value = dense<f32[] 0>} : f32[]
//     %y.padded = pad(%x, %y.zero) {high = [0, 0, 64], low = [0, 0, 64], mode = "constant"} : f32[1,16,177]
//     %y = conv(%y.padded, %w) {dilations = [1], groups = 1, input_dilations = [1], pads_begin = [0], pads_end = [0],
//                               strides = [1]} : f32[1,8,50]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph pre_pad_conv(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
