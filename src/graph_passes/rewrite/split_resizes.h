// split_resizes: an interpolation along several dimensions becomes one along each of them, the outermost first. Every
// result then needs the sum of the dimensions' neighbours instead of their product, and all but the last step read and
// write whole rows. Floats of 32 and 64 bits only: what lies between the steps is rounded, so that results differ by
// rounding of that type. Nearest neighbours stay as they are.
//
// before:
//   graph @main(%x: f32[1,3,8,8]) -> (%y: f32[1,3,4,16]) {
//     %y = resize(%x) {coordinate = "half_pixel", mode = "linear", scales = [1.0, 1.0, 0.5, 2.0],
//                      sizes = [1, 3, 4, 16]} : f32[1,3,4,16]
//   }
// after:
//   graph @main(%x: f32[1,3,8,8]) -> (%y: f32[1,3,4,16]) {
//     %y.2 = resize(%x) {coordinate = "half_pixel", mode = "linear", scales = [1.0, 1.0, 0.5, 1.0],
//                        sizes = [1, 3, 4, 8]} : f32[1,3,4,8]
//     %y = resize(%y.2) {coordinate = "half_pixel", mode = "linear", scales = [1.0, 1.0, 1.0, 2.0],
//                        sizes = [1, 3, 4, 16]} : f32[1,3,4,16]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph split_resizes(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
