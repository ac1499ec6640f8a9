// Sizes of graphs with symbols: nodes that compute them from the shapes of the graph's inputs, and names of dimensions.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "arith/simplify.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/write/export_context.h"
#include "import/onnx/write/onnx_export.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

[[noreturn]] void no_form(const Expr& size, const std::string& why) {
  throw NoOnnxForm({"TSR-1060", fmt::format("the size {} {}", to_string(size), why), "",
                    "sizes that follow from the shapes of the graph's inputs by integer arithmetic",
                    "export the model at fixed sizes"});
}

const char* operator_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return "Add";
    case BinaryOp::kSub: return "Sub";
    case BinaryOp::kMul: return "Mul";
    case BinaryOp::kDiv: return "Div";
    case BinaryOp::kFloorMod: return "Mod";
    case BinaryOp::kMin: return "Min";
    case BinaryOp::kMax: return "Max";
    case BinaryOp::kEq: return "Equal";
    case BinaryOp::kLt: return "Less";
    case BinaryOp::kLe: return "LessOrEqual";
    case BinaryOp::kGt: return "Greater";
    case BinaryOp::kGe: return "GreaterOrEqual";
    default: return nullptr;
  }
}

// As exporters write it ("past + length", "n//2"); empty for what the reader of such names does not know.
std::optional<std::string> dim_name(const Expr& size) {
  if (const auto value = as_int(size)) return *value < 0 ? std::nullopt : std::make_optional(std::to_string(*value));
  if (size->kind == ExprKind::kVar) return size->name;
  if (size->kind != ExprKind::kBinary) return std::nullopt;
  const Expr &left = size->operands[0], &right = size->operands[1];
  const auto name_of = [](const Expr& operand) {
    auto name = dim_name(operand);
    if (name && operand->kind == ExprKind::kBinary) name = "(" + *name + ")";
    return name;
  };
  const auto a = name_of(left), b = name_of(right);
  if (const auto value = as_int(right); a && value && *value < 0 && size->binary == BinaryOp::kAdd)
    return fmt::format("{} - {}", *a, -*value);
  if (!a || !b) return std::nullopt;
  switch (size->binary) {
    case BinaryOp::kAdd: return fmt::format("{} + {}", *a, *b);
    case BinaryOp::kSub: return fmt::format("{} - {}", *a, *b);
    case BinaryOp::kMul: return fmt::format("{}*{}", *a, *b);
    case BinaryOp::kFloorDiv: return fmt::format("{}//{}", *a, *b);
    default: return std::nullopt;
  }
}

}  // namespace

onnx::NodeProto& ExportContext::size_node(const std::string& op, const std::vector<std::string>& inputs, bool late) {
  onnx::NodeProto& node = *(late ? scope() : size_nodes_).add_node();
  node.set_op_type(op);
  set_inputs(node, inputs);
  node.add_output(fresh_name("size"));
  return node;
}

bool ExportContext::is_late(const Expr& size) const {
  bool late = false;
  walk(size, [&](const Expr& e) { late = late || data_symbols_.count(e.get()); });
  return late;
}

std::string ExportContext::size_result(const std::string& key, const onnx::NodeProto& node, bool late) {
  // What a subgraph computes, its neighbours do not see.
  if (!late || !scope_) sizes_[key] = node.output(0);
  return node.output(0);
}

std::string ExportContext::size(const Expr& size) {
  if (const auto value = as_int(size)) return ints({*value});
  const std::string text = to_string(size);
  if (const auto found = sizes_.find(text); found != sizes_.end()) return found->second;
  const bool late = is_late(size);
  const onnx::NodeProto* node = nullptr;
  switch (size->kind) {
    case ExprKind::kVar: {
      if (const auto value = data_symbols_.find(size.get()); value != data_symbols_.end()) return value->second;
      const auto symbol = symbols_.find(size.get());
      if (symbol == symbols_.end()) no_form(size, "is no dimension of an input by itself");
      onnx::NodeProto& shape = size_node("Shape", {symbol->second.first}, late);
      set_int(shape, "start", symbol->second.second);
      set_int(shape, "end", symbol->second.second + 1);
      node = &shape;
      break;
    }
    case ExprKind::kBinary: {
      const std::string a = this->size(size->operands[0]), b = this->size(size->operands[1]);
      if (size->binary == BinaryOp::kFloorDiv) {
        // ONNX's division rounds towards zero.
        const bool positive = size_range(size->operands[0]).lo.value_or(-1) >= 0;
        const auto rounded = [&] {
          const std::string rest = size_node("Mod", {a, b}, late).output(0);
          return size_node("Sub", {a, rest}, late).output(0);
        };
        node = &size_node("Div", {positive ? a : rounded(), b}, late);
      } else if (const char* op = operator_of(size->binary)) {
        node = &size_node(op, {a, b}, late);
      }
      break;
    }
    case ExprKind::kSelect: {
      std::vector<std::string> operands;
      for (const Expr& operand : size->operands) operands.push_back(this->size(operand));
      node = &size_node("Where", operands, late);
      break;
    }
    default: break;
  }
  if (!node) no_form(size, "has no ONNX form");
  return size_result(text, *node, late);
}

std::string ExportContext::sizes(const Shape& sizes) {
  if (const auto known = static_dims(sizes)) return ints(*known);
  if (sizes.size() == 1) return size(sizes[0]);
  const std::string text = to_string(sizes);
  if (const auto found = sizes_.find(text); found != sizes_.end()) return found->second;
  std::vector<std::string> parts;
  for (const Expr& part : sizes) parts.push_back(size(part));
  const bool late = std::any_of(sizes.begin(), sizes.end(), [&](const Expr& part) { return is_late(part); });
  onnx::NodeProto& node = size_node("Concat", parts, late);
  set_int(node, "axis", 0);
  return size_result(text, node, late);
}

std::string ExportContext::size_scalar(const Expr& size) {
  if (const auto value = as_int(size)) return scalar(DType::kI64, *value);
  const std::string key = "scalar " + to_string(size);
  if (const auto found = sizes_.find(key); found != sizes_.end()) return found->second;
  const std::string list = this->size(size);
  return size_result(key, size_node("Squeeze", {list}, is_late(size)), is_late(size));
}

void ExportContext::finish_sizes() {
  if (size_nodes_.node_size() == 0) return;
  size_nodes_.mutable_node()->MergeFrom(graph().node());
  graph().mutable_node()->Swap(size_nodes_.mutable_node());
  size_nodes_.clear_node();
}

void set_value_info(onnx::ValueInfoProto& info, const std::string& name, const TensorType& type) {
  if (!type.layout.row_major())
    throw NoOnnxForm({"TSR-1060", fmt::format("value '{}' has the type {}", name, type.to_string()), "",
                      "row-major layouts", "export the graph before layouts are chosen"});
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx_of_dtype(type.dtype));
  tensor.mutable_shape();
  for (const Expr& size : type.shape) {
    auto& dim = *tensor.mutable_shape()->add_dim();
    if (const auto value = as_int(size)) dim.set_dim_value(*value);
    else if (const auto text = dim_name(size)) dim.set_dim_param(*text);
  }
}

}  // namespace tessera::inline onnx_import
