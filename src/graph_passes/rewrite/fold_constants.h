// fold_constants: a node whose operands are all constants is evaluated now. Skipped where the result would be large
// compared with its operands (a splat must not become megabytes of a module), unless a contraction takes it as weights,
// and where it would take long to evaluate; and numbers of places among which a run chooses. An `if` whose condition is
// a constant becomes its branch, a loop without iterations its operands; other constant operands of both become
// constants inside of the regions, a constant count becomes an attribute.
//
// before:
//   graph @main(%x: f32[2]) -> (%y: f32[2]) {
//     %a = constant {value = dense<f32[2] 1 2>} : f32[2]
//     %b = constant {value = dense<f32[1] 0.5>} : f32[1]
//     %c = mul(%a, %b) : f32[2] loc("Mul_0")
//     %y = add(%x, %c) : f32[2]
//   }
// after (dce):
//   graph @main(%x: f32[2]) -> (%y: f32[2]) {
//     %c = constant {value = dense<f32[2] 0.5 1>} : f32[2] loc("Mul_0")
//     %y = add(%x, %c) : f32[2]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph fold_constants(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
