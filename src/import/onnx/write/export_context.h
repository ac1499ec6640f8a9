// The model that an export fills.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

// Every form that is written is legal from this opset on, but for what asks for a newer one.
inline constexpr int64_t kLeastOpset = 18;

class ExportContext {
 public:
  onnx::ModelProto model;
  onnx::GraphProto& graph() { return *model.mutable_graph(); }
  // Where nodes are added: the model's graph, or the subgraph that is being written. Initializers are always those of
  // the model's graph, which subgraphs see.
  onnx::GraphProto& scope() { return scope_ ? *scope_ : graph(); }

  // While it lives, nodes are added to `scope`.
  class Scope {
   public:
    Scope(ExportContext& context, onnx::GraphProto& scope) : context_(context), outer_(context.scope_) {
      context.scope_ = &scope;
    }
    ~Scope() { context_.scope_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ExportContext& context_;
    onnx::GraphProto* outer_;
  };

  // A value name that nothing has yet, `hint` itself when free.
  std::string fresh_name(const std::string& hint);
  // The name of an initializer with these values, one for equal ones.
  std::string ints(const std::vector<int64_t>& values);
  std::string scalar(DType dtype, int64_t value);
  std::string floats(const std::vector<double>& values);
  // ---- sizes (export_sizes.cpp): an initializer, or what nodes in front of all others compute from the shapes of the
  // graph's inputs; of sizes that data decide, what nodes here compute. UserError TSR-1060 for sizes that no input
  // tells, or that ONNX has no operators for.
  std::string sizes(const Shape& sizes);      // the name of a list of i64
  std::string size(const Expr& size);         // of a list of one
  std::string size_scalar(const Expr& size);  // of a scalar
  // The symbol is the extent `axis` of the graph's input `input`.
  void bind_symbol(const ExprNode* symbol, const std::string& input, int64_t axis) {
    symbols_.emplace(symbol, std::pair(input, axis));
  }
  // The symbol is the element of the list `value`, which nodes behind this one may read. REQUIRES: not in a subgraph.
  void bind_data_symbol(const ExprNode* symbol, const std::string& value) { data_symbols_.emplace(symbol, value); }
  // Puts the nodes that compute sizes in front of the graph's others.
  void finish_sizes();
  // The standard opset must be at least this one. A model gets the lowest that its nodes and types need: programs that
  // read it may know no newer one.
  void need_opset(int64_t opset) { opset_ = std::max(opset_, opset); }
  int64_t opset() const { return opset_; }

 private:
  // `late`: here, as it depends on what data decide.
  onnx::NodeProto& size_node(const std::string& op, const std::vector<std::string>& inputs, bool late);
  bool is_late(const Expr& size) const;
  // The node's result, and, where others see it, the name of this size from now on.
  std::string size_result(const std::string& key, const onnx::NodeProto& node, bool late);

  onnx::GraphProto* scope_ = nullptr;  // null: the model's graph
  onnx::GraphProto size_nodes_;
  std::unordered_map<const ExprNode*, std::pair<std::string, int64_t>> symbols_;
  std::unordered_map<const ExprNode*, std::string> data_symbols_;
  std::map<std::string, std::string> sizes_;  // by their text
  std::unordered_set<std::string> names_;
  std::map<std::vector<int64_t>, std::string> ints_;
  std::map<std::pair<DType, int64_t>, std::string> scalars_;
  std::map<std::vector<double>, std::string> floats_;
  int64_t opset_ = kLeastOpset;
};

// One node while it is written: its operands' and results' ONNX names, and the proto to fill.
struct NodeExport {
  ExportContext& context;
  const Graph& graph;
  const Node& node;
  std::vector<std::string> inputs;
  onnx::NodeProto& proto;  // outputs and name are set already
};

// Writes the node with a standard operator; false, with nothing written, when no standard operator reads back as
// exactly this node.
bool write_standard_node(NodeExport& e);
// The same for composites.
bool write_standard_composite(NodeExport& e);

// ---- for the writers ----
void set_int(onnx::NodeProto& proto, const std::string& name, int64_t value);
void set_float(onnx::NodeProto& proto, const std::string& name, double value);
void set_string(onnx::NodeProto& proto, const std::string& name, const std::string& value);
void set_ints(onnx::NodeProto& proto, const std::string& name, const std::vector<int64_t>& values);
void set_inputs(onnx::NodeProto& proto, const std::vector<std::string>& names);
// The first opset that has the values of a type, and the one from which on the standard operator takes them.
int64_t opset_of_type(DType dtype);
int64_t opset_of_operand(std::string_view op, DType dtype);
// Whether single precision holds the number exactly.
bool is_single(double value);
// Name and type. UserError TSR-1060 for layouts.
void set_value_info(onnx::ValueInfoProto& info, const std::string& name, const TensorType& type);

}  // namespace tessera::inline onnx_import
