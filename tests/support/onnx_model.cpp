#include "support/onnx_model.h"

#include "interp/graph_interp.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

onnx::AttributeProto& new_attribute(onnx::NodeProto& node, const std::string& name,
                                    onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

}  // namespace

OnnxModel::OnnxModel(int64_t opset) {
  proto.set_ir_version(8);
  proto.add_opset_import()->set_version(opset);
  graph().set_name("test");
}

OnnxModel& OnnxModel::input(const std::string& name, const std::vector<int64_t>& dims, int data_type) {
  onnx::ValueInfoProto& info = *graph().add_input();
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(data_type);
  tensor.mutable_shape();
  for (const int64_t dim : dims) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
  return *this;
}

OnnxModel& OnnxModel::open_input(const std::string& name, const std::vector<Dim>& dims) {
  input(name, {});
  auto& shape =
      *graph().mutable_input(graph().input_size() - 1)->mutable_type()->mutable_tensor_type()->mutable_shape();
  for (const auto& [value, dim_name] : dims) {
    auto& dim = *shape.add_dim();
    if (dim_name.empty()) dim.set_dim_value(value);
    else dim.set_dim_param(dim_name);
  }
  return *this;
}

OnnxModel& OnnxModel::output(const std::string& name) {
  graph().add_output()->set_name(name);
  return *this;
}

OnnxModel& OnnxModel::floats(const std::string& name, const std::vector<int64_t>& dims,
                             const std::vector<float>& values) {
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  for (const float value : values) tensor.add_float_data(value);
  return *this;
}

OnnxModel& OnnxModel::ints(const std::string& name, const std::vector<int64_t>& dims,
                           const std::vector<int64_t>& values) {
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::INT64);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  for (const int64_t value : values) tensor.add_int64_data(value);
  return *this;
}

onnx::NodeProto& OnnxModel::node(const std::string& op, const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = *graph().add_node();
  node.set_op_type(op);
  if (!outputs.empty()) node.set_name("N" + outputs[0]);
  for (const std::string& name : inputs) node.add_input(name);
  for (const std::string& name : outputs) node.add_output(name);
  return node;
}

Graph OnnxModel::import(const ImportOptions& options) const {
  GraphInterpreter evaluator;
  return import_onnx_bytes(bytes(), options, standard_ops(), evaluator);
}

void set_attribute(onnx::NodeProto& node, const std::string& name, int64_t value) {
  new_attribute(node, name, onnx::AttributeProto::INT).set_i(value);
}

void set_attribute(onnx::NodeProto& node, const std::string& name, float value) {
  new_attribute(node, name, onnx::AttributeProto::FLOAT).set_f(value);
}

void set_attribute(onnx::NodeProto& node, const std::string& name, const std::string& value) {
  new_attribute(node, name, onnx::AttributeProto::STRING).set_s(value);
}

void set_attribute(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  onnx::AttributeProto& attribute = new_attribute(node, name, onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}

}  // namespace tessera
