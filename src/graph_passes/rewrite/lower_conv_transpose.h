// lower_conv_transpose: a transposed convolution whose windows do not overlap (stride = kernel, no padding) needs no
// gaps in its input: every input pixel gives a kernel-sized patch of the output. So it is a 1x1 convolution to
// O * kernel channels, kernel position major, whose channels are then moved to their places (sub-pixel shuffle). Every
// product with a gap's zero disappears. Other transposed convolutions stay convolutions with input_dilations; those of
// open extents that are no multiple of the stride, whatever the size, get some places more, which a slice takes off
// again: schedules know the place of a window in the pattern of gaps where it repeats without a rest.
//
// before:
//   graph @main(%x: f32[1,5,4,4], %w: f32[3,5,2,2]) -> (%y: f32[1,3,8,8]) {
//     %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [2, 2], pads_begin = [1, 1],
//                        pads_end = [1, 1], strides = [1, 1]} : f32[1,3,8,8]
//   }
// after:
//   graph @main(%x: f32[1,5,4,4], %w: f32[3,5,2,2]) -> (%y: f32[1,3,8,8]) {
//     %y.turned = slice(%w) {sizes = [3, 5, 2, 2], starts = [0, 0, 1, 1], steps = [1, 1, -1, -1]} : f32[3,5,2,2]
//     %y.by_position = transpose(%y.turned) {perm = [2, 3, 0, 1]} : f32[2,2,3,5]
//     %y.weights = reshape(%y.by_position) {shape = [12, 5, 1, 1]} : f32[12,5,1,1]
//     %y.patches = conv(%x, %y.weights) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                                        pads_end = [0, 0], strides = [1, 1]} : f32[1,12,4,4]
//     %y.split = reshape(%y.patches) {shape = [1, 2, 2, 3, 4, 4]} : f32[1,2,2,3,4,4]
//     %y.placed = transpose(%y.split) {perm = [0, 3, 4, 1, 5, 2]} : f32[1,3,4,2,4,2]
//     %y = reshape(%y.placed) {shape = [1, 3, 8, 8]} : f32[1,3,8,8]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph lower_conv_transpose(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
