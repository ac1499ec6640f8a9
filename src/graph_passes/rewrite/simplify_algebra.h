// simplify_algebra: identities that make nodes disappear or cheaper, none of which needs more than a few nodes above
// the one it replaces. The rules are data, algebra_rules.cpp; at every node the first one that applies is taken until
// none does.
//
// before:
//   graph @main(%x: f32[2,3]) -> (%y: f32[2,3]) {
//     %t = transpose(%x) {perm = [1, 0]} : f32[3,2]
//     %u = transpose(%t) {perm = [1, 0]} : f32[2,3]
//     %c = constant {value = dense<f32[1] 4>} : f32[1]
//     %y = div(%u, %c) : f32[2,3]
//   }
// after (dce):
//   graph @main(%x: f32[2,3]) -> (%y: f32[2,3]) {
//     %y.constant = constant {value = dense<f32[1] 0.25>} : f32[1]
//     %y = mul(%x, %y.constant) : f32[2,3]
//   }
#pragma once

#include "graph_passes/pass.h"
#include "graph_passes/rewrite/algebra_rules.h"

namespace tessera::inline graph_passes {

Graph simplify_algebra(const Graph& graph, const PassContext& ctx);
// With these rules only; `applied`, when given, counts what was applied by each.
Graph apply_rules(const Graph& graph, const PassContext& ctx, std::span<const AlgebraRule> rules,
                  std::vector<int>* applied = nullptr);

}  // namespace tessera::inline graph_passes
