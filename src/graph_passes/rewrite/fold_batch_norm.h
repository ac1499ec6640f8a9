// fold_batch_norm: scales and shifts by constants are gathered and merged into what stands before them.
// A chain of batch_norm composites and of add, sub, mul, div with a constant for the whole tensor or one per channel
// (axis 1) is y = scale * x + shift. Behind a convolution with constant weights whose result nobody else reads, the
// scale goes into the weights and one addition of a [C,1,1] constant stays; elsewhere one mul and one add stay.
// Rounding changes as little as such a merge must: every factor is computed in f64 and rounded once. Sums of products
// of bytes that become bytes again are left to scale_sums_once.
//
// before:
//   graph @main(%x: f32[1,1,2,2]) -> (%y: f32[1,2,2,2]) {
//     %w = constant {value = dense<f32[2,1,1,1] 1 2>} : f32[2,1,1,1]
//     %c = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,2,2,2] loc("Conv_0")
//     %s = constant {value = dense<f32[1] 3>} : f32[1]
//     %m = mul(%c, %s) : f32[1,2,2,2] loc("Mul_1")
//     %b = constant {value = dense<f32[2,1,1] 5 7>} : f32[2,1,1]
//     %y = add(%m, %b) : f32[1,2,2,2] loc("Add_2")
//   }
// after (dce):
//   graph @main(%x: f32[1,1,2,2]) -> (%y: f32[1,2,2,2]) {
//     %c.weights = constant {value = dense<f32[2,1,1,1] 3 6>} : f32[2,1,1,1] loc("Conv_0+Mul_1+Add_2")
//     %c = conv(%x, %c.weights) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                                pads_end = [0, 0], strides = [1, 1]} : f32[1,2,2,2] loc("Conv_0+Mul_1+Add_2")
//     %y.shift = constant {value = dense<f32[2,1,1] 5 7>} : f32[2,1,1] loc("Conv_0+Mul_1+Add_2")
//     %y = add(%c, %y.shift) : f32[1,2,2,2] loc("Conv_0+Mul_1+Add_2")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph fold_batch_norm(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
