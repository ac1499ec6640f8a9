#include "import/onnx/write/onnx_export.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/write/export_context.h"
#include "import/onnx/write/own_domain.h"
#include "ops/composites/composites.h"
#include "support/error.h"

namespace tessera::inline onnx_import {

// ---- ExportContext ----

std::string ExportContext::fresh_name(const std::string& hint) {
  std::string name = hint;
  for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", hint, i);
  return name;
}

std::string ExportContext::ints(const std::vector<int64_t>& values) {
  const auto [it, inserted] = ints_.emplace(values, "");
  if (!inserted) return it->second;
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor_to_proto(Tensor::from_ints(values), tensor);
  tensor.set_name(fresh_name("ints"));
  return it->second = tensor.name();
}

std::string ExportContext::scalar(DType dtype, int64_t value) {
  const auto [it, inserted] = scalars_.emplace(std::make_pair(dtype, value), "");
  if (!inserted) return it->second;
  Tensor data(dtype, {});
  data.set_int(0, value);
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor_to_proto(data, tensor);
  tensor.set_name(fresh_name("scalar"));
  return it->second = tensor.name();
}

std::string ExportContext::floats(const std::vector<double>& values) {
  const auto [it, inserted] = floats_.emplace(values, "");
  if (!inserted) return it->second;
  Tensor data(DType::kF32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) data.set_double(static_cast<int64_t>(i), values[i]);
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor_to_proto(data, tensor);
  tensor.set_name(fresh_name("floats"));
  return it->second = tensor.name();
}

// ---- attributes ----

namespace {

onnx::AttributeProto& add_attribute(onnx::NodeProto& proto, const std::string& name,
                                    onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *proto.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

}  // namespace

void set_int(onnx::NodeProto& proto, const std::string& name, int64_t value) {
  add_attribute(proto, name, onnx::AttributeProto::INT).set_i(value);
}

void set_float(onnx::NodeProto& proto, const std::string& name, double value) {
  add_attribute(proto, name, onnx::AttributeProto::FLOAT).set_f(static_cast<float>(value));
}

void set_string(onnx::NodeProto& proto, const std::string& name, const std::string& value) {
  add_attribute(proto, name, onnx::AttributeProto::STRING).set_s(value);
}

void set_ints(onnx::NodeProto& proto, const std::string& name, const std::vector<int64_t>& values) {
  auto& attribute = add_attribute(proto, name, onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}

void set_inputs(onnx::NodeProto& proto, const std::vector<std::string>& names) {
  for (const std::string& name : names) proto.add_input(name);
}

bool is_single(double value) { return static_cast<double>(static_cast<float>(value)) == value; }

// ---- the graph ----

namespace {

class Exporter {
 public:
  // With `data`, constants' bytes are left out of the model and listed there, in the order of their offsets.
  explicit Exporter(std::vector<TensorPtr>* data, std::string data_name)
      : data_(data), data_name_(std::move(data_name)) {}

  onnx::ModelProto run(const Graph& graph) {
    onnx::ModelProto& model = context_.model;
    model.set_ir_version(10);
    model.set_producer_name("tessera");
    context_.graph().set_name(graph.name);
    if (!graph.states.empty())
      throw UserError({"TSR-1060", fmt::format("the graph has state {}", graph.states[0].name), "",
                       "graphs without state", "export its calls as a graph whose inputs and outputs are the states"});
    std::vector<std::string> names(graph.values().size());
    // Inputs and outputs keep their names, so they come first.
    for (const ValueId input : graph.inputs) {
      names[index(input)] = context_.fresh_name(graph.value(input).name);
      add_value_info(graph.value(input), *context_.graph().add_input());
    }
    std::vector<std::pair<std::string, std::string>> copies;
    // ONNX has no word for checks: what they compute is left without a reader.
    for (const ValueId output : std::span(graph.outputs).first(graph.num_own_outputs())) {
      std::string& name = names[index(output)];
      const std::string own = context_.fresh_name(graph.value(output).name);
      if (name.empty()) name = own;
      else copies.emplace_back(name, own);
      onnx::ValueInfoProto& info = *context_.graph().add_output();
      add_value_info(graph.value(output), info);
      info.set_name(own);
    }
    write_nodes(graph, names);
    for (const auto& [from, to] : copies) write_copy(from, to, "");
    onnx::OperatorSetIdProto& standard = *model.add_opset_import();
    standard.set_domain("");
    standard.set_version(context_.opset());
    if (context_.opset() > 21) model.set_ir_version(context_.opset() > 25 ? 13 : 11);
    if (uses_own_domain_) {
      onnx::OperatorSetIdProto& own = *model.add_opset_import();
      own.set_domain(kOwnDomain);
      own.set_version(1);
    }
    return std::move(model);
  }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }

  static void add_value_info(const Value& value, onnx::ValueInfoProto& info) {
    const auto dims = static_dims(value.type.shape);
    if (!dims || !value.type.layout.row_major())
      throw UserError({"TSR-1060", fmt::format("value '{}' has the type {}", value.name, value.type.to_string()), "",
                       "static shapes and row-major layouts", "export the graph before layouts are chosen"});
    info.set_name(value.name);
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(onnx_of_dtype(value.type.dtype));
    tensor.mutable_shape();
    for (const int64_t dim : *dims) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
  }

  // `names` has the values that are named from outside: the graph's inputs and outputs.
  void write_nodes(const Graph& graph, std::vector<std::string>& names) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId output : node.outputs)
        if (names[index(output)].empty()) names[index(output)] = context_.fresh_name(graph.value(output).name);
      write_node(graph, node, names);
    }
  }

  void write_node(const Graph& graph, const Node& node, const std::vector<std::string>& names) {
    for (const ValueId output : node.outputs)
      if (!graph.type(output).layout.row_major() || node.op->name == "relayout")
        throw UserError({"TSR-1060",
                         fmt::format("{} has a result of type {}", node.op->name, graph.type(output).to_string()),
                         node.loc, "row-major values", "export the graph before layouts are chosen"});
    if (node.op->kind == OpKind::kIf || node.op->kind == OpKind::kLoop)
      throw UserError({"TSR-1060", fmt::format("{} is a node with control flow", node.op->name), node.loc,
                       "graphs without if and loop", "import the model with its steps written out"});
    if (node.op->kind == OpKind::kBindSize)
      throw UserError({"TSR-1060", "the graph has a size that data decide", node.loc, "graphs of fixed sizes",
                       "export it as a graph: FILE.graph"});
    const bool opened = node.op->kind == OpKind::kGroup || node.op->kind == OpKind::kCall ||
                        (node.op->kind == OpKind::kComposite && !find_composite(node.attrs.get<std::string>("name")));
    if (opened) return open(node, names);
    if (node.op->kind == OpKind::kConstant)
      return write_constant(node.attrs.get<TensorPtr>("value"), names[index(node.outputs[0])]);

    onnx::NodeProto& proto = *context_.graph().add_node();
    proto.set_name(node_name(node.loc));
    for (const ValueId output : node.outputs) proto.add_output(names[index(output)]);
    std::vector<std::string> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(names[index(input)]);
    NodeExport e{context_, graph, node, inputs, proto};
    const onnx::NodeProto empty = proto;
    if (node.op->kind == OpKind::kComposite ? write_standard_composite(e) : write_standard_node(e)) return;
    proto = empty;
    write_own_node(node, proto);
    set_inputs(proto, inputs);
    uses_own_domain_ = true;
  }

  // The region's nodes in the node's place. A region that returns one of its operands needs a node that copies it.
  void open(const Node& node, const std::vector<std::string>& outer) {
    const Graph& region = *node.regions.at(0);
    std::vector<std::string> names(region.values().size());
    for (size_t i = 0; i < region.inputs.size(); ++i) names[index(region.inputs[i])] = outer[index(node.inputs[i])];
    std::vector<std::pair<std::string, std::string>> copies;
    for (size_t i = 0; i < region.outputs.size(); ++i) {
      std::string& name = names[index(region.outputs[i])];
      const std::string& wanted = outer[index(node.outputs[i])];
      if (name.empty()) name = wanted;
      else copies.emplace_back(name, wanted);
    }
    write_nodes(region, names);
    for (const auto& [from, to] : copies) write_copy(from, to, node.loc);
  }

  // ONNX Runtime refuses two nodes of one name, and one ONNX node may have become several of ours.
  std::string node_name(const std::string& loc) {
    if (loc.empty()) return "";
    std::string name = loc;
    for (int i = 1; !node_names_.insert(name).second; ++i) name = fmt::format("{}.{}", loc, i);
    return name;
  }

  void write_copy(const std::string& from, const std::string& to, const std::string& loc) {
    onnx::NodeProto& identity = *context_.graph().add_node();
    identity.set_op_type("Identity");
    identity.set_name(node_name(loc));
    identity.add_input(from);
    identity.add_output(to);
  }

  void write_constant(const TensorPtr& tensor, const std::string& name) {
    onnx::TensorProto& proto = *context_.graph().add_initializer();
    if (!data_ || tensor->num_bytes() < 1024) {
      tensor_to_proto(*tensor, proto);
    } else {
      proto.set_data_type(onnx_of_dtype(tensor->dtype()));
      for (const int64_t dim : tensor->dims()) proto.add_dims(dim);
      proto.set_data_location(onnx::TensorProto::EXTERNAL);
      const auto add = [&](const char* key, const std::string& value) {
        auto& entry = *proto.add_external_data();
        entry.set_key(key);
        entry.set_value(value);
      };
      add("location", data_name_);
      add("offset", std::to_string(offset_));
      add("length", std::to_string(tensor->num_bytes()));
      data_->push_back(tensor);
      offset_ = aligned(offset_ + tensor->num_bytes());
    }
    proto.set_name(name);
  }

 public:
  // Each constant begins at a multiple of this, so that it can be used where it is mapped.
  static int64_t aligned(int64_t offset) { return (offset + 63) / 64 * 64; }

 private:
  ExportContext context_;
  std::vector<TensorPtr>* data_;
  std::string data_name_;
  int64_t offset_ = 0;
  bool uses_own_domain_ = false;
  std::unordered_set<std::string> node_names_;
};

int64_t constant_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->kind == OpKind::kConstant) bytes += node.attrs.get<TensorPtr>("value")->num_bytes();
    for (const GraphPtr& region : node.regions) bytes += constant_bytes(*region);
  }
  return bytes;
}

void check_size(const onnx::ModelProto& model) {
  const size_t size = model.ByteSizeLong();
  if (size > INT32_MAX)
    throw UserError({"TSR-1061", fmt::format("the ONNX model would have {} bytes", size), "",
                     "less than 2 GB, the limit of protobuf", "write it to a file, with external data"});
}

[[noreturn]] void fail_write(const std::string& path) {
  throw UserError({"TSR-6004", fmt::format("cannot write '{}': {}", path, std::strerror(errno)), "", "a writable path",
                   "check the folder, its permissions and the free space"});
}

}  // namespace

std::string export_onnx_bytes(const Graph& graph) {
  const onnx::ModelProto model = Exporter(nullptr, "").run(graph);
  check_size(model);
  return model.SerializeAsString();
}

void export_onnx_file(const Graph& graph, const std::string& path, int64_t external_bytes) {
  std::vector<TensorPtr> data;
  const bool external = constant_bytes(graph) > external_bytes;
  const std::string data_path = path + ".data";
  const onnx::ModelProto model =
      Exporter(external ? &data : nullptr, std::filesystem::path(data_path).filename().string()).run(graph);
  check_size(model);
  if (external) {
    std::ofstream file(data_path, std::ios::binary);
    int64_t offset = 0;
    for (const TensorPtr& tensor : data) {
      const std::string gap(static_cast<size_t>(Exporter::aligned(offset) - offset), '\0');
      file.write(gap.data(), static_cast<std::streamsize>(gap.size()));
      file.write(reinterpret_cast<const char*>(tensor->bytes()), tensor->num_bytes());
      offset = Exporter::aligned(offset) + tensor->num_bytes();
    }
    if (!file.flush()) fail_write(data_path);
  }
  std::ofstream file(path, std::ios::binary);
  if (!file || !model.SerializeToOstream(&file) || !file.flush()) fail_write(path);
}

}  // namespace tessera::inline onnx_import
