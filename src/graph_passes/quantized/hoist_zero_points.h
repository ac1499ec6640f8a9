// hoist_zero_points: products of bytes with constant weights read the bytes themselves, where a machine multiplies
// such.
//
// A quantised product sums (x - z) * w, and x - z needs nine bits. The share of the zero point is z times the sum of
// the weights, which is known: it is taken off the sums. A convolution that pads with zeros, which stand for x = z,
// gets an input that is padded with z. Sums are i32 that wrap, so results are the same. Weights have to fit i8 or u8;
// those of u8 that have a zero point of their own do not, but differ by at most 255: they are moved by a constant, and
// a product with ones, which has one output, says how much that makes. Depthwise convolutions take weights of 16 bits;
// they read u8 where lanes multiply it in fours, and where i8 stands for itself plus 128: that is free of padding.
//
// Tiles (AMX) multiply any two types of 8 bits. Dot products in vectors sum groups of four: x86's (VNNI) only of u8
// and i8, AArch64's only of the same type. There i8 is read as u8, 128 more, or u8 as i8, 128 less, which is one more
// zero point; rows are filled up with zeros to whole groups, and where channels are few (a model's first convolution)
// the columns of the window are, whose padding becomes a pad. x86 sums pairs of any two types without VNNI, and where
// weights are u8 above 127. What an accelerator takes (PassContext::device_products) is moved to the type of bytes that
// this one multiplies, whatever the host has.
//
// before:
//   graph @main(%x: u8[2,4]) -> (%y: i32[2,1]) {
//     %wide = cast(%x) {to = i32} : i32[2,4]
//     %zero = constant {value = dense<i32[] 3>} : i32[]
//     %shifted = sub(%wide, %zero) : i32[2,4]
//     %w = constant {value = dense<i32[4,1] 1 2 3 4>} : i32[4,1]
//     %y = matmul(%shifted, %w) : i32[2,1] loc("Product_0")
//   }
// after (with tiles of 8 bits):
//   graph @main(%x: u8[2,4]) -> (%y: i32[2,1]) {
//     %wide = cast(%x) {to = i32} : i32[2,4]
//     %zero = constant {value = dense<i32[] 3>} : i32[]
//     %shifted = sub(%wide, %zero) : i32[2,4]
//     %w = constant {value = dense<i32[4,1] 1 2 3 4>} : i32[4,1]
//     %cast = cast(%x) {to = i32} : i32[2,4] loc("Product_0")
//     %matmul = matmul(%cast, %w) : i32[2,1] loc("Product_0")
//     %sums = constant {value = dense<i32[1] 10>} : i32[1] loc("Product_0")
//     %mul = mul(%zero, %sums) : i32[1] loc("Product_0")
//     %y = sub(%matmul, %mul) : i32[2,1] loc("Product_0")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph hoist_zero_points(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
