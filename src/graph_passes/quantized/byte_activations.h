// byte_activations: what products with weights in blocks read is rounded to bytes, 32 neighbours of a row with one
// scale, the largest of them 127. Only with --precision i8. Rows whose length is no multiple of 32 stay floats.
//
// before:
//   graph @main(%x: f32[1,32]) -> (%y: f32[1,2]) {
//     %w = constant {value = splat<u8[2,18] 1>} : u8[2,18]
//     %d = dequantize_blocks(%w) {format = "q4_0"} : f32[2,32]
//     %y = matmul(%x, %d) {transpose_b = true} : f32[1,2]
//   }
// after (dce, i8):
//   graph @main(%x: f32[1,32]) -> (%y: f32[1,2]) {
//     %w = constant {value = splat<u8[2,18] 1>} : u8[2,18]
//     %d = dequantize_blocks(%w) {format = "q4_0"} : f32[2,32]
//     %x.reshape = reshape(%x) {shape = [1, 1, 32]} : f32[1,1,32]
//     %x.abs = abs(%x.reshape) : f32[1,1,32]
//     %x.reduce = reduce(%x.abs) {axes = [2], keepdims = false, kind = "max"} : f32[1,1]
//     %x.number = constant {value = dense<f32[] 0>} : f32[]
//     %x.broadcast = broadcast(%x.number) {shape = [1, 1]} : f32[1,1]
//     %x.number_1 = constant {value = dense<f32[] 127>} : f32[]
//     %x.broadcast_1 = broadcast(%x.number_1) {shape = [1, 1]} : f32[1,1]
//     %x.number_2 = constant {value = dense<f32[] 1e-30>} : f32[]
//     %x.broadcast_2 = broadcast(%x.number_2) {shape = [1, 1]} : f32[1,1]
//     %x.gt = gt(%x.reduce, %x.broadcast_2) : bool[1,1]
//     %x.div = div(%x.broadcast_1, %x.reduce) : f32[1,1]
//     %x.select = select(%x.gt, %x.div, %x.broadcast) : f32[1,1]
//     %x.number_3 = constant {value = dense<f32[] 0.007874016>} : f32[]
//     %x.broadcast_3 = broadcast(%x.number_3) {shape = [1, 1]} : f32[1,1]
//     %x.mul = mul(%x.reduce, %x.broadcast_3) : f32[1,1]
//     %x.reshape_1 = reshape(%x.select) {shape = [1, 1, 1]} : f32[1,1,1]
//     %x.broadcast_4 = broadcast(%x.reshape_1) {shape = [1, 1, 32]} : f32[1,1,32]
//     %x.mul_1 = mul(%x.reshape, %x.broadcast_4) : f32[1,1,32]
//     %x.round = round(%x.mul_1) : f32[1,1,32]
//     %x.cast = cast(%x.round) {to = i8} : i8[1,1,32]
//     %x.reshape_2 = reshape(%x.cast) {shape = [1, 32]} : i8[1,32]
//     %y = scaled_matmul(%x.reshape_2, %x.mul, %d) : f32[1,2]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph byte_activations(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
