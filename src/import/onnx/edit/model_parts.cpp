#include "import/onnx/edit/model_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/model_file.h"
#include "import/onnx/read/node_list.h"
#include "import/onnx/read/tensor_reader.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline onnx_import {
namespace {

std::vector<std::string> unique_names(const std::vector<std::string>& names) {
  std::vector<std::string> result;
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (!name.empty() && seen.insert(name).second) result.push_back(name);
  return result;
}

void declare(onnx::ValueInfoProto& info, const std::string& name, const PartType& type) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx_of_dtype(type.dtype));
  tensor.mutable_shape();
  for (const int64_t dim : type.dims) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
}

// Weights of other files come into the model.
void copy_weight(const onnx::TensorProto& from, const std::shared_ptr<LoadedModel>& model, onnx::TensorProto& to) {
  if (from.data_location() != onnx::TensorProto::EXTERNAL) {
    to = from;
    return;
  }
  tensor_to_proto(tensor_from_proto(from, model, model->external, from.name()), to);
  to.set_name(from.name());
}

}  // namespace

ModelParts ModelParts::read(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto file = MappedFile::open(path, "model", "TSR-1001");
  return ModelParts(load_model(file->text(), fmt::format("'{}'", path), folder.empty() ? "." : folder.string()));
}

ModelParts ModelParts::of_bytes(std::string_view bytes) { return ModelParts(load_model(bytes, "the model", "")); }

ModelParts::ModelParts(std::shared_ptr<LoadedModel> model) : model_(std::move(model)) {
  const onnx::GraphProto& graph = model_->proto.graph();
  std::set<std::string> defined;
  for (int i = 0; i < graph.initializer_size(); ++i) {
    weights_[graph.initializer(i).name()] = i;
    defined.insert(graph.initializer(i).name());
  }
  for (const auto& input : graph.input())
    if (defined.insert(input.name()).second) inputs_.push_back(input.name());
  for (const auto& output : graph.output()) outputs_.push_back(output.name());
  std::unordered_map<const onnx::NodeProto*, int> index;
  for (int i = 0; i < graph.node_size(); ++i) index[&graph.node(i)] = i;
  // Every operator counts as known: calls of functions stay closed.
  for (const FlatNode& node : flatten_nodes(*model_, defined, [](const FlatNode&) { return true; })) {
    const std::string domain = standard_domain(node.proto->domain());
    PartNode entry{node.label, domain.empty() ? node.proto->op_type() : domain + "." + node.proto->op_type(),
                   unique_names(read_names(*node.proto)),
                   unique_names({node.proto->output().begin(), node.proto->output().end()})};
    const auto number = static_cast<int>(nodes_.size());
    for (const std::string& name : entry.reads) readers_[name].push_back(number);
    for (const std::string& name : entry.gives) producers_[name] = number;
    nodes_.push_back(std::move(entry));
    index_.push_back(index.at(node.proto));
  }
}

int ModelParts::producer(const std::string& name) const {
  const auto it = producers_.find(name);
  return it == producers_.end() ? -1 : it->second;
}

std::vector<int> ModelParts::readers(const std::string& name) const {
  const auto it = readers_.find(name);
  return it == readers_.end() ? std::vector<int>() : it->second;
}

ModelParts::Part ModelParts::part(const std::set<int>& nodes) const {
  Part part{nodes, {}, {}};
  const std::set<std::string> model_outputs(outputs_.begin(), outputs_.end());
  std::set<std::string> seen;
  for (const int number : nodes) {
    const PartNode& node = nodes_[static_cast<size_t>(number)];
    for (const std::string& name : node.reads) {
      if (is_weight(name) || nodes.count(producer(name)) || !seen.insert(name).second) continue;
      part.inputs.push_back(name);
    }
    for (const std::string& name : node.gives) {
      const std::vector<int> users = readers(name);
      const bool outside = std::any_of(users.begin(), users.end(), [&](int user) { return !nodes.count(user); });
      if (outside || users.empty() || model_outputs.count(name)) part.outputs.push_back(name);
    }
  }
  return part;
}

std::optional<std::string> ModelParts::write(const Part& part, const std::map<std::string, PartType>& types) const {
  const onnx::ModelProto& whole = model_->proto;
  onnx::ModelProto model;
  model.set_ir_version(std::max<int64_t>(whole.ir_version(), 4));  // from 4 on weights need not be inputs
  model.set_producer_name("tessera");
  *model.mutable_opset_import() = whole.opset_import();
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name(whole.graph().name());
  for (const std::string& name : part.inputs) {
    const auto type = types.find(name);
    if (type == types.end()) return std::nullopt;
    declare(*graph.add_input(), name, type->second);
  }
  std::set<std::string> wanted;
  bool calls = false;
  for (const int number : part.nodes) {
    const onnx::NodeProto& node = whole.graph().node(index_[static_cast<size_t>(number)]);
    *graph.add_node() = node;
    if (node.name().empty())
      graph.mutable_node(graph.node_size() - 1)->set_name(nodes_[static_cast<size_t>(number)].label);
    const auto& reads = nodes_[static_cast<size_t>(number)].reads;
    wanted.insert(reads.begin(), reads.end());
    calls = calls || whole.functions_size() > 0;
  }
  if (calls) *model.mutable_functions() = whole.functions();
  // Declared types of values inside are needed where a shape cannot be inferred.
  const std::set<std::string> outputs(part.outputs.begin(), part.outputs.end());
  for (const auto& info : whole.graph().value_info()) {
    if (part.nodes.count(producer(info.name())) && !outputs.count(info.name())) *graph.add_value_info() = info;
  }
  for (const std::string& name : part.outputs) {
    onnx::ValueInfoProto& output = *graph.add_output();
    output.set_name(name);
    const auto is_named = [&](const onnx::ValueInfoProto& info) { return info.name() == name; };
    const auto& declared = whole.graph().output();
    if (const auto type = types.find(name); type != types.end()) declare(output, name, type->second);
    else if (const auto it = std::find_if(declared.begin(), declared.end(), is_named); it != declared.end())
      output = *it;
  }
  for (const auto& [name, index] : weights_) {
    if (wanted.count(name)) copy_weight(whole.graph().initializer(index), model_, *graph.add_initializer());
  }
  if (model.ByteSizeLong() > INT32_MAX) {
    throw UserError({"TSR-1061", fmt::format("the part of the model would have {} bytes", model.ByteSizeLong()), "",
                     "less than 2 GB, the limit of protobuf", "look at a part with fewer weights"});
  }
  return model.SerializeAsString();
}

}  // namespace tessera::inline onnx_import
