// dce: nodes whose results nobody needs go away, and so do results and operands of control flow: those of an `if`,
// stacked results, slices and invariants of a `loop`. Graph inputs stay: they are the model's interface.
//
// before:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %unused = neg(%x) : f32[4]
//     %y = exp(%x) : f32[4]
//   }
// after:
//   graph @main(%x: f32[4]) -> (%y: f32[4]) {
//     %y = exp(%x) : f32[4]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph dce(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
