// lower_precision: what convolutions and products with weights read is rounded to the precision that was asked for,
// bf16 or f16; sums stay in f32, and so does everything that is computed between them (softmax, norms, activations).
// Without --precision it changes nothing.
//
// A value that such a node reads is rounded once, where it is made, for all that read it: it need not be stored in two
// types. Weights are rounded where a machine's dot instructions take pairs of 16-bit numbers: an even number of at
// least 16 input channels or of terms; with two-dimensional tiles of bf16 also an odd one. 3x3 convolutions of stride 1
// over pictures of 14x14 and larger keep the weights that they have, unless the machine has such tiles: minimal
// filtering in f32 does less work than dot instructions would. A convolution of fewer channels, a model's first, sums
// pairs of columns of its window where the machine has dot instructions of bf16: its padding becomes a pad, and an odd
// window has a column of zeros more. Outputs of the model are not rounded.
//
// Weights in blocks of a few bits are rounded for machines with tiles of bf16, where each product reads them; a product
// of few rows may leave their rounding out (schedule/rules/blocked_weights.cpp).
//
// On a device that has them both factors of a product of two values are rounded, too (PassContext::device_products),
// but for a softmax, whose exponentials its kernel rounds.
//
// Weights may also arrive at run time: inputs and states of fixed shape, of products those of two dimensions.
//
// The graph that comes out is one of f32 with pairs of casts; lower/narrow_values.h stores what lies between in 16
// bits.
//
// before:
//   graph @main(%x: f32[2,2]) -> (%y: f32[2,2]) {
//     %a = exp(%x) : f32[2,2] loc("Exp_0")
//     %w = constant {value = dense<f32[2,2] 1 2 3 4>} : f32[2,2]
//     %p = matmul(%a, %w) : f32[2,2] loc("MatMul_1")
//     %y = add(%p, %a) : f32[2,2] loc("Add_2")
//   }
// after (bf16):
//   graph @main(%x: f32[2,2]) -> (%y: f32[2,2]) {
//     %a = exp(%x) : f32[2,2] loc("Exp_0")
//     %a.narrow = cast(%a) {to = bf16} : bf16[2,2] loc("Exp_0")
//     %a.rounded = cast(%a.narrow) {to = f32} : f32[2,2] loc("Exp_0")
//     %w = constant {value = dense<f32[2,2] 1 2 3 4>} : f32[2,2]
//     %p = matmul(%a.rounded, %w) : f32[2,2] loc("MatMul_1")
//     %y = add(%p, %a.rounded) : f32[2,2] loc("Add_2")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph lower_precision(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
