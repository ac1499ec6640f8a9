// fold_batch_norm_forward: scales and shifts by constants, one for each channel, in front of a convolution with
// constant weights go into it: conv(scale * x + shift, w) = conv(x, w * scale) + constant. The scale goes into the
// weights of its input channel. A shift only where the convolution adds no zeros, which would not be shifted: without
// padding and gaps. Chains behind a convolution of their own are left to fold_batch_norm. Rounding as there.
//
// before:
//   graph @main(%x: f32[1,2,2,2]) -> (%y: f32[1,1,2,2]) {
//     %s = constant {value = dense<f32[2,1,1] 3 5>} : f32[2,1,1]
//     %m = mul(%x, %s) : f32[1,2,2,2] loc("Mul_0")
//     %b = constant {value = dense<f32[2,1,1] 1 2>} : f32[2,1,1]
//     %a = add(%m, %b) : f32[1,2,2,2] loc("Add_1")
//     %w = constant {value = dense<f32[1,2,1,1] 1 10>} : f32[1,2,1,1]
//     %y = conv(%a, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,1,2,2] loc("Conv_2")
//   }
// after (dce):
//   graph @main(%x: f32[1,2,2,2]) -> (%y: f32[1,1,2,2]) {
//     %y.weights = constant {value = dense<f32[1,2,1,1] 3 50>} : f32[1,2,1,1] loc("Mul_0+Add_1+Conv_2")
//     %y.conv = conv(%x, %y.weights) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                                     pads_end = [0, 0], strides = [1, 1]} : f32[1,1,2,2] loc("Mul_0+Add_1+Conv_2")
//     %y.shift = constant {value = dense<f32[1,1,1] 21>} : f32[1,1,1] loc("Mul_0+Add_1+Conv_2")
//     %y = add(%y.conv, %y.shift) : f32[1,1,2,2] loc("Mul_0+Add_1+Conv_2")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph fold_batch_norm_forward(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
