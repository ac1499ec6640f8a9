// The graph IR: SSA values and nodes over whole tensors.
//
// Semantics: nodes are pure; a node's outputs depend on its inputs, attributes and regions only. Evaluation order is
// any topological order. Element semantics are those of arith/expr.h. A graph owns its nodes and values by index;
// copying a graph copies structure, never constant data (tensors are shared).
//
// Invariants (checked by verify.h):
// - `nodes` is in topological order: every input of a node is a graph input or an output of an earlier node.
// - Each value has one definition; value names are unique and not empty.
// - Every value has the type that its operator infers from its inputs, up to layout.
// - A region's graph uses only its own inputs: a node passes the values of its graph that a region needs as operands
//   (graph/control_flow.h says which operand is which input of which region). Symbols of the graph around a region are
//   known in it.
//
// State: a graph stays pure. The value that a state has before a call is an input, the value after it an output, and
// whoever calls the graph again hands the one over as the other (interp/graph_session.h). Both are among the graph's
// inputs and outputs, at known places, so that passes treat them as they treat any other input and output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "arith/tensor_type.h"
#include "graph/attr.h"
#include "graph/runtime_check.h"

namespace tessera::inline graph {

struct OpDef;
class Graph;
using GraphPtr = std::shared_ptr<const Graph>;
using ValueId = int32_t;
using NodeId = int32_t;

struct Value {
  std::string name;
  TensorType type;
  NodeId producer = -1;  // -1: a graph input
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::vector<GraphPtr> regions;
  std::string loc;  // the model's own node name; follows the node through every pass. Several are joined by '+'.
};

// A value that lives from one call of a graph to the next, under a name that no other state of the graph has. Its type
// is that of its input and of its output.
struct State {
  std::string name;
  TensorPtr initial;  // before the first call; null: zeros
};

class Graph {
 public:
  std::string name = "main";
  std::vector<ValueId> inputs;   // the graph's own, then one for each state
  std::vector<ValueId> outputs;  // the graph's own, then one for each state, then one for each check
  std::vector<SymbolRange> symbols;
  std::vector<State> states;         // regions have none
  std::vector<RuntimeCheck> checks;  // runtime_check.h; regions have none

  size_t num_own_inputs() const { return inputs.size() - states.size(); }
  size_t num_own_outputs() const { return outputs.size() - states.size() - checks.size(); }
  size_t first_check() const { return outputs.size() - checks.size(); }  // its place among the outputs
  ValueId state_input(size_t i) const { return inputs[num_own_inputs() + i]; }
  ValueId state_output(size_t i) const { return outputs[num_own_outputs() + i]; }
  // Takes over everything but values and nodes: the name, symbols, states and checks of `other`.
  void copy_header(const Graph& other);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  // The node that defines `id`; null for graph inputs.
  const Node* producer(ValueId id) const {
    const NodeId p = value(id).producer;
    return p < 0 ? nullptr : &nodes_[static_cast<size_t>(p)];
  }

  ValueId add_input(std::string name, TensorType type);
  // Appends a node whose output types are given (no inference; GraphBuilder infers). Names of outputs that are empty
  // or taken are made unique. Invalidates references to nodes and values.
  NodeId add_node(Node node, std::vector<TensorType> types, std::vector<std::string> names = {});
  // A name not used by any value, `hint` itself when free.
  std::string unique_name(const std::string& hint);
  void rename(ValueId id, const std::string& name);

  // For each value, the nodes that read it (a node appears once per use); graph outputs are not counted.
  std::vector<std::vector<NodeId>> users() const;

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, ValueId> names_;
  std::unordered_map<std::string, int> suffix_;
};

// Appends nodes with inference. Constant data enters through `constant`.
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}

  // Runs the operator's checks and inference; UserError (with `loc` as the node) when the operands do not fit.
  std::vector<ValueId> add_multi(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {},
                                 std::vector<GraphPtr> regions = {}, std::vector<std::string> names = {});
  // The same for operators with one result.
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}, std::string name = "");
  Graph& graph() { return graph_; }
  void set_loc(std::string loc) { loc_ = std::move(loc); }
  const std::string& loc() const { return loc_; }

 private:
  Graph& graph_;
  std::string loc_;
};

// Rebuilds a graph node by node: the usual shape of a pass. `visit` is called for each node in order with its inputs
// already mapped into the new graph and returns the values in the new graph that replace its outputs; an empty
// answer copies the node. Values that end up unused stay until dead-code elimination.
// Graph inputs and outputs keep their names, which are the model's interface: the value that replaces a graph output
// takes over its name; where that cannot be (the replacement is a graph input or another output already) the node is
// copied instead.
class GraphRewriter {
 public:
  explicit GraphRewriter(const Graph& source);
  using Visit = std::vector<ValueId>(GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs);

  Graph run(const std::function<Visit>& visit);
  const Graph& source() const { return source_; }
  Graph& target() { return target_; }
  ValueId mapped(ValueId source_value) const { return map_[static_cast<size_t>(source_value)]; }
  // Copies `node` with other inputs into the target, keeping types, names and location.
  std::vector<ValueId> copy(const Node& node, const std::vector<ValueId>& inputs);

 private:
  const Graph& source_;
  Graph target_;
  std::vector<ValueId> map_;
};

}  // namespace tessera::inline graph
