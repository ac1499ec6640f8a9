// A model's nodes in the words of whoever made it: what `explain` tells of, whatever format the model came in.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "import/onnx/edit/model_statistics.h"

namespace tessera::inline diagnose {

struct OutlineNode {
  std::string label;    // as in Node::loc
  std::string op_type;  // "Conv"; of a graph the operator's name, or those of all nodes with this label: "mul+add"
  std::vector<std::string> inputs, outputs;  // names of values; omitted ones are ""
};

struct ModelOutline {
  std::string name;
  std::vector<OutlineNode> nodes;  // each reads only what earlier ones give; labels differ
  std::vector<std::string> inputs, outputs;
};

ModelOutline outline_of(const OnnxStatistics& model);

// Nodes of one location are one node of the outline; constants are none. REQUIRES: a graph of with_locations().
ModelOutline outline_of(const Graph& graph);

// The graph with a location for each node that has none: the name of its first result.
Graph with_locations(Graph graph);

}  // namespace tessera::inline diagnose
