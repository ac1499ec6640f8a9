// byte_activations: what products with weights in blocks read is rounded to bytes, 32 neighbours of a row with one
// scale, the largest of them 127. Only with --precision i8. Rows whose length is no multiple of 32 stay floats.
//
// before:
//   graph @main(%x: f32[1,32]) -> (%y: f32[1,2]) {
//     %w = constant {value = splat<u8[2,18] 1>} : u8[2,18]
//     %d = dequantize_blocks(%w) {format = "q4_0"} : f32[2,32]
//     %y = matmul(%x, %d) {transpose_b = true} : f32[1,2]
//   }
// after:
//   graph @main(%x: f32[1,32]) -> (%y: f32[1,2]) {
//     %w = constant {value = splat<u8[2,18] 1>} : u8[2,18]
//     %d = dequantize_blocks(%w) {format = "q4_0"} : f32[2,32]
//     %rows = reshape(%x) {shape = [1, 1, 32]} : f32[1,1,32]
//     ... the largest magnitude of each group, its scale, and the bytes
//     %y = scaled_matmul(%bytes, %scales, %d) : f32[1,2]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph byte_activations(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
