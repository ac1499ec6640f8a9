// lower_qdq_matmul: products of dequantised bytes are products of bytes, dequantised afterwards.
//
// DequantizeLinear in front of a convolution or matrix product makes (x - zx) * sx and (w - zw) * sw of bytes x and w:
// the sum of their products is sx * sw times one of integers, which a machine that multiplies bytes computes several
// times as fast, and without rounding. Scales are moved behind the product where x has one of them and the weights,
// which are constant, one or one for each output channel or column; where the weights less their zero point fit i8, and
// no sum can leave i32. Convolutions that suit minimal filtering stay in f32 on machines that sum pairs of products of
// bytes only. A graph that was trained with fake quantisation, or quantised as pairs of QuantizeLinear and
// DequantizeLinear, then runs as one of QLinearConv and QLinearMatMul does.
//
// Runs before constants are folded, for the bytes of the weights to be seen. Results differ by the rounding of the sums
// in f32 that they replace.
//
// before:
//   graph @main(%x: u8[2,4]) -> (%y: f32[2,1]) {
//     %x.wide = cast(%x) {to = i32} : i32[2,4]
//     %zero = constant {value = dense<i32[] 3>} : i32[]
//     %x.less = sub(%x.wide, %zero) : i32[2,4]
//     %x.real = cast(%x.less) {to = f32} : f32[2,4]
//     %sx = constant {value = dense<f32[] 0.5>} : f32[]
//     %a = mul(%x.real, %sx) : f32[2,4]
//     %w = constant {value = dense<i8[4,1] 1 2 3 4>} : i8[4,1]
//     %w.wide = cast(%w) {to = i32} : i32[4,1]
//     %w.real = cast(%w.wide) {to = f32} : f32[4,1]
//     %sw = constant {value = dense<f32[] 0.25>} : f32[]
//     %b = mul(%w.real, %sw) : f32[4,1]
//     %y = matmul(%a, %b) : f32[2,1] loc("Product_0")
//   }
// after (dce, with tiles of 8 bits):
//   graph @main(%x: u8[2,4]) -> (%y: f32[2,1]) {
//     %x.wide = cast(%x) {to = i32} : i32[2,4]
//     %zero = constant {value = dense<i32[] 3>} : i32[]
//     %x.less = sub(%x.wide, %zero) : i32[2,4]
//     %sx = constant {value = dense<f32[] 0.5>} : f32[]
//     %w = constant {value = dense<i8[4,1] 1 2 3 4>} : i8[4,1]
//     %w.wide = cast(%w) {to = i32} : i32[4,1]
//     %sw = constant {value = dense<f32[] 0.25>} : f32[]
//     %matmul = matmul(%x.less, %w.wide) : i32[2,1] loc("Product_0")
//     %cast = cast(%matmul) {to = f32} : f32[2,1] loc("Product_0")
//     %mul = mul(%sx, %sw) : f32[] loc("Product_0")
//     %y = mul(%cast, %mul) : f32[2,1] loc("Product_0")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph lower_qdq_matmul(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
