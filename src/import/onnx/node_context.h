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

namespace tessera::inline import_common {
class FailureList;
}

namespace tessera::inline onnx_import {

// A node in one of this node's subgraphs cannot be imported; that one is reported.
struct UnsupportedSubgraph {};

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
// around it that it reads; its results are those that were asked for, then one for each check.
struct ImportedRegion {
  Graph graph;
  std::vector<ValueId> captured;     // those values
  std::vector<RuntimeCheck> checks;  // of values that a run makes in the region
  std::vector<bool> strings;         // by result: its elements are numbers of strings
};

// Why the graph cannot say what an operator with subgraphs does.
struct NotInGraph {
  enum class Why : uint8_t {
    kRun,     // parts of a subgraph are steps of a run, or it reads what only a run knows
    kForm,    // the subgraph gives something of another type than it has to
    kFailed,  // nodes of a subgraph cannot be imported; they are on the list of failures
  } why = Why::kRun;
  std::string reason = {};
};

// Adds nodes through a context of the region's graph and answers the region's results.
using RegionBody = std::function<std::variant<std::vector<ValueId>, NotInGraph>(NodeContext& inner,
                                                                                const std::vector<ValueId>& inputs)>;

// What all nodes of one block of an import share.
struct ImportState : EmitState {
  std::shared_ptr<LoadedModel> model;
  FlowBuilder& flow;
  FailureList& failures;  // of the whole import
  // What an ONNX name stands for; materialises initializers. Empty when its node could not be imported.
  std::function<std::optional<Binding>(const std::string& name)> lookup;
  // Adds the nodes of a subgraph, given a value for each of its inputs, and answers the values of its outputs; none
  // when nodes of it cannot be imported, which are on the list of failures.
  std::function<std::optional<std::vector<Binding>>(const onnx::GraphProto& graph, const FlatNode& node,
                                                    const std::vector<Binding>& inputs)>
      open_subgraph;
  // Imports a subgraph as a block of its own; `first` are its first steps. None as above.
  std::function<std::optional<OpenBlock>(const onnx::GraphProto& graph, const FlatNode& node,
                                         const std::vector<BlockInput>& inputs, std::vector<FlowStep> first)>
      open_block;
  std::function<std::variant<ImportedRegion, NotInGraph>(const FlatNode& node, const std::string& name,
                                                         const std::vector<TensorType>& inputs, const RegionBody& body)>
      open_region;
  // What it answers takes back everything that was imported since, errors included.
  std::function<std::function<void()>()> checkpoint;
  // The node with its operands under other names and values, in a graph of its own: every operand that is no constant
  // is a tensor of kFlowBlock elements. Answers the number of the piece; `inputs` are those operands' slots.
  std::function<int32_t(const FlatNode& node, std::vector<SlotId>& inputs, std::vector<FlowType>& results)> elementwise;
  // The shape that the model declares for a value, itself or through values of the same shape; empty without a fixed
  // one.
  std::function<std::optional<std::vector<int64_t>>(const std::string& name)> declared;
  bool loop_nodes = false;                                    // ImportOptions
  bool for_training = false;                                  // ImportOptions
  std::vector<std::pair<ValueId, RuntimeCheck>> checks = {};  // of the graph so far
  // Steps are tried before pieces for operands of which some elements are known (FlowType::numbers).
  bool keeps_numbers = true;
  // The symbols of the graph, where sizes that data decide become further ones (operators/data_size.h); else null.
  KnownSymbols* known_symbols = nullptr;
  std::map<ValueId, Expr> bound_sizes = {};  // by the count
  std::vector<ValueId> conditions = {};      // one bool each: what is around this node counts when all hold
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
  bool has_value(int i);                  // whether in(i) has an answer; false for operands that are left out
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
  // A check whose list is there already: a region has made it.
  void add_check(ValueId list, RuntimeCheck check);
  // An attribute of older opsets that became operand `i` in opset `since`.
  std::optional<std::vector<int64_t>> ints_attr_or_input(const std::string& name, int64_t since, int i);

  std::optional<Shape> sizes_attr_or_input(const std::string& name, int64_t since, int i);

  Tensor tensor(const onnx::TensorProto& proto);  // of an attribute
  // The subgraph's nodes become nodes of the graph around it; `inputs` has a value for each of its inputs. May be
  // called again with other values. Where they are computed whether their results count or not, `counts` (one bool)
  // says whether they do: no check of theirs fails when they do not.
  std::vector<ValueId> open(const onnx::GraphProto& subgraph, const std::vector<ValueId>& inputs = {},
                            std::optional<ValueId> counts = {});
  // None when nodes of it cannot be imported, which are on the list of failures.
  std::optional<std::vector<Binding>> try_open(const onnx::GraphProto& subgraph, const std::vector<Binding>& inputs,
                                               std::optional<ValueId> counts = {});

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
  // A step with one result. UnsupportedNode inside of what is computed and may not count.
  Binding step(FlowOp op, std::vector<SlotId> inputs, const FlowType& type, bool fixed, std::vector<int64_t> ints = {});
  void add_step(FlowStep step);
  std::string step_loc() const;  // of this node's steps, for messages
  std::vector<Binding> open_bindings(const onnx::GraphProto& subgraph, const std::vector<Binding>& inputs,
                                     std::optional<ValueId> counts = {});
  std::optional<OpenBlock> try_open_block(const onnx::GraphProto& subgraph, const std::vector<BlockInput>& inputs,
                                          std::vector<FlowStep> first = {}) {
    return state_.open_block(subgraph, node_, inputs, std::move(first));
  }
  OpenBlock open_block(const onnx::GraphProto& subgraph, const std::vector<BlockInput>& inputs,
                       std::vector<FlowStep> first = {});
  std::variant<ImportedRegion, NotInGraph> open_region(const std::string& name, const std::vector<TensorType>& inputs,
                                                       const RegionBody& body) {
    return state_.open_region(node_, name, inputs, body);
  }
  std::function<void()> checkpoint() { return state_.checkpoint(); }
  const FlatNode& node() const { return node_; }
  ImportState& state() { return state_; }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override;

 private:
  void check_unconditional() const;

  ImportState& state_;
  const FlatNode& node_;
  int64_t version_;
  std::string_view primitive_;
  std::vector<std::pair<std::string, Binding>> results_;
};

}  // namespace tessera::inline onnx_import
