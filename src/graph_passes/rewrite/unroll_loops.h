// unroll_loops: a loop of few iterations, whose number is known, becomes its iterations one after the other. The number
// of the iteration is a constant in each, slices and stacked results are parts of tensors that stand still, and passes
// see from one iteration into the next: that is worth more than small code. Loops that a count or a condition may end
// earlier stay.
//
// before:
//   graph @main(%x: f32[2,3], %s: f32[3]) -> (%y: f32[3]) {
//     %y = loop(%s, %x) {num_carried = 1, num_scanned = 1} ({
//       graph @body(%i: i64[], %a: f32[3], %row: f32[3]) -> (%b: f32[3]) {
//         %b = add(%a, %row) : f32[3]
//       }
//     }) : f32[3] loc("Scan_0")
//   }
// after (dce):
//   graph @main(%x: f32[2,3], %s: f32[3]) -> (%y: f32[3]) {
//     %slice = slice(%x) {sizes = [1, 3], starts = [0, 0], steps = [1, 1]} : f32[1,3] loc("Scan_0")
//     %reshape = reshape(%slice) {shape = [3]} : f32[3] loc("Scan_0")
//     %y_2 = add(%s, %reshape) : f32[3] loc("Scan_0")
//     %slice_1 = slice(%x) {sizes = [1, 3], starts = [1, 0], steps = [1, 1]} : f32[1,3] loc("Scan_0")
//     %reshape_1 = reshape(%slice_1) {shape = [3]} : f32[3] loc("Scan_0")
//     %y = add(%y_2, %reshape_1) : f32[3] loc("Scan_0")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph unroll_loops(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
