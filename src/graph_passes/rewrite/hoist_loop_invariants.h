// hoist_loop_invariants: what every iteration of a loop computes alike is computed once, before the loop, and handed to
// the iterations as another operand. Nodes move together with what only they need, from the inside of nested loops to
// the outside, and only where their results are no larger than what they are computed of, or sum or sort something: an
// iteration is cheaper as it is than with a large operand that a few numbers are spread into. A loop without iterations
// computes them for nothing; no operator fails.
//
// before:
//   graph @main(%x: f32[9,4], %s: f32[1,4], %w: f32[4,4]) -> (%y: f32[1,4]) {
//     %y = loop(%s, %x, %w) {num_carried = 1, num_scanned = 1} ({
//       graph @step(%i: i64[], %h: f32[1,4], %r: f32[4], %m: f32[4,4]) -> (%n: f32[1,4]) {
//         %t = transpose(%m) {perm = [1, 0]} : f32[4,4] loc("Transpose_0")
//         %p = matmul(%h, %t) : f32[1,4]
//         %n = add(%p, %r) : f32[1,4]
//       }
//     }) : f32[1,4]
//   }
// after:
//   graph @main(%x: f32[9,4], %s: f32[1,4], %w: f32[4,4]) -> (%y: f32[1,4]) {
//     %t = transpose(%w) {perm = [1, 0]} : f32[4,4] loc("Transpose_0")
//     %y = loop(%s, %x, %w, %t) {num_carried = 1, num_scanned = 1} ({
//       graph @step(%i: i64[], %h: f32[1,4], %r: f32[4], %m: f32[4,4], %t: f32[4,4]) -> (%n: f32[1,4]) {
//         %p = matmul(%h, %t) : f32[1,4]
//         %n = add(%p, %r) : f32[1,4]
//       }
//     }) : f32[1,4]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph hoist_loop_invariants(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
