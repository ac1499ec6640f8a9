#include "import/onnx/write/onnx_export.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "arith/simplify.h"
#include "import/onnx/operator_table.h"
#include "import/onnx/read/model_states.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/write/export_context.h"
#include "import/onnx/write/graph_writer.h"
#include "import/onnx/write/own_domain.h"
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

// Each symbol is told by the first input that has it as a dimension.
void bind_symbols(ExportContext& context, const Graph& graph, const std::vector<std::string>& names) {
  for (const ValueId input : graph.inputs) {
    const Shape& shape = graph.type(input).shape;
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d]->kind == ExprKind::kVar)
        context.bind_symbol(shape[d].get(), names[index(input)], static_cast<int64_t>(d));
  }
}

// An input with an initializer of its name: ONNX's word for an input that a caller may leave out.
void write_initial_value(GraphWriter& writer, const State& state, const TensorType& type, const std::string& name) {
  TensorPtr initial = state.initial;
  if (!initial) {
    if (!type.is_static())
      throw NoOnnxForm({"TSR-1060", fmt::format("state {} begins with zeros of type {}", state.name, type.to_string()),
                        "", "states of fixed sizes, or with an initial value", "export the model at fixed sizes"});
    initial = std::make_shared<const Tensor>(type.dtype, type.dims());
  }
  writer.write_initializer(initial, name);
}

// The first version of the format that knows the opset.
int64_t ir_version_of(int64_t opset) {
  return opset > 24 ? 13 : opset > 22 ? opset - 12 : opset > 20 ? 10 : opset > 18 ? 9 : 8;
}

onnx::ModelProto model_of(const Graph& graph, std::vector<TensorPtr>* data, const std::string& data_name) {
  const KnownSymbols known(graph.symbols);
  ExportContext context;
  GraphWriter writer(context, data, data_name);
  onnx::ModelProto& model = context.model;
  model.set_producer_name("tessera");
  context.graph().set_name(graph.name);
  std::vector<std::string> names(graph.values().size());
  // Inputs and outputs keep their names, so they come first.
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ValueId input = graph.inputs[i];
    context.need_opset(opset_of_type(graph.type(input).dtype));
    const bool own = i < graph.num_own_inputs();
    const std::string& hint = own ? graph.value(input).name : graph.states[i - graph.num_own_inputs()].name;
    names[index(input)] = context.fresh_name(hint);
    set_value_info(*context.graph().add_input(), names[index(input)], graph.type(input));
    if (!own)
      write_initial_value(writer, graph.states[i - graph.num_own_inputs()], graph.type(input), names[index(input)]);
  }
  bind_symbols(context, graph, names);
  std::vector<std::pair<ValueId, std::string>> copies;
  // ONNX has no word for checks: what they compute is left without a reader.
  for (size_t i = 0; i < graph.first_check(); ++i) {
    const ValueId output = graph.outputs[i];
    std::string hint = graph.value(output).name;
    const std::string state =
        i < graph.num_own_outputs() ? "" : names[index(graph.state_input(i - graph.num_own_outputs()))];
    if (!state.empty()) hint = state + ".next";
    std::string& name = names[index(output)];
    const std::string own = context.fresh_name(hint);
    if (name.empty() && !is_constant(graph, output)) name = own;
    else copies.emplace_back(output, own);
    set_value_info(*context.graph().add_output(), own, graph.type(output));
    if (!state.empty()) {
      onnx::StringStringEntryProto& entry = *model.add_metadata_props();
      entry.set_key(std::string(kStateKey) + state);
      entry.set_value(own);
    }
  }
  writer.write_nodes(graph, names);
  for (const auto& [from, to] : copies) writer.write_copy(names[index(from)], to, "");
  context.finish_sizes();
  onnx::OperatorSetIdProto& standard = *model.add_opset_import();
  standard.set_domain("");
  standard.set_version(context.opset());
  model.set_ir_version(ir_version_of(context.opset()));
  if (writer.uses_own_domain()) {
    onnx::OperatorSetIdProto& own = *model.add_opset_import();
    own.set_domain(kOwnDomain);
    own.set_version(1);
  }
  if (writer.uses_contrib_domain()) {
    onnx::OperatorSetIdProto& contrib = *model.add_opset_import();
    contrib.set_domain(std::string(kContribDomain));
    contrib.set_version(1);
  }
  return std::move(model);
}

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
  const onnx::ModelProto model = model_of(graph, nullptr, "");
  check_size(model);
  return model.SerializeAsString();
}

void export_onnx_file(const Graph& graph, const std::string& path, int64_t external_bytes) {
  std::vector<TensorPtr> data;
  const bool external = constant_bytes(graph) > external_bytes;
  const std::string data_path = path + ".data";
  const onnx::ModelProto model =
      model_of(graph, external ? &data : nullptr, std::filesystem::path(data_path).filename().string());
  check_size(model);
  if (external) {
    std::ofstream file(data_path, std::ios::binary);
    int64_t offset = 0;
    for (const TensorPtr& tensor : data) {
      const std::string gap(static_cast<size_t>(GraphWriter::aligned(offset) - offset), '\0');
      file.write(gap.data(), static_cast<std::streamsize>(gap.size()));
      file.write(reinterpret_cast<const char*>(tensor->bytes()), tensor->num_bytes());
      offset = GraphWriter::aligned(offset) + tensor->num_bytes();
    }
    if (!file.flush()) fail_write(data_path);
  }
  std::ofstream file(path, std::ios::binary);
  if (!file || !model.SerializeToOstream(&file) || !file.flush()) fail_write(path);
}

}  // namespace tessera::inline onnx_import
