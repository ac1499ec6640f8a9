// Graph to program: every group becomes a kernel with a naive loop program, every value a buffer, views become
// aliases, constants become weights. No scheduling happens here; the result is correct and slow.
#pragma once

#include "graph/graph.h"
#include "program/program.h"

namespace tessera::inline lower {

// Sizes of a graph with symbols become expressions of those in the types of buffers and in kernels, which get the
// symbols as arguments.
// REQUIRES: a verified graph whose nodes are constants, views, expressions or groups of those.
Program lower_graph(const Graph& graph);

// The kernel definition of one node (a group or a single expression operator); parameters are the node's inputs in
// order, less scalar constants, which are written into the expressions. `kept` receives, for each parameter, which
// input of the node it is.
TensorProgram lower_node(const Graph& graph, const Node& node, std::vector<size_t>& kept);

}  // namespace tessera::inline lower
