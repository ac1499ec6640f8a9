// fold_pads: a pad of the spatial dimensions in front of a convolution or a pooling window becomes the padding of that
// operator, which takes no pass over memory. A convolution and a window of kind sum take zeros; a window of kind max
// the lowest value, or zero when its operand is never negative and no window lies in the padding alone.
//
// before:
//   graph @main(%x: f32[1,1,3,3], %w: f32[1,1,3,3]) -> (%y: f32[1,1,2,2]) {
//     %zero = constant {value = dense<f32[] 0>} : f32[]
//     %p = pad(%x, %zero) {high = [0, 0, 1, 1], low = [0, 0, 0, 0], mode = "constant"} : f32[1,1,4,4] loc("Pad_0")
//     %y = conv(%p, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,1,2,2] loc("Conv_1")
//   }
// after (dce):
//   graph @main(%x: f32[1,1,3,3], %w: f32[1,1,3,3]) -> (%y: f32[1,1,2,2]) {
//     %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [1, 1], strides = [1, 1]} : f32[1,1,2,2] loc("Pad_0+Conv_1")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph fold_pads(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
