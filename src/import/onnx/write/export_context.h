// The model that an export fills.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

class ExportContext {
 public:
  onnx::ModelProto model;
  onnx::GraphProto& graph() { return *model.mutable_graph(); }

  // A value name that nothing has yet, `hint` itself when free.
  std::string fresh_name(const std::string& hint);
  // The name of an initializer with these values, one for equal ones.
  std::string ints(const std::vector<int64_t>& values);
  std::string scalar(DType dtype, int64_t value);
  std::string floats(const std::vector<double>& values);
  // The standard opset must be at least this one.
  void need_opset(int64_t opset) { opset_ = std::max(opset_, opset); }
  int64_t opset() const { return opset_; }

 private:
  std::unordered_set<std::string> names_;
  std::map<std::vector<int64_t>, std::string> ints_;
  std::map<std::pair<DType, int64_t>, std::string> scalars_;
  std::map<std::vector<double>, std::string> floats_;
  int64_t opset_ = 21;
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
// Whether single precision holds the number exactly.
bool is_single(double value);

}  // namespace tessera::inline onnx_import
