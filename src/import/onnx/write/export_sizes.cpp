// Sizes of graphs with symbols: nodes that compute them from the shapes of the graph's inputs, and names of dimensions.
#include <fmt/format.h>

#include <optional>

#include "arith/simplify.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/write/export_context.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

[[noreturn]] void no_form(const Expr& size, const std::string& why) {
  throw UserError({"TSR-1060", fmt::format("the size {} {}", to_string(size), why), "",
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

std::string ExportContext::size_node(const std::string& op, const std::vector<std::string>& inputs) {
  onnx::NodeProto& node = *size_nodes_.add_node();
  node.set_op_type(op);
  set_inputs(node, inputs);
  return *node.add_output() = fresh_name("size");
}

std::string ExportContext::size(const Expr& size) {
  if (const auto value = as_int(size)) return ints({*value});
  const std::string text = to_string(size);
  if (const auto found = sizes_.find(text); found != sizes_.end()) return found->second;
  std::string name;
  switch (size->kind) {
    case ExprKind::kVar: {
      const auto symbol = symbols_.find(size.get());
      if (symbol == symbols_.end()) no_form(size, "is no dimension of an input by itself");
      name = size_node("Shape", {symbol->second.first});
      onnx::NodeProto& node = *size_nodes_.mutable_node(size_nodes_.node_size() - 1);
      set_int(node, "start", symbol->second.second);
      set_int(node, "end", symbol->second.second + 1);
      break;
    }
    case ExprKind::kBinary: {
      const std::string a = this->size(size->operands[0]), b = this->size(size->operands[1]);
      if (size->binary == BinaryOp::kFloorDiv) {
        // ONNX's division rounds towards zero.
        const bool positive = size_range(size->operands[0]).lo.value_or(-1) >= 0;
        name = size_node("Div", {positive ? a : size_node("Sub", {a, size_node("Mod", {a, b})}), b});
      } else if (const char* op = operator_of(size->binary)) {
        name = size_node(op, {a, b});
      }
      break;
    }
    case ExprKind::kSelect: {
      std::vector<std::string> operands;
      for (const Expr& operand : size->operands) operands.push_back(this->size(operand));
      name = size_node("Where", operands);
      break;
    }
    default: break;
  }
  if (name.empty()) no_form(size, "has no ONNX form");
  return sizes_[text] = name;
}

std::string ExportContext::sizes(const Shape& sizes) {
  if (const auto known = static_dims(sizes)) return ints(*known);
  if (sizes.size() == 1) return size(sizes[0]);
  const std::string text = to_string(sizes);
  if (const auto found = sizes_.find(text); found != sizes_.end()) return found->second;
  std::vector<std::string> parts;
  for (const Expr& part : sizes) parts.push_back(size(part));
  const std::string name = size_node("Concat", parts);
  set_int(*size_nodes_.mutable_node(size_nodes_.node_size() - 1), "axis", 0);
  return sizes_[text] = name;
}

std::string ExportContext::size_scalar(const Expr& size) {
  if (const auto value = as_int(size)) return scalar(DType::kI64, *value);
  const std::string key = "scalar " + to_string(size);
  if (const auto found = sizes_.find(key); found != sizes_.end()) return found->second;
  return sizes_[key] = size_node("Squeeze", {this->size(size)});
}

void ExportContext::finish_sizes() {
  if (size_nodes_.node_size() == 0) return;
  size_nodes_.mutable_node()->MergeFrom(graph().node());
  graph().mutable_node()->Swap(size_nodes_.mutable_node());
  size_nodes_.clear_node();
}

void set_value_info(onnx::ValueInfoProto& info, const std::string& name, const TensorType& type) {
  if (!type.layout.row_major())
    throw UserError({"TSR-1060", fmt::format("value '{}' has the type {}", name, type.to_string()), "",
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
