#include "import/onnx/edit/model_statistics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "import/onnx/operator_table.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/model_file.h"
#include "import/onnx/read/node_list.h"
#include "import/onnx/write/own_domain.h"

namespace tessera::inline onnx_import {
namespace {

std::string element_type_text(int data_type) {
  const auto dtype = dtype_of_onnx(data_type);
  return dtype ? std::string(dtype_name(*dtype)) : onnx_dtype_name(data_type);
}

OnnxTensorEntry entry_of(const onnx::ValueInfoProto& info) {
  if (!info.type().has_tensor_type()) {
    switch (info.type().value_case()) {
      case onnx::TypeProto::kSequenceType: return {info.name(), "a sequence"};
      case onnx::TypeProto::kMapType: return {info.name(), "a map"};
      case onnx::TypeProto::kOptionalType: return {info.name(), "an optional"};
      case onnx::TypeProto::kSparseTensorType: return {info.name(), "a sparse tensor"};
      default: return {info.name(), "not declared"};
    }
  }
  const auto& tensor = info.type().tensor_type();
  std::vector<std::string> dims;
  for (const auto& dim : tensor.shape().dim()) {
    if (dim.has_dim_value() && dim.dim_value() >= 0) dims.push_back(std::to_string(dim.dim_value()));
    else dims.push_back(dim.dim_param().empty() ? "?" : dim.dim_param());
  }
  const std::string shape = tensor.has_shape() ? fmt::format("[{}]", fmt::join(dims, ",")) : "[...]";
  return {info.name(), element_type_text(tensor.elem_type()) + shape};
}

void add_weight(OnnxStatistics& statistics, const onnx::TensorProto& tensor) {
  int64_t elements = 1;
  for (const int64_t dim : tensor.dims()) {
    // A malformed tensor is the importer's business; here it only must not overflow.
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements) || elements > INT64_MAX / 64) elements = 0;
  }
  const auto dtype = dtype_of_onnx(tensor.data_type());
  const int64_t bytes = dtype ? dtype_bytes(*dtype, elements) : 0;
  ++statistics.weights;
  statistics.weight_elements += elements;
  statistics.weight_bytes += bytes;
  statistics.weight_bytes_of[element_type_text(tensor.data_type())] += bytes;
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) ++statistics.external_weights;
}

// Constants that stand in nodes, and everything in the bodies of nodes.
void add_inner(OnnxStatistics& statistics, const onnx::GraphProto& graph, int depth) {
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (node.op_type() == "Constant" && attribute.has_t()) add_weight(statistics, attribute.t());
      std::vector<const onnx::GraphProto*> bodies;
      if (attribute.has_g()) bodies.push_back(&attribute.g());
      for (const onnx::GraphProto& body : attribute.graphs()) bodies.push_back(&body);
      for (const onnx::GraphProto* body : bodies) {
        statistics.inner_nodes += body->node_size();
        for (const auto& tensor : body->initializer()) add_weight(statistics, tensor);
        constexpr int kDeepest = 200;  // as the file's reader
        if (depth < kDeepest) add_inner(statistics, *body, depth + 1);
      }
    }
  }
}

OnnxStatistics statistics_of(const std::shared_ptr<LoadedModel>& model) {
  OnnxStatistics statistics;
  const onnx::ModelProto& proto = model->proto;
  const onnx::GraphProto& graph = proto.graph();
  statistics.ir_version = proto.ir_version();
  statistics.producer = proto.producer_name();
  if (!proto.producer_version().empty()) statistics.producer += " " + proto.producer_version();
  statistics.graph_name = graph.name();
  for (const auto& [domain, version] : model->opsets) statistics.opsets[domain.empty() ? "ai.onnx" : domain] = version;
  statistics.functions = proto.functions_size();

  std::set<std::string> defined;
  for (const auto& tensor : graph.initializer()) {
    defined.insert(tensor.name());
    add_weight(statistics, tensor);
  }
  add_inner(statistics, graph, 0);
  for (const auto& input : graph.input()) {
    if (defined.insert(input.name()).second) statistics.inputs.push_back(entry_of(input));
  }
  for (const auto& output : graph.output()) statistics.outputs.push_back(entry_of(output));

  const auto is_known = [](const FlatNode& node) {
    return find_importer(standard_domain(node.proto->domain()), node.proto->op_type()) != nullptr;
  };
  std::set<std::string> unsupported;
  for (const FlatNode& node : flatten_nodes(*model, defined, is_known)) {
    const std::string domain = standard_domain(node.proto->domain());
    const std::string op_type = domain.empty() ? node.proto->op_type() : domain + "." + node.proto->op_type();
    statistics.nodes.push_back({node.label,
                                op_type,
                                {node.proto->input().begin(), node.proto->input().end()},
                                {node.proto->output().begin(), node.proto->output().end()}});
    ++statistics.operators[op_type];
    if (!is_known(node) && domain != kOwnDomain) unsupported.insert(op_type);
  }
  statistics.unsupported.assign(unsupported.begin(), unsupported.end());
  return statistics;
}

}  // namespace

OnnxStatistics read_onnx_statistics(std::string_view bytes, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return statistics_of(load_model(bytes, fmt::format("'{}'", path), folder.empty() ? "." : folder.string()));
}

}  // namespace tessera::inline onnx_import
