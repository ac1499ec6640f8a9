// trim_taps: entries of a convolution's filters that meet nothing but padding, wherever the filter stands, are taken
// out: of 3x3 filters on images of one pixel the middle is left. In the gradient of the filters they are zeros, and
// what is left of filters that stand in one place alone is a product of matrices.
//
// before:
//   graph @main(%x: f32[1,1,1,1], %w: f32[1,1,3,3]) -> (%y: f32[1,1,1,1]) {
//     %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [1, 1],
//                        pads_end = [1, 1], strides = [1, 1]} : f32[1,1,1,1] loc("Conv_0")
//   }
// after (dce):
//   graph @main(%x: f32[1,1,1,1], %w: f32[1,1,3,3]) -> (%y: f32[1,1,1,1]) {
//     %slice = slice(%w) {sizes = [1, 1, 1, 1], starts = [0, 0, 1, 1], steps = [1, 1, 1, 1]} : f32[1,1,1,1]
//     loc("Conv_0") %y = conv(%x, %slice) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0,
//     0],
//                            pads_end = [0, 0], strides = [1, 1]} : f32[1,1,1,1] loc("Conv_0")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph trim_taps(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
