// simplify_algebra: identities that make nodes disappear or cheaper, none of which needs more than a node and the
// producers of its operands.
//   x + 0, x - 0, x * 1, x / 1                              -> x
//   x / c, c a power of two                                  -> x * (1/c), which is exact
//   (x + c1) + c2, (x * c1) * c2                             -> x + (c1 + c2), ...: only constants are regrouped
//   f(x, broadcast(c))                                       -> f(x, c) where f broadcasts by itself
//   transpose of transpose, reshape of reshape, relayout of relayout -> one, or none
//   a transpose that moves only dimensions of extent 1       -> reshape
//   reshape, transpose, slice, pad, cast, broadcast, relayout, concat that change nothing -> their operand
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
//     %y.factor = constant {value = dense<f32[1] 0.25>} : f32[1]
//     %y = mul(%x, %y.factor) : f32[2,3]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera {

Graph simplify_algebra(const Graph& graph, const PassContext& ctx);

}  // namespace tessera
