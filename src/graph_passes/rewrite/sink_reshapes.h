// sink_reshapes: a reshape in front of operators that work element by element moves behind them. A reshape is free, but
// it stands between a matrix product and the bias, activation or residual addition that could be computed with it.
// Operands beside the reshaped one follow: numbers as they are, those that broadcast over the leading dimensions when
// both shapes end alike, full ones by a reshape of their own (also free). Where images in blocked layout could be
// concerned, full operands that are computed stay, and so does the reshape.
//
// before:
//   graph @main(%x: f32[6,8], %w: f32[8,4], %r: f32[2,3,4]) -> (%y: f32[2,3,4]) {
//     %m = matmul(%x, %w) : f32[6,4] loc("MatMul_0")
//     %v = reshape(%m) {shape = [2, 3, 4]} : f32[2,3,4] loc("Reshape_1")
//     %y = add(%v, %r) : f32[2,3,4] loc("Add_2")
//   }
// after (dce):
//   graph @main(%x: f32[6,8], %w: f32[8,4], %r: f32[2,3,4]) -> (%y: f32[2,3,4]) {
//     %m = matmul(%x, %w) : f32[6,4] loc("MatMul_0")
//     %r.view = reshape(%r) {shape = [6, 4]} : f32[6,4] loc("Add_2")
//     %y.moved = add(%m, %r.view) : f32[6,4] loc("Add_2")
//     %y = reshape(%y.moved) {shape = [2, 3, 4]} : f32[2,3,4] loc("Reshape_1+Add_2")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph sink_reshapes(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
