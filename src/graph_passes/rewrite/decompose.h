// decompose: a composite is replaced by the primitives of its region, so that the passes behind see operators
// that they know. Some stay: batch_norm, which fold_batch_norm needs as a whole, and what raise_to_composites makes
// (softmax, layer_norm, gelu, ...); decompose_all, further behind, opens those as well.
//
// before:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %y = composite(%x) {name = "relu"} ({
//       graph @relu(%a: f32[4]) -> (%r: f32[4]) {
//         %zero = constant {value = dense<f32[1] 0>} : f32[1]
//         %r = max(%a, %zero) : f32[4]
//       }
//     }) : f32[4] loc("Relu_0")
//   }
// after:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %y.zero = constant {value = dense<f32[1] 0>} : f32[1] loc("Relu_0")
//     %y = max(%x, %y.zero) : f32[4] loc("Relu_0")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph decompose(const Graph& graph, const PassContext& ctx);
Graph decompose_all(const Graph& graph, const PassContext& ctx);

// The composites of these names alone.
Graph open_composites(const Graph& graph, const OpTable& ops, std::span<const std::string_view> names);

}  // namespace tessera::inline graph_passes
