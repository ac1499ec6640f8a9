// Parts of a graph as graphs of their own: what tools that narrow a failure down cut a model into.
#pragma once

#include <set>
#include <vector>

#include "graph/graph.h"

namespace tessera::inline graph {

// Nodes of a graph, the values that they are given and those that they give. Constants are no members: a subgraph gets
// those that its nodes read.
struct Subgraph {
  std::set<NodeId> nodes;
  std::vector<ValueId> inputs, outputs;
};

// The subgraph with these nodes. Its inputs are the values that they read from outside (no constants), its outputs
// those of their values that are outputs of the graph, or that no node or a node outside reads.
Subgraph subgraph_of(const Graph& graph, const std::set<NodeId>& nodes);

// The subgraph as a graph: types, names of values, locations and regions are those of `graph`. It has neither states
// nor checks: their inputs and outputs are like any other. It has those symbols of `graph` that it mentions.
// REQUIRES: every value that the nodes read is an input of `part`, a constant, or given by one of the nodes.
Graph extract(const Graph& graph, const Subgraph& part);

// The graph without nodes that no output needs, those that only served to find attributes, and without symbols that
// nothing mentions. A constant of which only other shapes are left, which nodes made, gives its name to the first of
// them. REQUIRES: KnownSymbols has the graph's.
Graph needed_part(const Graph& graph);
// What `outputs` need, with these inputs, which other than the graph's own are values that nodes of it read. States and
// checks are those of the graph only where inputs and outputs are its own.
Graph needed_part(const Graph& graph, const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs);

// Whether the value is given by a constant node.
bool is_constant_value(const Graph& graph, ValueId id);

// Removes the symbols that no type and no attribute mentions, regions included.
void drop_unused_symbols(Graph& graph);

}  // namespace tessera::inline graph
