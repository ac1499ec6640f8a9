// What the handler of one ONNX operator sees: the node's operands, attributes and constants, and ways to add the nodes
// of our graph that stand for it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "arith/simplify.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "import/common/emitter.h"
#include "import/common/options.h"
#include "import/onnx/dynamic/flow_builder.h"
#include "import/onnx/read/attributes.h"
#include "import/onnx/read/node_list.h"

namespace tessera::inline onnx_import {

class FailureList;

// A node in one of this node's subgraphs cannot be imported; that one is reported.
struct UnsupportedSubgraph {};

// What is around this node is computed whether it counts or not, which a step of a run cannot be: whoever opened the
// subgraph runs it as a block of its own instead.
struct NeedsBlock {};

// An input of a subgraph that runs as a block: what its name stands for is in a slot. `fixed`: a tensor that has the
// shape of its type in every run.
struct BlockInput {
  SlotId slot = -1;
  FlowType type;
  bool fixed = false;
};

// A subgraph whose nodes run as a block.
struct OpenBlock {
  std::vector<BlockInput> results;                              // of the subgraph, in slots of the block
  std::function<FlowBlock(std::vector<FlowStep> last)> finish;  // adds steps behind the others; call it once
};

class NodeContext;

// A graph for a node with control flow: its inputs are those that were asked for, then one for each value of the graph
// around it that it reads.
struct ImportedRegion {
  Graph graph;
  std::vector<ValueId> captured;  // those values
};

// Adds nodes through a context of the region's graph and answers the region's results.
using RegionBody = std::function<std::vector<ValueId>(NodeContext& inner, const std::vector<ValueId>& inputs)>;

// What all nodes of one block of an import share.
struct ImportState : EmitState {
  std::shared_ptr<LoadedModel> model;
  FlowBuilder& flow;
  FailureList& failures;  // of the whole import
  // What an ONNX name stands for; materialises initializers. Empty when its node could not be imported.
  std::function<std::optional<Binding>(const std::string& name)> lookup;
  // Adds the nodes of a subgraph, given a value for each of its inputs, and answers the values of its outputs. Throws
  // UnsupportedSubgraph.
  std::function<std::vector<Binding>(const onnx::GraphProto& graph, const FlatNode& node,
                                     const std::vector<Binding>& inputs)>
      open_subgraph;
  // The same for a subgraph without inputs that may contradict the shapes around it: then the answer is why.
  std::function<std::variant<std::vector<Binding>, Diagnostic>(const onnx::GraphProto& graph, const FlatNode& node)>
      try_subgraph;
  // Imports a subgraph as a block of its own; `first` are its first steps. Throws UnsupportedSubgraph.
  std::function<OpenBlock(const onnx::GraphProto& graph, const FlatNode& node, const std::vector<BlockInput>& inputs,
                          std::vector<FlowStep> first)>
      open_block;
  // Throws UnsupportedNode for what a region cannot say.
  std::function<ImportedRegion(const FlatNode& node, const std::string& name, const std::vector<TensorType>& inputs,
                               const RegionBody& body)>
      open_region;
  // What it answers takes back everything that was imported since, errors included.
  std::function<std::function<void()>()> checkpoint;
  // The node with its operands under other names and values, in a graph of its own: every operand that is no constant
  // is a tensor of kFlowBlock elements. Answers the number of the piece; `inputs` are those operands' slots.
  std::function<int32_t(const FlatNode& node, std::vector<SlotId>& inputs, std::vector<FlowType>& results)> elementwise;
  // The shape that the model declares for a value, itself or through values of the same shape; empty without a fixed
  // one.
  std::function<std::optional<std::vector<int64_t>>(const std::string& name)> declared;
  bool control_flow = false;                                  // ImportOptions
  std::vector<std::pair<ValueId, RuntimeCheck>> checks = {};  // of the graph so far
  // Steps are tried before pieces for operands of which some elements are known (FlowType::numbers).
  bool keeps_numbers = true;
  // The symbols of the graph, where sizes that data decide become further ones (operators/data_size.h); else null.
  KnownSymbols* known_symbols = nullptr;
  std::map<ValueId, Expr> bound_sizes = {};  // by the count
  std::vector<ValueId> conditions = {};      // one bool each, of the branches around this node that may not be taken
};

class NodeContext : public Emitter {
 public:
  NodeContext(ImportState& state, const FlatNode& node, int64_t version, std::string_view primitive);

  const std::string& op_type() const override { return node_.proto->op_type(); }
  const std::string& label() const override { return node_.label; }
  int64_t version() const { return version_; }                       // of the opset that the operator comes from
  std::string primitive() const { return std::string(primitive_); }  // as given in the operator table
  AttributeReader attrs;

  // ---- operands ----
  int num_inputs() const;  // without absent ones at the end
  bool has(int i) const;   // false for optional operands that are left out
  // UserError TSR-1041 when it is left out; UnsupportedNode when only a run knows its shape, unless the model declares
  // one, and UserError TSR-1044 when it is no tensor.
  ValueId in(int i);
  Binding binding(int i);                 // the same for whatever it is
  std::vector<ValueId> all_inputs();      // each must be there
  void require_inputs(int min, int max);  // max < 0: any number

  // ---- operands that must be known while compiling; UnsupportedNode when they depend on the model's inputs ----
  Tensor const_tensor(int i, const std::string& name);
  std::vector<int64_t> const_ints(int i, const std::string& name);  // a scalar counts as one element
  int64_t const_int(int i, const std::string& name);
  std::vector<double> const_floats(int i, const std::string& name);
  double const_float(int i, const std::string& name);
  // Those that may be computed from sizes: as expressions of the graph's symbols.
  Shape const_sizes(int i, const std::string& name);
  Expr const_size(int i, const std::string& name);
  // Operands whose values may come when the model runs (runtime_parameter.h).
  bool is_runtime(int i);  // false for operands that are left out, and for those without elements
  std::string input_name(int i, const std::string& name) const;  // "'axes' (input 1, value 'a')"
  std::optional<std::vector<int64_t>> declared_dims(int output) const;
  // UnsupportedNode, which asks for the declaration, when there is none.
  std::vector<int64_t> require_declared(int i, const std::string& name, int output = 0);
  std::string output_name(int output) const { return node_.proto->output(output); }
  // The run fails unless `holds` (one bool); the message shows `shown`, a list of i64, for operand `i`, and `legal`.
  void check_when_run(int i, const std::string& name, ValueId holds, ValueId shown, const std::string& legal) {
    check_when_run(input_name(i, name), holds, shown, legal);
  }
  void check_when_run(const std::string& what, ValueId holds, ValueId shown, const std::string& legal);
  // An attribute of older opsets that became operand `i` in opset `since`.
  std::optional<std::vector<int64_t>> ints_attr_or_input(const std::string& name, int64_t since, int i);

  std::optional<Shape> sizes_attr_or_input(const std::string& name, int64_t since, int i);

  Tensor tensor(const onnx::TensorProto& proto);  // of an attribute
  // The subgraph's nodes become nodes of the graph around it; `inputs` has a value for each of its inputs. May be
  // called again with other values. Where they are computed whether their results count or not, `counts` (one bool)
  // says whether they do: no check of theirs fails when they do not.
  std::vector<ValueId> open(const onnx::GraphProto& subgraph, const std::vector<ValueId>& inputs = {},
                            std::optional<ValueId> counts = {});
  // The same for a branch that is taken when `counts` holds. A branch may be meant for other shapes than those that the
  // model is compiled for and contradict them; then the answer is the first contradiction.
  std::variant<std::vector<Binding>, Diagnostic> try_open(const onnx::GraphProto& branch, ValueId counts);

  // ---- results ----
  int num_outputs() const { return node_.proto->output_size(); }
  bool wants(int i) const { return i < num_outputs() && !node_.proto->output(i).empty(); }
  void out(int i, ValueId v);
  // UnsupportedNode when a result from `first` on is asked for.
  void no_outputs_from(int first, const std::string& what);
  void out(int i, Binding binding);
  const std::vector<std::pair<std::string, Binding>>& results() const { return results_; }
  void forget_results() { results_.clear(); }

  // ---- strings (graph/flow.h) ----
  bool is_string(ValueId v) const { return state_.flow.is_string(v); }
  ValueId mark_string(ValueId v);  // `v` is a tensor of numbers of strings
  ValueId mark_like(ValueId v, ValueId other) { return is_string(other) ? mark_string(v) : v; }
  ValueId strings(const std::vector<std::string>& texts, std::vector<int64_t> dims);  // a constant
  int64_t string_number(const std::string& text) { return state_.flow.parts().string_number(text); }

  // ---- what only a run knows ----
  FlowType flow_type(const Binding& binding) const;
  SlotId slot(const Binding& binding);  // parts that are known become an object of the run
  SlotId slot(int i) { return has(i) ? slot(binding(i)) : -1; }
  SlotId new_slot(FlowType type) { return state_.flow.parts().new_slot(std::move(type)); }
  // What is in a slot; a value of the graph when it is a tensor that always has the shape of its type.
  Binding from_slot(SlotId slot, const FlowType& type, bool fixed);
  // A step with one result. Throws NeedsBlock inside of branches that may not be taken.
  Binding step(FlowOp op, std::vector<SlotId> inputs, const FlowType& type, bool fixed, std::vector<int64_t> ints = {});
  void add_step(FlowStep step);
  std::string step_loc() const;  // of this node's steps, for messages
  std::vector<Binding> open_bindings(const onnx::GraphProto& subgraph, const std::vector<Binding>& inputs,
                                     std::optional<ValueId> counts = {});
  OpenBlock open_block(const onnx::GraphProto& subgraph, const std::vector<BlockInput>& inputs,
                       std::vector<FlowStep> first = {}) {
    return state_.open_block(subgraph, node_, inputs, std::move(first));
  }
  ImportedRegion open_region(const std::string& name, const std::vector<TensorType>& inputs, const RegionBody& body) {
    return state_.open_region(node_, name, inputs, body);
  }
  std::function<void()> checkpoint() { return state_.checkpoint(); }
  const FlatNode& node() const { return node_; }
  ImportState& state() { return state_; }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override;

 private:
  ImportState& state_;
  const FlatNode& node_;
  int64_t version_;
  std::string_view primitive_;
  std::vector<std::pair<std::string, Binding>> results_;
};

}  // namespace tessera::inline onnx_import
