// A graph that can be made smaller, step by step: the edits that `tessera reduce` tries. Each gives a changed copy that
// verifies, or nothing where it would change nothing or the graph would no longer be whole. Whether the result still
// means anything is for whoever runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tessera::inline diagnose {

// Nodes are those of the graph itself, constants excepted; a node's regions go with it, until an edit opens them.
class EditableGraph {
 public:
  explicit EditableGraph(Graph graph) : graph_(std::move(graph)) {}

  const Graph& graph() const { return graph_; }
  int num_nodes() const;
  int num_outputs() const { return static_cast<int>(graph_.num_own_outputs()); }  // without states and checks
  int64_t num_elements() const;       // of constants, those of regions included
  std::vector<int64_t> dims() const;  // different dimensions above 1 of inputs and constants, the largest first

  // Only these nodes: values that the others gave become inputs, and values that nobody reads any more outputs. A state
  // whose new value is no longer computed becomes a plain input.
  std::optional<EditableGraph> with_nodes(const std::set<int>& nodes) const;
  // Only this output, with what it, the states and the checks need.
  std::optional<EditableGraph> with_output(int output) const;
  // Whoever reads the node's only result reads its operand `operand` instead, which has the same type.
  std::optional<EditableGraph> without_node(int node, int operand) const;
  // `to` in place of every dimension `from` of inputs and constants and of every number `from` among attributes;
  // constants lose what lies behind. Types are inferred again.
  std::optional<EditableGraph> with_dimension(int64_t from, int64_t to) const;

  // One of `num_details()` edits that take a detail away: a call or a branch in the place of its node, a region in the
  // place of the graph, a number in the place of a symbol, a plain input and output in the place of a state, no checks,
  // a plainer attribute, a constant of ones. Empty where there is nothing to make plainer.
  int num_details() const;
  std::optional<EditableGraph> with_plain_detail(int detail) const;

  // Without nodes and inputs that no output needs.
  std::optional<EditableGraph> tidied() const;

 private:
  struct Detail {
    enum class Kind : uint8_t { kOnes, kAttribute, kNoChecks, kState, kSymbol, kOpen, kDescend };
    Kind kind;
    NodeId node = -1;
    int number = 0;         // of the state, symbol, region or variant
    std::string attribute;  // kAttribute
  };
  std::vector<Detail> details() const;
  std::vector<NodeId> ids() const;  // of the nodes that are no constants

  Graph graph_;
};

}  // namespace tessera::inline diagnose
