// merge_matmuls: matrix products of one value with several constant matrices become one product with the matrices side
// by side, whose parts are then sliced out: query, key and value of attention. Biases behind all of them are merged
// too. Only where every result is moved next (reshape, transpose, slice, attention): there the slice is part of a pass
// over memory that happens anyway, while an activation behind a product is better computed with it.
//
// before:
//   graph @main(%x: f32[3,2]) -> (%q: f32[2,3], %k: f32[2,3]) {
//     %wq = constant {value = dense<f32[2,2] 1 2 3 4>} : f32[2,2]
//     %wk = constant {value = dense<f32[2,2] 5 6 7 8>} : f32[2,2]
//     %bq = constant {value = dense<f32[2] 1 2>} : f32[2]
//     %bk = constant {value = dense<f32[2] 3 4>} : f32[2]
//     %a = matmul(%x, %wq) : f32[3,2] loc("Query_0")
//     %b = add(%a, %bq) : f32[3,2] loc("Query_0")
//     %q = transpose(%b) {perm = [1, 0]} : f32[2,3]
//     %c = matmul(%x, %wk) : f32[3,2] loc("Key_1")
//     %d = add(%bk, %c) : f32[3,2] loc("Key_1")
//     %k = transpose(%d) {perm = [1, 0]} : f32[2,3]
//   }
// after (dce):
//   graph @main(%x: f32[3,2]) -> (%q: f32[2,3], %k: f32[2,3]) {
//     %a.weights = constant {value = dense<f32[2,4] 1 2 5 6 3 4 7 8>} : f32[2,4] loc("Query_0+Key_1")
//     %a.joint = matmul(%x, %a.weights) : f32[3,4] loc("Query_0+Key_1")
//     %a.bias = constant {value = dense<f32[4] 1 2 3 4>} : f32[4] loc("Query_0+Key_1")
//     %a.biased = add(%a.joint, %a.bias) : f32[3,4] loc("Query_0+Key_1")
//     %b = slice(%a.biased) {sizes = [3, 2], starts = [0, 0], steps = [1, 1]} : f32[3,2] loc("Query_0")
//     %d = slice(%a.biased) {sizes = [3, 2], starts = [0, 2], steps = [1, 1]} : f32[3,2] loc("Key_1")
//     %q = transpose(%b) {perm = [1, 0]} : f32[2,3]
//     %k = transpose(%d) {perm = [1, 0]} : f32[2,3]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph merge_matmuls(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
