// The invariants of graph.h, checked. Cheap enough to run after every pass (no constant's data is read).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tessera::inline graph {

// One line for each violation, "node <loc> (<op> %<result>): <rule>"; empty when the graph is sound. Regions included.
std::vector<std::string> verify(const Graph& graph);
// The rules that concern one node and its types (not the order of nodes).
std::vector<std::string> verify_node(const Graph& graph, const Node& node);
// InternalError naming the pass and the violations: a pass broke the graph.
void verify_or_throw(const Graph& graph, std::string_view after_pass);

// Equal dtypes and shapes; layouts do not matter. Symbolic dims agree unless they are provably different.
bool types_agree(const TensorType& a, const TensorType& b);

}  // namespace tessera::inline graph
