// copy_dequantisations: each reader of weights in blocks has a node of its own that dequantises them, so that fusion
// can put it into the reader's kernel: the numbers are then made in registers, and memory has the blocks alone. A table
// of embeddings that is the output's matrix as well has two readers.
//
// before:
//   graph @main(%i: i64[1], %x: f32[1,32]) -> (%a: f32[1,32], %b: f32[1,2]) {
//     %w = constant {value = splat<u8[2,18] 1>} : u8[2,18]
//     %d = dequantize_blocks(%w) {format = "q4_0"} : f32[2,32]
//     %a = gather(%d, %i) {axis = 0} : f32[1,32]
//     %b = matmul(%x, %d) {transpose_b = true} : f32[1,2]
//   }
// after (dce):
//   graph @main(%i: i64[1], %x: f32[1,32]) -> (%a: f32[1,32], %b: f32[1,2]) {
//     %w = constant {value = splat<u8[2,18] 1>} : u8[2,18]
//     %d = dequantize_blocks(%w) {format = "q4_0"} : f32[2,32]
//     %a = gather(%d, %i) {axis = 0} : f32[1,32]
//     %d_1 = dequantize_blocks(%w) {format = "q4_0"} : f32[2,32]
//     %b = matmul(%x, %d_1) {transpose_b = true} : f32[1,2]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph copy_dequantisations(const Graph& graph, const PassContext& ctx);

// Whether `node` dequantises constant weights in blocks.
bool dequantizes_weights(const Graph& graph, const Node& node);
// Whether `reader` is a product with the matrix `weights`, or a look-up in it, whose kernel makes numbers in registers,
// as it needs them.
bool reads_as_weights(const Graph& graph, ValueId weights, const Node& reader);
// Whether the reader of what `node` dequantises is one of these, or rounds them.
bool reads_in_blocks(const Graph& graph, const Node& node, const Node& reader);

}  // namespace tessera::inline graph_passes
