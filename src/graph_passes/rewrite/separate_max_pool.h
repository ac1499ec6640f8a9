// separate_max_pool: the maximum or minimum over a wide window becomes one along each of its dimensions, the innermost
// first. An output then compares the sum of the window's extents instead of their product; the result is the same to
// the bit. Where that saves too little for the passes over memory (windows of 3 x 3 and of 3 x 3 x 3, large strides),
// the window stays as it is.
//
// before:
//   graph @main(%x: f32[1,8,20,20]) -> (%y: f32[1,8,20,20]) {
//     %y = reduce_window(%x) {dilations = [1, 1], kind = "max", pads_begin = [2, 2], pads_end = [2, 2],
//                             strides = [1, 1], window = [5, 5]} : f32[1,8,20,20]
//   }
// after:
//   graph @main(%x: f32[1,8,20,20]) -> (%y: f32[1,8,20,20]) {
//     %y.3 = reduce_window(%x) {dilations = [1, 1], kind = "max", pads_begin = [0, 2], pads_end = [0, 2],
//                               strides = [1, 1], window = [1, 5]} : f32[1,8,20,20]
//     %y = reduce_window(%y.3) {dilations = [1, 1], kind = "max", pads_begin = [2, 0], pads_end = [2, 0],
//                               strides = [1, 1], window = [5, 1]} : f32[1,8,20,20]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph separate_max_pool(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
