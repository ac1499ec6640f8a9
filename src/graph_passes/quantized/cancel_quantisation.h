// cancel_quantisation: bytes that are dequantised, only moved or compared, and quantised again as they were stay bytes.
//
// (q - z) * s, divided by s and rounded, is q - z: both roundings of f32 together are off by less than 2^-22 of a
// number that is at most 2^17. What moves numbers moves the bytes as well; the largest of a window is the byte that
// stands for it, as dequantising keeps the order (s > 0).
//
// before:
//   graph @main(%q: u8[2,3]) -> (%y: u8[6]) {
//     %s = constant {value = dense<f32[] 0.3>} : f32[]
//     %z = constant {value = dense<u8[] 7>} : u8[]
//     %x = composite(%q, %s, %z) {name = "dequantize"} ({
//       graph @dequantize(%q: u8[2,3], %s: f32[], %z: u8[]) -> (%r: f32[2,3]) {
//         %w = cast(%q) {to = i32} : i32[2,3]
//         %v = cast(%z) {to = i32} : i32[]
//         %d = sub(%w, %v) : i32[2,3]
//         %f = cast(%d) {to = f32} : f32[2,3]
//         %r = mul(%f, %s) : f32[2,3]
//       }
//     }) : f32[2,3]
//     %flat = reshape(%x) {shape = [6]} : f32[6]
//     %y = composite(%flat, %s, %z) {name = "quantize", to = u8} ({
//       graph @quantize(%x: f32[6], %s: f32[], %z: u8[]) -> (%r: u8[6]) {
//         %d = div(%x, %s) : f32[6]
//         %n = round(%d) : f32[6]
//         %v = cast(%z) {to = f32} : f32[]
//         %a = add(%n, %v) : f32[6]
//         %low = constant {value = dense<f32[] 0>} : f32[]
//         %l = max(%a, %low) : f32[6]
//         %high = constant {value = dense<f32[] 255>} : f32[]
//         %h = min(%l, %high) : f32[6]
//         %r = cast(%h) {to = u8} : u8[6]
//       }
//     }) : u8[6]
//   }
// after (dce):
//   graph @main(%q: u8[2,3]) -> (%y: u8[6]) {
//     %y = reshape(%q) {shape = [6]} : u8[6]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph cancel_quantisation(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
