// cse: of nodes with the same operator, operands and attributes the first one stays. Constants count as equal when
// their types and bytes are. The node that stays keeps its own location.
//
// before:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %a = exp(%x) : f32[4] loc("Exp_0")
//     %b = exp(%x) : f32[4] loc("Exp_1")
//     %y = add(%a, %b) : f32[4]
//   }
// after:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %a = exp(%x) : f32[4] loc("Exp_0")
//     %y = add(%a, %a) : f32[4]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph cse(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
