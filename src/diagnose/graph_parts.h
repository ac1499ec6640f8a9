// A model's graph taken apart by the names of its values, and graphs made of parts of it: what `diff` and `bisect` cut
// failing models down with. A node with regions stays whole.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/subgraph.h"

namespace tessera::inline diagnose {

struct PartNode {
  std::string label;               // Node::loc; the name of the node's first result where that is empty
  std::string op_type;             // in the model's words, as far as they are known: "Relu"; else that of the graph
  std::vector<std::string> reads;  // without constants, each once
  std::vector<std::string> gives;
};

// Value semantics. REQUIRES: a graph without states, whose sizes are known or decided by data.
class GraphParts {
 public:
  // `op_types`: by location, what the model's own format calls the operator.
  explicit GraphParts(Graph graph, const std::map<std::string, std::string>& op_types = {});

  const Graph& graph() const { return graph_; }
  // Without constants, in an order in which each node reads only what earlier ones give.
  const std::vector<PartNode>& nodes() const { return nodes_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }  // without checks
  // The node that gives `name`, -1 for none.
  int producer(const std::string& name) const;
  // The nodes that read `name`.
  std::vector<int> readers(const std::string& name) const;

  // What a part is made of, in the order of the graph: the inputs that it needs, and what it gives.
  struct Part {
    std::set<int> nodes;
    std::vector<std::string> inputs, outputs;
    // Sizes that data decide outside of the part: the symbols, each with the value that is the size.
    std::map<std::string, std::string> sizes = {};
  };
  // The part with these nodes: its inputs are the values that they need from outside, its outputs those of their values
  // that are outputs of the model or read outside, or by nobody. A node that decides the size of an input is none of
  // the part.
  Part part(const std::set<int>& nodes) const;
  // The part as a graph; `sizes` has the number that each of Part::sizes is. UserError where it has no meaning for
  // those.
  Graph graph_of(const Part& part, const std::map<std::string, int64_t>& sizes = {}) const;
  // The labels of these nodes, each once, in order.
  std::vector<std::string> labels(const std::set<int>& nodes) const;

 private:
  Graph graph_;
  std::vector<PartNode> nodes_;
  std::vector<NodeId> ids_;  // of each of nodes_ in the graph
  std::vector<std::string> inputs_, outputs_;
  std::map<std::string, ValueId> values_;
  std::map<std::string, int> producers_;
  std::map<std::string, std::vector<int>> readers_;
  struct DataSize {
    int node = -1;      // that binds it
    std::string value;  // its result
  };
  std::map<const ExprNode*, DataSize> data_sizes_;  // by symbol
};

}  // namespace tessera::inline diagnose
