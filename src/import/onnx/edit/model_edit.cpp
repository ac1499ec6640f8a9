#include "import/onnx/edit/model_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/model_file.h"
#include "import/onnx/read/node_list.h"
#include "import/onnx/read/tensor_reader.h"
#include "support/error.h"

namespace tessera::inline onnx_import {

struct EditableModel::Proto {
  onnx::ModelProto model;
};

namespace {

void declare(onnx::ValueInfoProto& info, const std::string& name, const EditType& type) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx_of_dtype(type.dtype));
  tensor.clear_shape();
  tensor.mutable_shape();
  for (const int64_t dim : type.dims) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
}

// The names that nodes and subgraphs read, those of outputs included.
std::set<std::string> names_read(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& node : graph.node())
    for (std::string& name : read_names(node)) names.insert(std::move(name));
  for (const auto& output : graph.output()) names.insert(output.name());
  return names;
}

// Drops nodes, weights and inputs that no output needs.
void drop_unused(onnx::GraphProto& graph) {
  std::map<std::string, int> producer;
  for (int i = 0; i < graph.node_size(); ++i)
    for (const std::string& name : graph.node(i).output()) producer[name] = i;
  std::set<int> live;
  std::vector<std::string> pending;
  for (const auto& output : graph.output()) pending.push_back(output.name());
  while (!pending.empty()) {
    const auto it = producer.find(pending.back());
    pending.pop_back();
    if (it == producer.end() || !live.insert(it->second).second) continue;
    for (std::string& name : read_names(graph.node(it->second))) pending.push_back(std::move(name));
  }
  for (int i = graph.node_size(); i-- > 0;)
    if (!live.count(i)) graph.mutable_node()->DeleteSubrange(i, 1);
  const std::set<std::string> read = names_read(graph);
  for (int i = graph.initializer_size(); i-- > 0;)
    if (!read.count(graph.initializer(i).name())) graph.mutable_initializer()->DeleteSubrange(i, 1);
  for (int i = graph.input_size(); i-- > 0;)
    if (!read.count(graph.input(i).name())) graph.mutable_input()->DeleteSubrange(i, 1);
}

// The elements of `tensor` whose index along each axis is below that of `dims`.
Tensor cut(const Tensor& tensor, const std::vector<int64_t>& dims) {
  Tensor result(tensor.dtype(), dims);
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t flat = 0; flat < result.num_elements(); ++flat) {
    int64_t from = 0;
    for (size_t d = 0; d < dims.size(); ++d) from = from * tensor.dims()[d] + index[d];
    if (is_float(tensor.dtype())) result.set_double(flat, tensor.get_double(from));
    else result.set_int(flat, tensor.get_int(from));
    for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
  return result;
}

std::optional<Tensor> read_weight(const onnx::TensorProto& proto) {
  if (!dtype_of_onnx(proto.data_type()) || proto.data_type() == onnx::TensorProto::STRING) return std::nullopt;
  ExternalData none("");
  const auto own = std::make_shared<onnx::TensorProto>(proto);
  try {
    return tensor_from_proto(*own, own, none, proto.name());
  } catch (const UserError&) {
    return std::nullopt;  // what a malformed model holds stays as it is
  }
}

void write_weight(const Tensor& tensor, onnx::TensorProto& proto) {
  const std::string name = proto.name();
  proto.Clear();
  tensor_to_proto(tensor, proto);
  proto.set_name(name);
}

}  // namespace

EditableModel EditableModel::read(std::string_view bytes, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto loaded = load_model(bytes, fmt::format("'{}'", path), folder.empty() ? "." : folder.string());
  auto proto = std::make_shared<Proto>();
  proto->model = loaded->proto;
  for (auto& tensor : *proto->model.mutable_graph()->mutable_initializer()) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) continue;
    onnx::TensorProto whole;
    tensor_to_proto(tensor_from_proto(tensor, loaded, loaded->external, tensor.name()), whole);
    whole.set_name(tensor.name());
    tensor = std::move(whole);
  }
  return EditableModel(std::move(proto));
}

EditableModel EditableModel::of_bytes(std::string_view bytes) {
  auto proto = std::make_shared<Proto>();
  proto->model = load_model(bytes, "the model", "")->proto;
  return EditableModel(std::move(proto));
}

std::string EditableModel::bytes() const {
  if (proto_->model.ByteSizeLong() > INT32_MAX) {
    throw UserError({"TSR-1061", fmt::format("the model would have {} bytes", proto_->model.ByteSizeLong()), "",
                     "less than 2 GB, the limit of protobuf", "look at a part with fewer weights"});
  }
  return proto_->model.SerializeAsString();
}
int EditableModel::num_nodes() const { return proto_->model.graph().node_size(); }
int EditableModel::num_outputs() const { return proto_->model.graph().output_size(); }

std::vector<std::string> EditableModel::input_names() const {
  const onnx::GraphProto& graph = proto_->model.graph();
  std::set<std::string> weights;
  for (const auto& weight : graph.initializer()) weights.insert(weight.name());
  std::vector<std::string> names;
  for (const auto& input : graph.input())
    if (!weights.count(input.name())) names.push_back(input.name());
  return names;
}

std::set<std::string> EditableModel::values_given() const {
  std::set<std::string> names;
  for (const auto& node : proto_->model.graph().node()) names.insert(node.output().begin(), node.output().end());
  return names;
}

EditableModel EditableModel::with_outputs(const std::vector<std::string>& names, const Types& types) const {
  auto copy = std::make_shared<Proto>(*proto_);
  onnx::GraphProto& graph = *copy->model.mutable_graph();
  graph.clear_output();
  for (const std::string& name : names) {
    const auto type = types.find(name);
    if (type != types.end()) declare(*graph.add_output(), name, type->second);
    else graph.add_output()->set_name(name);
  }
  for (auto& input : *graph.mutable_input())
    if (const auto type = types.find(input.name()); type != types.end()) declare(input, input.name(), type->second);
  drop_unused(graph);
  return EditableModel(std::move(copy), types_);
}

int64_t EditableModel::num_elements() const {
  int64_t sum = 0;
  for (const auto& tensor : proto_->model.graph().initializer()) {
    const auto count = checked_num_elements({tensor.dims().begin(), tensor.dims().end()});
    sum += count.value_or(0);
  }
  return sum;
}

std::vector<int64_t> EditableModel::dims() const {
  std::set<int64_t, std::greater<>> found;
  for (const auto& tensor : proto_->model.graph().initializer())
    found.insert(tensor.dims().begin(), tensor.dims().end());
  for (const auto& input : proto_->model.graph().input())
    for (const auto& dim : input.type().tensor_type().shape().dim()) found.insert(dim.dim_value());
  std::vector<int64_t> result;
  for (const int64_t dim : found)
    if (dim > 1) result.push_back(dim);
  return result;
}

std::optional<EditableModel> EditableModel::with_nodes(const std::set<int>& nodes) const {
  if (nodes.empty() || std::ssize(nodes) == num_nodes()) return std::nullopt;
  auto copy = std::make_shared<Proto>(*proto_);
  onnx::GraphProto& graph = *copy->model.mutable_graph();
  std::set<std::string> gone, given;
  for (int i = graph.node_size(); i-- > 0;) {
    const auto& outputs = graph.node(i).output();
    (nodes.count(i) ? given : gone).insert(outputs.begin(), outputs.end());
    if (!nodes.count(i)) graph.mutable_node()->DeleteSubrange(i, 1);
  }
  for (int i = graph.output_size(); i-- > 0;)
    if (gone.count(graph.output(i).name())) graph.mutable_output()->DeleteSubrange(i, 1);
  const std::set<std::string> read = names_read(graph);
  for (const std::string& name : read) {
    if (!gone.count(name) || name.empty()) continue;
    const auto type = types_.find(name);
    if (type == types_.end()) return std::nullopt;
    declare(*graph.add_input(), name, type->second);
  }
  for (const std::string& name : given) {
    if (name.empty() || read.count(name)) continue;
    onnx::ValueInfoProto& output = *graph.add_output();
    output.set_name(name);
    if (const auto type = types_.find(name); type != types_.end()) declare(output, name, type->second);
  }
  if (graph.output_size() == 0) return std::nullopt;
  drop_unused(graph);
  return EditableModel(std::move(copy), types_);
}

std::optional<EditableModel> EditableModel::with_output(int output) const {
  if (num_outputs() < 2) return std::nullopt;
  auto copy = std::make_shared<Proto>(*proto_);
  onnx::GraphProto& graph = *copy->model.mutable_graph();
  const onnx::ValueInfoProto kept = graph.output(output);
  graph.clear_output();
  *graph.add_output() = kept;
  drop_unused(graph);
  return EditableModel(std::move(copy), types_);
}

std::optional<EditableModel> EditableModel::without_node(int node, int operand) const {
  const onnx::NodeProto& gone = proto_->model.graph().node(node);
  if (operand >= gone.input_size() || gone.output_size() == 0) return std::nullopt;
  const std::string from = gone.output(0), to = gone.input(operand);
  const auto type = types_.find(from), other = types_.find(to);
  if (type == types_.end() || other == types_.end() || !(type->second == other->second)) return std::nullopt;
  auto copy = std::make_shared<Proto>(*proto_);
  onnx::GraphProto& graph = *copy->model.mutable_graph();
  for (auto& reader : *graph.mutable_node())
    for (std::string& input : *reader.mutable_input())
      if (input == from) input = to;
  // Only a value that a node gives can be an output.
  const auto gives = [&](const onnx::NodeProto& n) {
    return std::find(n.output().begin(), n.output().end(), to) != n.output().end();
  };
  const bool given = std::any_of(graph.node().begin(), graph.node().end(), gives);
  for (auto& output : *graph.mutable_output()) {
    if (output.name() != from) continue;
    if (!given) return std::nullopt;
    declare(output, to, other->second);
  }
  std::set<std::string> names;
  for (const auto& output : graph.output())
    if (!names.insert(output.name()).second) return std::nullopt;
  drop_unused(graph);
  return EditableModel(std::move(copy), types_);
}

std::optional<EditableModel> EditableModel::without_attribute(int node, int attribute) const {
  auto copy = std::make_shared<Proto>(*proto_);
  copy->model.mutable_graph()->mutable_node(node)->mutable_attribute()->DeleteSubrange(attribute, 1);
  return EditableModel(std::move(copy), types_);
}

std::optional<EditableModel> EditableModel::with_dimension(int64_t from, int64_t to) const {
  auto copy = std::make_shared<Proto>(*proto_);
  onnx::GraphProto& graph = *copy->model.mutable_graph();
  for (auto& input : *graph.mutable_input())
    for (auto& dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      if (dim.dim_value() == from) dim.set_dim_value(to);
  for (auto& output : *graph.mutable_output()) output.mutable_type()->mutable_tensor_type()->clear_shape();
  graph.clear_value_info();
  for (auto& proto : *graph.mutable_initializer()) {
    std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
    const bool has_dim = std::count(dims.begin(), dims.end(), from) > 0;
    const bool is_list = proto.data_type() == onnx::TensorProto::INT64 && dims.size() <= 1;
    if (!has_dim && !is_list) continue;
    const auto tensor = read_weight(proto);
    if (!tensor) return std::nullopt;
    std::replace(dims.begin(), dims.end(), from, to);
    Tensor changed = cut(*tensor, dims);
    if (is_list)
      for (int64_t i = 0; i < changed.num_elements(); ++i)
        if (changed.get_int(i) == from) changed.set_int(i, to);
    write_weight(changed, proto);
  }
  for (auto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute())
      for (auto& number : *attribute.mutable_ints())
        if (number == from) number = to;
  return EditableModel(std::move(copy), types_);
}

std::optional<EditableModel> EditableModel::with_plain_weight(int weight) const {
  const auto tensor = read_weight(proto_->model.graph().initializer(weight));
  if (!tensor || !is_float(tensor->dtype())) return std::nullopt;
  bool plain = true;
  for (int64_t i = 0; i < tensor->num_elements() && plain; ++i) plain = tensor->get_double(i) == 1;
  if (plain) return std::nullopt;
  Tensor ones(tensor->dtype(), tensor->dims());
  for (int64_t i = 0; i < ones.num_elements(); ++i) ones.set_double(i, 1);
  auto copy = std::make_shared<Proto>(*proto_);
  write_weight(ones, *copy->model.mutable_graph()->mutable_initializer(weight));
  return EditableModel(std::move(copy), types_);
}

int EditableModel::num_details() const {
  int count = proto_->model.graph().initializer_size();
  for (const auto& node : proto_->model.graph().node()) count += node.attribute_size();
  return count;
}

std::optional<EditableModel> EditableModel::with_plain_detail(int detail) const {
  const onnx::GraphProto& graph = proto_->model.graph();
  if (detail < graph.initializer_size()) return with_plain_weight(detail);
  detail -= graph.initializer_size();
  for (int node = 0; node < graph.node_size(); detail -= graph.node(node++).attribute_size())
    if (detail < graph.node(node).attribute_size()) return without_attribute(node, detail);
  return std::nullopt;
}

EditableModel EditableModel::with_types(Types types) const {
  auto copy = std::make_shared<Proto>(*proto_);
  for (auto& output : *copy->model.mutable_graph()->mutable_output()) {
    const auto type = types.find(output.name());
    if (type != types.end()) declare(output, output.name(), type->second);
    else if (!output.type().tensor_type().has_shape()) output.clear_type();
  }
  return EditableModel(std::move(copy), std::move(types));
}

EditableModel EditableModel::tidied() const {
  auto copy = std::make_shared<Proto>(*proto_);
  onnx::ModelProto& model = copy->model;
  model.clear_doc_string();
  model.clear_metadata_props();
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.clear_doc_string();
  graph.clear_value_info();
  graph.clear_quantization_annotation();
  for (auto& node : *graph.mutable_node()) {
    node.clear_doc_string();
    node.clear_metadata_props();
  }
  drop_unused(graph);
  std::set<std::string> used;
  for (const auto& node : graph.node()) used.insert(node.op_type());
  const auto is_used = [&](const onnx::FunctionProto& function) { return used.count(function.name()) != 0; };
  if (std::none_of(model.functions().begin(), model.functions().end(), is_used)) model.clear_functions();
  return EditableModel(std::move(copy), types_);
}

}  // namespace tessera::inline onnx_import
