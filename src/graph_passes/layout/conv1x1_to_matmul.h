// conv1x1_to_matmul: a 1x1 convolution that no other convolution touches through images is a product of its weights and
// the rows of pixels, W[O, C] x X[C, H * W], which reads and writes images as they are. As a convolution its operand
// would be copied to blocks of channels and its result back, two passes over memory (assign_layouts); where
// convolutions follow each other these copies are shared, and the blocks are better. What is computed element by
// element from its result moves before the reshape that restores the image, so that it stays with the product.
//
// before:
//   graph @main(%x: f32[1,8,16,16], %w: f32[4,8,1,1], %b: f32[4,1,1]) -> (%y: f32[1,4,16,16]) {
//     %0 = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,4,16,16]
//     %y = add(%0, %b) : f32[1,4,16,16]
//   }
// after (dce):
//   graph @main(%x: f32[1,8,16,16], %w: f32[4,8,1,1], %b: f32[4,1,1]) -> (%y: f32[1,4,16,16]) {
//     %0.pixels = reshape(%x) {shape = [8, 256]} : f32[8,256]
//     %0.weights = reshape(%w) {shape = [4, 8]} : f32[4,8]
//     %0.product = matmul(%0.weights, %0.pixels) : f32[4,256]
//     %b.flat = reshape(%b) {shape = [4, 1]} : f32[4,1]
//     %y.flat = add(%0.product, %b.flat) : f32[4,256]
//     %y = reshape(%y.flat) {shape = [1, 4, 16, 16]} : f32[1,4,16,16]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph conv1x1_to_matmul(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
