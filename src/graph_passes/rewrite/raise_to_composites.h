// raise_to_composites: operators that an exporter took apart are put together again. What is found becomes a composite
// (ops/composites), one node for `explain` and for whoever takes the operator whole; decompose_all takes it apart
// again where nobody did, always in the same spelling. Arithmetic with constants is looked at as a polynomial, so the
// order of factors, and whether a factor multiplies or its reciprocal divides, does not matter.
//
//   gelu          x/2 * (1 + erf(x / sqrt(2))), and the approximation by tanh
//   sigmoid, silu 1 / (1 + exp(-x)), x * sigmoid(x), x / (1 + exp(-x))
//   hard_sigmoid, hard_swish   a line held within bounds that come out as 0 and 1, and x times it
//   softplus, mish             log(1 + exp(x)), x * tanh(softplus(x))
//   softmax       exp(x - max) / sum along one axis, or times the sum's reciprocal
//   layer_norm, rms_norm       over the last dimensions, scale and bias included when they follow
//   attention     softmax of a scaled product, mask added or selected by, times values; k transposed anywhere; k and v
//                 repeated for groups of heads
//
// Not recognised: anything that somebody else reads from inside. Constants agree to 2e-6 (16-bit floats: 2e-3), so
// results move by that much at most; softplus and mish become more exact where exp(x) is large or tiny.
//
// before:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %root = constant {value = dense<f32[] 1.4142135>} : f32[]
//     %one = constant {value = dense<f32[] 1>} : f32[]
//     %half = constant {value = dense<f32[] 0.5>} : f32[]
//     %a = div(%x, %root) : f32[4] loc("Div_0")
//     %b = erf(%a) : f32[4] loc("Erf_1")
//     %c = add(%b, %one) : f32[4] loc("Add_2")
//     %d = mul(%x, %c) : f32[4] loc("Mul_3")
//     %y = mul(%d, %half) : f32[4] loc("Mul_4")
//   }
// after:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %y = composite(%x) {approximate = "none", name = "gelu"} ({
//       graph @gelu(%x0: f32[4]) -> (%mul_2: f32[4]) {
//         %constant = constant {value = dense<f32[] 0.70710677>} : f32[] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//         %mul = mul(%x0, %constant) : f32[4] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//         %erf = erf(%mul) : f32[4] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//         %constant_1 = constant {value = dense<f32[] 0.5>} : f32[] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//         %mul_1 = mul(%x0, %constant_1) : f32[4] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//         %constant_2 = constant {value = dense<f32[] 1>} : f32[] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//         %add = add(%erf, %constant_2) : f32[4] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//         %mul_2 = mul(%mul_1, %add) : f32[4] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//       }
//     }) : f32[4] loc("Div_0+Erf_1+Add_2+Mul_3+Mul_4")
//   }
#pragma once

#include <string_view>

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph raise_to_composites(const Graph& graph, const PassContext& ctx);

// What the pass makes; decompose leaves those that the importer made.
std::span<const std::string_view> recognized_composites();

}  // namespace tessera::inline graph_passes
