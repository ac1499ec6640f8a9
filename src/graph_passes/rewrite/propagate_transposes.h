// propagate_transposes: transposes move behind operators that work element by element, so that pairs meet and cancel,
// and so that what follows a matrix product or a convolution element by element is computed with it. Constants beside
// the transposed operand are transposed in its place; other operands must be numbers or transposed in the same way.
// Where a transpose undoes one of the operands of an addition (or its like), it moves in front of it, and one operand
// more is transposed in place of two transposes. There are never more transposes of computed values than before.
//
// before:
//   graph @main(%x: f32[2,3,4], %r: f32[2,3,4]) -> (%y: f32[2,3,4]) {
//     %s = constant {value = dense<f32[3,1] 1 2 3>} : f32[3,1]
//     %a = transpose(%x) {perm = [0, 2, 1]} : f32[2,4,3] loc("T_0")
//     %b = exp(%a) : f32[2,4,3] loc("Exp_1")
//     %c = transpose(%b) {perm = [0, 2, 1]} : f32[2,3,4] loc("T_2")
//     %d = mul(%c, %s) : f32[2,3,4] loc("Mul_3")
//     %y = add(%d, %r) : f32[2,3,4] loc("Add_4")
//   }
// after (dce):
//   graph @main(%x: f32[2,3,4], %r: f32[2,3,4]) -> (%y: f32[2,3,4]) {
//     %s = constant {value = dense<f32[3,1] 1 2 3>} : f32[3,1]
//     %b.moved = exp(%x) : f32[2,3,4] loc("Exp_1")
//     %d = mul(%b.moved, %s) : f32[2,3,4] loc("Mul_3")
//     %y = add(%d, %r) : f32[2,3,4] loc("Add_4")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph propagate_transposes(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
