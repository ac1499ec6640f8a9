// scale_sums_once: sums of products of bytes become bytes by one multiply-add.
//
// A quantised layer scales its sums of integers, adds a bias, maybe what a second one computed, limits the result
// (ReLU) and divides it by the scale of its own output before it rounds. All of these are linear but for the limits,
// which are numbers of the output as well: factors and constants are joined, in f64, and the zero point is added before
// rounding, which is the same but for ties. Limits join those of the byte. Signed bytes are made as unsigned ones that
// are 128 more, as no sum is NaN (which would become 0): rounding has less to look after there.
//
// Results differ by the rounding of f32: a byte is the next one where the exact number lies so near the middle of two.
// What has no sum of products of integers, or more than three parts, stays as it is, and so do layers that an
// accelerator takes: its instructions compute what the model says. Where nothing is divided, the numbers are kept: an
// operator that requantises says its factors, to the bit.
//
// before:
//   graph @main(%x: i32[2,4], %w: i32[4,2]) -> (%y: u8[2,2]) {
//     %sums = matmul(%x, %w) : i32[2,2]
//     %real = cast(%sums) {to = f32} : f32[2,2]
//     %s = constant {value = dense<f32[2] 0.5 0.25>} : f32[2]
//     %scaled = mul(%real, %s) : f32[2,2]
//     %b = constant {value = dense<f32[2] 1 2>} : f32[2]
//     %c = add(%scaled, %b) : f32[2,2]
//     %zero = constant {value = dense<f32[] 0>} : f32[]
//     %relu = max(%c, %zero) : f32[2,2]
//     %u = constant {value = dense<f32[] 0.125>} : f32[]
//     %q = div(%relu, %u) : f32[2,2]
//     %r = round(%q) : f32[2,2]
//     %z = constant {value = dense<f32[] 3>} : f32[]
//     %a = add(%r, %z) : f32[2,2]
//     %l = max(%a, %zero) : f32[2,2]
//     %most = constant {value = dense<f32[] 255>} : f32[]
//     %h = min(%l, %most) : f32[2,2]
//     %y = cast(%h) {to = u8} : u8[2,2]
//   }
// after (dce):
//   graph @main(%x: i32[2,4], %w: i32[4,2]) -> (%y: u8[2,2]) {
//     %sums = matmul(%x, %w) : i32[2,2]
//     %added = constant {value = dense<f32[2] 11 19>} : f32[2]
//     %cast = cast(%sums) {to = f32} : f32[2,2]
//     %factor = constant {value = dense<f32[2] 4 2>} : f32[2]
//     %fma = fma(%cast, %factor, %added) : f32[2,2]
//     %low = constant {value = dense<f32[] 3>} : f32[]
//     %high = constant {value = dense<f32[] 255>} : f32[]
//     %gt = gt(%fma, %low) : bool[2,2]
//     %select = select(%gt, %fma, %low) : f32[2,2]
//     %round = round(%select) : f32[2,2]
//     %min = min(%round, %high) : f32[2,2]
//     %y = cast(%min) {to = u8} : u8[2,2]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph scale_sums_once(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
