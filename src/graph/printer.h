// Graphs as text. print -> parse (parser.h) -> print is identical.
//   graph @main[n in 1..64](%x: f32[n,3]) -> (%y: f32[n,4]) {
//     %w = constant {value = dense<f32[3,4] 1 2 3 ...>} : f32[3,4]
//     %y = matmul(%x, %w) {transpose_a = false} : f32[n,4] loc("MatMul_0")
//   }
// A state stands behind its input, with its initial value unless that is zeros, and behind its output, a check behind
// its:
//   graph @count(%x: i64[], %n: i64[] state("count", dense<i64[] 1>)) -> (%y: i64[], %m: i64[] state("count")) { ... }
// Names that are not [A-Za-z0-9_./]+ are quoted: %"input:0". Several results: `%a, %b = op(...) : T, U`. Regions stand
// behind the attributes: `({ graph @relu(...) -> (...) { ... } })`.
#pragma once

#include <string>

#include "graph/graph.h"

namespace tessera::inline graph {

struct PrintOptions {
  bool elide_constants = false;  // constants of more than kMaxDense elements as `elided<type hash>`
  bool locs = true;              // loc("...") of nodes
};

std::string print(const Graph& graph, const PrintOptions& options = {});
// One node without a line break (regions do have line breaks), as in messages.
std::string print_node(const Graph& graph, const Node& node, const PrintOptions& options = {});
std::string attr_text(const Attr& attr, bool elide_constants = false);

}  // namespace tessera::inline graph
