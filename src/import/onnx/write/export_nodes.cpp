// Primitives as standard ONNX operators. Every form here must read back as the very node it was written for; the tests
// hold that on random graphs.
#include <array>
#include <cmath>
#include <string_view>

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/write/export_context.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

struct Renamed {
  std::string_view ours, onnx;
};

// The same operands, no attributes.
constexpr std::array kSame = {
    Renamed{"neg", "Neg"},
    Renamed{"abs", "Abs"},
    Renamed{"exp", "Exp"},
    Renamed{"log", "Log"},
    Renamed{"sqrt", "Sqrt"},
    Renamed{"tanh", "Tanh"},
    Renamed{"erf", "Erf"},
    Renamed{"sin", "Sin"},
    Renamed{"cos", "Cos"},
    Renamed{"tan", "Tan"},
    Renamed{"asin", "Asin"},
    Renamed{"acos", "Acos"},
    Renamed{"atan", "Atan"},
    Renamed{"sinh", "Sinh"},
    Renamed{"cosh", "Cosh"},
    Renamed{"asinh", "Asinh"},
    Renamed{"acosh", "Acosh"},
    Renamed{"atanh", "Atanh"},
    Renamed{"floor", "Floor"},
    Renamed{"ceil", "Ceil"},
    Renamed{"round", "Round"},
    Renamed{"sign", "Sign"},
    Renamed{"logical_not", "Not"},
    Renamed{"bitwise_not", "BitwiseNot"},
    Renamed{"is_nan", "IsNaN"},
    Renamed{"is_inf", "IsInf"},
    Renamed{"add", "Add"},
    Renamed{"sub", "Sub"},
    Renamed{"mul", "Mul"},
    Renamed{"div", "Div"},
    Renamed{"pow", "Pow"},
    Renamed{"min", "Min"},
    Renamed{"max", "Max"},
    Renamed{"bitwise_and", "BitwiseAnd"},
    Renamed{"bitwise_or", "BitwiseOr"},
    Renamed{"bitwise_xor", "BitwiseXor"},
    Renamed{"logical_and", "And"},
    Renamed{"logical_or", "Or"},
    Renamed{"logical_xor", "Xor"},
    Renamed{"eq", "Equal"},
    Renamed{"lt", "Less"},
    Renamed{"le", "LessOrEqual"},
    Renamed{"gt", "Greater"},
    Renamed{"ge", "GreaterOrEqual"},
    Renamed{"select", "Where"},
};

const Shape& shape_of(const NodeExport& e, size_t input) { return e.graph.type(e.node.inputs[input]).shape; }

bool finish(NodeExport& e, const char* op, const std::vector<std::string>& inputs) {
  e.proto.set_op_type(op);
  set_inputs(e.proto, inputs);
  return true;
}

bool write_rem(NodeExport& e) {
  set_int(e.proto, "fmod", 1);
  return finish(e, "Mod", e.inputs);
}

bool write_shift(NodeExport& e) {
  if (is_signed_int(e.graph.type(e.node.inputs[0]).dtype)) e.context.need_opset(28);
  set_string(e.proto, "direction", e.node.op->name == "shift_left" ? "LEFT" : "RIGHT");
  return finish(e, "BitShift", e.inputs);
}

// Reading adds steps to casts that saturate, or that turn floats into integers of less than 8 bits.
bool write_cast(NodeExport& e) {
  const DType from = e.graph.type(e.node.inputs[0]).dtype;
  const DType to = e.node.attrs.get<DType>("to");
  if (from == to || (is_float(from) && is_int(to) && dtype_bits(to) < 8)) return false;
  set_int(e.proto, "to", onnx_of_dtype(to));
  if (is_float(to) && dtype_bits(to) <= 8) set_int(e.proto, "saturate", 0);
  return finish(e, "Cast", e.inputs);
}

// A reshape of a constant would be read as a constant, and one to the same shape as nothing.
bool write_reshape(NodeExport& e) {
  const Shape shape = e.node.attrs.get_sizes("shape");
  const Node* producer = e.graph.producer(e.node.inputs[0]);
  if (same_shape(shape, shape_of(e, 0)) || (producer && producer->op->kind == OpKind::kConstant)) return false;
  set_int(e.proto, "allowzero", 1);
  return finish(e, "Reshape", {e.inputs[0], e.context.sizes(shape)});
}

bool write_transpose(NodeExport& e) {
  const Ints& perm = e.node.attrs.get_ints("perm");
  if (std::is_sorted(perm.begin(), perm.end())) return false;
  set_ints(e.proto, "perm", perm);
  return finish(e, "Transpose", e.inputs);
}

bool write_broadcast(NodeExport& e) {
  const Shape shape = e.node.attrs.get_sizes("shape");
  if (same_shape(shape, shape_of(e, 0))) return false;
  return finish(e, "Expand", {e.inputs[0], e.context.sizes(shape)});
}

bool write_slice(NodeExport& e) {
  const Shape starts = e.node.attrs.get_sizes("starts"), sizes = e.node.attrs.get_sizes("sizes"),
              &extents = shape_of(e, 0);
  const Ints& steps = e.node.attrs.get_ints("steps");
  Shape ends;
  Ints axes;
  bool whole = true;
  for (size_t d = 0; d < starts.size(); ++d) {
    whole = whole && is_const_int(starts[d], 0) && equal_sizes(sizes[d], extents[d]) && steps[d] == 1;
    const auto start = as_int(starts[d]), size = as_int(sizes[d]);
    // How reading writes dimensions with few elements.
    if (size == 0 && (start != 0 || steps[d] != 1)) return false;
    if (size == 1 && steps[d] != 1) return false;
    const Expr end = normalize_size(starts[d] + sizes[d] * steps[d]);
    const auto last = as_int(end);
    // ONNX counts negative ends from behind.
    if (!last && size_range(end).lo.value_or(-1) < 0) return false;
    ends.push_back(last && *last < 0 ? Expr(INT64_MIN) : end);
    axes.push_back(static_cast<int64_t>(d));
  }
  if (whole) return false;
  return finish(
      e, "Slice",
      {e.inputs[0], e.context.sizes(starts), e.context.sizes(ends), e.context.ints(axes), e.context.ints(steps)});
}

bool write_pad(NodeExport& e) {
  Shape pads = e.node.attrs.get_sizes("low");
  const Shape high = e.node.attrs.get_sizes("high");
  pads.insert(pads.end(), high.begin(), high.end());
  if (std::all_of(pads.begin(), pads.end(), [](const Expr& p) { return is_const_int(p, 0); })) return false;
  set_string(e.proto, "mode", e.node.attrs.get<std::string>("mode"));
  std::vector<std::string> inputs = {e.inputs[0], e.context.sizes(pads)};
  if (e.inputs.size() > 1) inputs.push_back(e.inputs[1]);
  return finish(e, "Pad", inputs);
}

bool write_concat(NodeExport& e) {
  if (e.inputs.size() < 2) return false;
  set_int(e.proto, "axis", e.node.attrs.get_int("axis"));
  return finish(e, "Concat", e.inputs);
}

bool write_gather(NodeExport& e) {
  set_int(e.proto, "axis", e.node.attrs.get_int("axis"));
  return finish(e, e.node.op->name == "gather" ? "Gather" : "GatherElements", e.inputs);
}

bool write_reduce(NodeExport& e) {
  const Ints& axes = e.node.attrs.get_ints("axes");
  if (axes.empty() || !std::is_sorted(axes.begin(), axes.end())) return false;
  const std::string& kind = e.node.attrs.get<std::string>("kind");
  set_int(e.proto, "keepdims", e.node.attrs.get<bool>("keepdims"));
  return finish(e,
                kind == "sum"    ? "ReduceSum"
                : kind == "prod" ? "ReduceProd"
                : kind == "min"  ? "ReduceMin"
                                 : "ReduceMax",
                {e.inputs[0], e.context.ints(axes)});
}

bool write_matmul(NodeExport& e) {
  if (!e.node.attrs.all().empty()) return false;
  return finish(e, "MatMul", e.inputs);
}

bool write_conv(NodeExport& e) {
  const Attrs& attrs = e.node.attrs;
  if (!attrs.has("input_dilations") || !is_float(e.graph.type(e.node.inputs[0]).dtype)) return false;
  const Ints& gaps = attrs.get_ints("input_dilations");
  if (std::any_of(gaps.begin(), gaps.end(), [](int64_t d) { return d != 1; })) return false;
  const auto weights = static_dims(shape_of(e, 1));
  if (!weights) return false;
  Ints pads = attrs.get_ints("pads_begin");
  pads.insert(pads.end(), attrs.get_ints("pads_end").begin(), attrs.get_ints("pads_end").end());
  set_ints(e.proto, "kernel_shape", Ints(weights->begin() + 2, weights->end()));
  set_ints(e.proto, "strides", attrs.get_ints("strides"));
  set_ints(e.proto, "dilations", attrs.get_ints("dilations"));
  set_ints(e.proto, "pads", pads);
  set_int(e.proto, "group", attrs.get_int("groups"));
  return finish(e, "Conv", e.inputs);
}

// By sizes when the scales are the ratios of the extents, by scales when these give the sizes.
bool write_resize(NodeExport& e) {
  const Attrs& attrs = e.node.attrs;
  if (e.inputs.size() > 1) return false;
  const std::string& mode = attrs.get<std::string>("mode");
  const bool nearest = mode == "nearest", cubic = mode == "cubic";
  const size_t wanted = nearest ? 5 : cubic ? 6 : 4;
  if (attrs.all().size() != wanted || attrs.has("nearest_mode") != nearest || attrs.has("cubic_coeff") != cubic ||
      attrs.has("exclude_outside") != cubic)
    return false;
  const Shape &extents = shape_of(e, 0), sizes = attrs.get_sizes("sizes");
  const auto& scales = attrs.get<std::vector<double>>("scales");
  bool by_sizes = true, by_scales = true, same = true;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto from = as_int(extents[d]), to = as_int(sizes[d]);
    same = same && equal_sizes(sizes[d], extents[d]) && scales[d] == 1;
    if (!from || !to) {
      // Sizes that are a whole multiple are so for every size of the symbols.
      by_sizes = false;
      by_scales = by_scales && is_single(scales[d]) && scales[d] == std::floor(scales[d]) &&
                  equal_sizes(sizes[d], extents[d] * Expr(static_cast<int64_t>(scales[d])));
      continue;
    }
    const double ratio = *from > 0 ? static_cast<double>(*to) / static_cast<double>(*from) : 1;
    by_sizes = by_sizes && scales[d] == ratio;
    const float product = std::floor(static_cast<float>(*from) * static_cast<float>(scales[d]));
    by_scales = by_scales && is_single(scales[d]) && static_cast<double>(product) == static_cast<double>(*to);
  }
  if (same || (!by_sizes && !by_scales) || (cubic && !is_single(attrs.get<double>("cubic_coeff")))) return false;
  set_string(e.proto, "mode", mode);
  set_string(e.proto, "coordinate_transformation_mode", attrs.get<std::string>("coordinate"));
  if (nearest) set_string(e.proto, "nearest_mode", attrs.get<std::string>("nearest_mode"));
  if (cubic) {
    set_float(e.proto, "cubic_coeff_a", attrs.get<double>("cubic_coeff"));
    set_int(e.proto, "exclude_outside", attrs.get<bool>("exclude_outside"));
  }
  if (by_sizes) return finish(e, "Resize", {e.inputs[0], "", "", e.context.sizes(sizes)});
  return finish(e, "Resize", {e.inputs[0], "", e.context.floats(scales)});
}

// Counting from 0 on by 1 along the only dimension.
bool write_iota(NodeExport& e) {
  const Shape shape = e.node.attrs.get_sizes("shape");
  const DType dtype = e.node.attrs.get<DType>("dtype");
  if (shape.size() != 1 || (dtype != DType::kI64 && dtype != DType::kI32 && dtype != DType::kF32)) return false;
  const auto extent = as_int(shape[0]);
  if (!extent && dtype != DType::kI64) return false;
  if (dtype == DType::kF32 && *extent > (1 << 24)) return false;
  return finish(
      e, "Range",
      {e.context.scalar(dtype, 0), extent ? e.context.scalar(dtype, *extent) : e.context.size_scalar(shape[0]),
       e.context.scalar(dtype, 1)});
}

// Sizes as values: where they are numbers, reading makes a constant of them.
bool write_sizes(NodeExport& e) {
  const Shape sizes = e.node.attrs.get_sizes("sizes");
  if (static_dims(sizes)) return false;
  if (e.node.attrs.get<DType>("dtype") == DType::kI64) return finish(e, "Identity", {e.context.sizes(sizes)});
  set_int(e.proto, "to", onnx_of_dtype(e.node.attrs.get<DType>("dtype")));
  return finish(e, "Cast", {e.context.sizes(sizes)});
}

struct Writer {
  std::string_view name;
  bool (*write)(NodeExport&);
};

constexpr std::array kWriters = {
    Writer{"rem", write_rem},
    Writer{"shift_left", write_shift},
    Writer{"shift_right", write_shift},
    Writer{"cast", write_cast},
    Writer{"reshape", write_reshape},
    Writer{"transpose", write_transpose},
    Writer{"broadcast", write_broadcast},
    Writer{"slice", write_slice},
    Writer{"pad", write_pad},
    Writer{"concat", write_concat},
    Writer{"gather", write_gather},
    Writer{"gather_elements", write_gather},
    Writer{"reduce", write_reduce},
    Writer{"matmul", write_matmul},
    Writer{"conv", write_conv},
    Writer{"resize", write_resize},
    Writer{"iota", write_iota},
    Writer{"sizes", write_sizes},
};

}  // namespace

bool write_standard_node(NodeExport& e) {
  for (const Renamed& row : kSame)
    if (row.ours == e.node.op->name) return finish(e, std::string(row.onnx).c_str(), e.inputs);
  for (const Writer& writer : kWriters)
    if (writer.name == e.node.op->name) return writer.write(e);
  return false;
}

}  // namespace tessera::inline onnx_import
