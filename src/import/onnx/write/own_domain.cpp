#include "import/onnx/write/own_domain.h"

#include <fmt/format.h>

#include <algorithm>

#include "import/onnx/node_context.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/write/export_context.h"
#include "ops/composites/composites.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

using onnx::AttributeProto;

constexpr const char* kSizeOperands = "size_operands";

// A list of doubles as an f64 tensor: ONNX's own float attributes are of single precision.
void write_doubles(const std::vector<double>& values, const std::vector<int64_t>& dims, AttributeProto& attribute) {
  Tensor tensor(DType::kF64, dims);
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  attribute.set_type(AttributeProto::TENSOR);
  tensor_to_proto(tensor, *attribute.mutable_t());
}

struct AttributeWriter {
  AttributeProto& attribute;

  void operator()(bool value) { operator()(int64_t{value}); }
  void operator()(int64_t value) {
    attribute.set_type(AttributeProto::INT);
    attribute.set_i(value);
  }
  void operator()(double value) { write_doubles({value}, {}, attribute); }
  void operator()(const std::string& value) {
    attribute.set_type(AttributeProto::STRING);
    attribute.set_s(value);
  }
  void operator()(const std::vector<int64_t>& values) {
    attribute.set_type(AttributeProto::INTS);
    for (const int64_t value : values) attribute.add_ints(value);
  }
  void operator()(const std::vector<double>& values) {
    write_doubles(values, {static_cast<int64_t>(values.size())}, attribute);
  }
  void operator()(DType value) { operator()(std::string(dtype_name(value))); }
  void operator()(const Layout&) { throw InternalError("a layout attribute in an exported graph"); }
  void operator()(const Shape&) { throw InternalError("a list of symbolic sizes is an operand"); }
  void operator()(const TensorPtr& value) {
    attribute.set_type(AttributeProto::TENSOR);
    tensor_to_proto(*value, *attribute.mutable_t());
  }
};

Attr read_attr(NodeContext& c, const AttrDef& def) {
  const auto tensor = [&] {
    const auto* proto = c.attrs.get_tensor(def.name);
    return c.tensor(*proto);
  };
  switch (def.kind) {
    case AttrKind::kBool: return c.attrs.get_int(def.name, 0) != 0;
    case AttrKind::kInt: return c.attrs.get_int(def.name, 0);
    case AttrKind::kFloat: {
      const Tensor value = tensor();
      if (value.num_elements() != 1 || !is_float(value.dtype())) break;
      return value.get_double(0);
    }
    case AttrKind::kString: return c.attrs.get_string(def.name, "");
    case AttrKind::kInts:
    case AttrKind::kSizes: return c.attrs.get_ints(def.name);
    case AttrKind::kFloats: {
      const Tensor value = tensor();
      if (value.dims().size() != 1 || !is_float(value.dtype())) break;
      std::vector<double> values;
      for (int64_t i = 0; i < value.num_elements(); ++i) values.push_back(value.get_double(i));
      return values;
    }
    case AttrKind::kDType:
      if (const auto dtype = parse_dtype(c.attrs.get_string(def.name, ""))) return *dtype;
      break;
    case AttrKind::kTensor: return std::make_shared<const Tensor>(tensor());
    case AttrKind::kLayout: c.unsupported("layouts");
  }
  c.malformed(fmt::format("attribute '{}' has a wrong form", def.name), def.doc);
}

struct OwnNode {
  std::vector<ValueId> inputs;
  Attrs attrs;
};

OwnNode read_own_node(NodeContext& c, const std::vector<AttrDef>& defs) {
  OwnNode node{c.all_inputs(), {}};
  std::vector<std::string> size_operands;
  if (c.attrs.has(kSizeOperands)) {
    const std::string names = c.attrs.get_string(kSizeOperands, "");
    for (size_t at = 0; at <= names.size();) {
      const size_t end = std::min(names.find(',', at), names.size());
      size_operands.push_back(names.substr(at, end - at));
      at = end + 1;
    }
    if (size_operands.size() > node.inputs.size())
      c.malformed(fmt::format("{} = \"{}\" for {} inputs", kSizeOperands, names, node.inputs.size()),
                  "an input for each");
    node.inputs.resize(node.inputs.size() - size_operands.size());
  }
  for (size_t i = 0; i < size_operands.size(); ++i) {
    const auto def = std::find_if(defs.begin(), defs.end(), [&](const AttrDef& d) {
      return d.name == size_operands[i] && d.kind == AttrKind::kSizes;
    });
    if (def == defs.end())
      c.malformed(fmt::format("sizes for '{}'", size_operands[i]),
                  "an attribute of the operator that is a list of sizes");
    node.attrs.set(def->name, c.const_sizes(static_cast<int>(node.inputs.size() + i), def->name));
  }
  for (const AttrDef& def : defs)
    if (c.attrs.has(def.name)) node.attrs.set(def.name, read_attr(c, def));
  return node;
}

}  // namespace

void write_own_node(NodeExport& e) {
  const Node& node = e.node;
  const bool composite = node.op->kind == OpKind::kComposite;
  e.proto.set_op_type(composite ? node.attrs.get<std::string>("name") : node.op->name);
  e.proto.set_domain(kOwnDomain);
  std::vector<std::string> inputs = e.inputs;
  std::string size_operands;
  for (const auto& [name, value] : node.attrs.all()) {
    if (composite && name == "name") continue;
    if (const Shape* sizes = std::get_if<Shape>(&value)) {
      inputs.push_back(e.context.sizes(*sizes));
      size_operands += (size_operands.empty() ? "" : ",") + name;
      continue;
    }
    AttributeProto& attribute = *e.proto.add_attribute();
    attribute.set_name(name);
    std::visit(AttributeWriter{attribute}, value);
  }
  if (!size_operands.empty()) set_string(e.proto, kSizeOperands, size_operands);
  set_inputs(e.proto, inputs);
}

void import_own_node(NodeContext& c) {
  if (const CompositeDef* composite = find_composite(c.op_type())) {
    const auto [inputs, attrs] = read_own_node(c, composite->attrs);
    const auto results = c.composite_results(composite->name, inputs, attrs);
    for (size_t i = 0; i < results.size(); ++i) c.out(static_cast<int>(i), results[i]);
    return;
  }
  const OpDef* op = c.find_op(c.op_type());
  const bool plain =
      op && (op->kind == OpKind::kExpression || op->kind == OpKind::kView || op->kind == OpKind::kProcedure);
  if (!plain || op->name == "relayout") c.unsupported("the operator is not supported");
  const auto [inputs, attrs] = read_own_node(c, op->attrs);
  c.out(0, c.op(op->name, inputs, attrs));
}

}  // namespace tessera::inline onnx_import
