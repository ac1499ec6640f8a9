#include "import/onnx/write/graph_writer.h"

#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/data_sizes.h"
#include "import/onnx/operator_table.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/model_states.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/write/onnx_export.h"
#include "import/onnx/write/own_domain.h"
#include "ops/composites/composites.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

bool is_product(const Node& node) {
  if (node.op->kind != OpKind::kComposite) return node.op->name == "matmul" || node.op->name == "conv";
  const std::string& name = node.attrs.get<std::string>("name");
  return name == "gemm" || name == "matmul_integer" || name == "conv_integer" || name == "conv_transpose";
}

}  // namespace

void GraphWriter::keep_names_of_products(const Graph& graph) {
  for (const Node& node : graph.nodes())
    if (!node.loc.empty() && is_product(node)) names_of_products_.insert(node.loc);
}

void GraphWriter::write_nodes(const Graph& graph, Names& names) {
  const BlockProducts products(graph);
  keep_names_of_products(graph);
  for (const Node& node : graph.nodes()) {
    if (products.is_part(node)) continue;
    for (const ValueId output : node.outputs) context_.need_opset(opset_of_type(graph.type(output).dtype));
    for (const ValueId output : node.outputs)
      if (names[index(output)].empty()) names[index(output)] = context_.fresh_name(graph.value(output).name);
    write_node(graph, node, names, products);
  }
}

void GraphWriter::write_node(const Graph& graph, const Node& node, const Names& names, const BlockProducts& products) {
  for (const ValueId output : node.outputs)
    if (!graph.type(output).layout.row_major() || node.op->name == "relayout")
      throw NoOnnxForm({"TSR-1060",
                        fmt::format("{} has a result of type {}", node.op->name, graph.type(output).to_string()),
                        node.loc, "row-major values", "export the graph before layouts are chosen"});
  switch (node.op->kind) {
    case OpKind::kConstant: return write_initializer(node.attrs.get<TensorPtr>("value"), names[index(node.outputs[0])]);
    case OpKind::kIf: return write_if(graph, node, names);
    case OpKind::kLoop: return write_loop(graph, node, names);
    case OpKind::kBindSize: return write_bind_size(node, names);
    case OpKind::kGroup:
    case OpKind::kCall: return open(node, names);
    case OpKind::kComposite:
      if (!find_composite(node.attrs.get<std::string>("name"))) return open(node, names);
      break;
    case OpKind::kExpression:
      if (products.is_product(node)) return write_block_product(graph, node, names);
      break;
    case OpKind::kProcedure:
    case OpKind::kView: break;
  }
  write_operator(graph, node, names);
}

void GraphWriter::write_operator(const Graph& graph, const Node& node, const Names& names) {
  const int place = context_.scope().node_size();
  onnx::NodeProto& proto = *context_.scope().add_node();
  proto.set_name(node_name(node.loc, is_product(node)));
  for (const ValueId output : node.outputs) proto.add_output(names[index(output)]);
  Names inputs;
  for (const ValueId input : node.inputs) inputs.push_back(names[index(input)]);
  NodeExport e{context_, graph, node, inputs, proto};
  const onnx::NodeProto empty = proto;
  if (!(node.op->kind == OpKind::kComposite ? write_standard_composite(e) : write_standard_node(e))) {
    proto = empty;
    write_own_node(e);
    uses_own_domain_ = true;
  } else {
    for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs})
      for (const ValueId value : *values)
        context_.need_opset(opset_of_operand(proto.op_type(), graph.type(value).dtype));
  }
  // Behind the nodes that compute its sizes.
  auto& nodes = *context_.scope().mutable_node();
  for (int i = place; i + 1 < nodes.size(); ++i) nodes.SwapElements(i, i + 1);
}

void GraphWriter::write_block_product(const Graph& graph, const Node& node, const Names& names) {
  const Node& weights = *graph.producer(node.inputs[1]);
  const BlockShape shape = block_shape(graph, weights);
  const auto initializer = [&](size_t operand, const char* what, std::vector<int64_t> dims) {
    const Tensor& tensor = *graph.producer(weights.inputs[operand])->attrs.get<TensorPtr>("value");
    const std::string name = context_.fresh_name(names[index(node.outputs[0])] + what);
    write_initializer(std::make_shared<const Tensor>(tensor.with_dims(std::move(dims))), name);
    return name;
  };
  Names inputs = {names[index(node.inputs[0])],
                  initializer(0, ".weights", {shape.rows, shape.groups, shape.group * shape.bits / 8}),
                  initializer(1, ".scales", {shape.rows * shape.groups})};
  if (weights.inputs.size() == 3)
    inputs.push_back(initializer(
        2, ".zeros",
        {graph.type(weights.inputs[2]).dtype == DType::kU8 ? shape.rows * ((shape.groups * shape.bits + 7) / 8)
                                                           : shape.rows * shape.groups}));
  onnx::NodeProto& proto = *context_.scope().add_node();
  proto.set_op_type("MatMulNBits");
  proto.set_domain(std::string(kContribDomain));
  proto.set_name(node_name(node.loc, true));
  set_inputs(proto, inputs);
  proto.add_output(names[index(node.outputs[0])]);
  set_int(proto, "K", shape.elements);
  set_int(proto, "N", shape.rows);
  set_int(proto, "bits", shape.bits);
  set_int(proto, "block_size", shape.group);
  uses_contrib_domain_ = true;
}

// The count kept within 0 and the bound, from which other sizes follow.
void GraphWriter::write_bind_size(const Node& node, const Names& names) {
  const Var symbol = bound_symbol(node);
  const std::string& result = names[index(node.outputs[0])];
  const std::string bound = context_.size_scalar(KnownSymbols::find(symbol.get())->bound);
  const std::string at_most = helper("Min", {names[index(node.inputs[0])], bound}, result + ".at_most");
  onnx::NodeProto& kept = *context_.scope().add_node();
  kept.set_op_type("Max");
  kept.set_name(node_name(node.loc));
  set_inputs(kept, {at_most, context_.scalar(DType::kI64, 0)});
  kept.add_output(result);
  context_.model.add_metadata_props()->set_key(std::string(kSizeKey) + result);
  context_.bind_data_symbol(symbol.get(), helper("Unsqueeze", {result, context_.ints({0})}, result + ".list"));
}

// The region's nodes in the node's place. A region that returns one of its operands needs a node that copies it, and so
// does one that returns a constant: that becomes an initializer, which must not be a graph's output.
void GraphWriter::open(const Node& node, const Names& outer) {
  const Graph& region = *node.regions.at(0);
  Names names(region.values().size());
  for (size_t i = 0; i < region.inputs.size(); ++i) names[index(region.inputs[i])] = outer[index(node.inputs[i])];
  std::vector<std::pair<ValueId, std::string>> copies;
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    std::string& name = names[index(region.outputs[i])];
    const std::string& wanted = outer[index(node.outputs[i])];
    if (name.empty() && !is_constant(region, region.outputs[i])) name = wanted;
    else copies.emplace_back(region.outputs[i], wanted);
  }
  write_nodes(region, names);
  for (const auto& [from, to] : copies) write_copy(names[index(from)], to, node.loc);
}

// ONNX Runtime refuses two nodes of one name, and one ONNX node may have become several of ours.
std::string GraphWriter::node_name(const std::string& loc, bool is_product) {
  if (loc.empty()) return "";
  const bool is_kept = !is_product && names_of_products_.contains(loc);
  std::string name = is_kept ? fmt::format("{}.0", loc) : loc;
  for (int i = 1; !node_names_.insert(name).second; ++i) name = fmt::format("{}.{}", loc, i);
  return name;
}

std::string GraphWriter::helper(const std::string& op, const Names& inputs, const std::string& hint) {
  onnx::NodeProto& node = *context_.scope().add_node();
  node.set_op_type(op);
  set_inputs(node, inputs);
  return *node.add_output() = context_.fresh_name(hint);
}

void GraphWriter::write_copy(const std::string& from, const std::string& to, const std::string& loc) {
  onnx::NodeProto& identity = *context_.scope().add_node();
  identity.set_op_type("Identity");
  identity.set_name(node_name(loc));
  identity.add_input(from);
  identity.add_output(to);
}

void GraphWriter::write_initializer(const TensorPtr& tensor, const std::string& name) {
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

}  // namespace tessera::inline onnx_import
