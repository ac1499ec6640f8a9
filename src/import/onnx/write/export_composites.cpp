// Composites as the standard ONNX operators that are read as them.
#include <algorithm>
#include <array>
#include <string_view>

#include "import/onnx/read/dtypes.h"
#include "import/onnx/write/export_context.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

bool finish(NodeExport& e, const char* op) {
  e.proto.set_op_type(op);
  set_inputs(e.proto, e.inputs);
  return true;
}

// One attribute of ours and the ONNX attribute that holds it.
struct Attribute {
  std::string_view ours, onnx;
};

struct Row {
  std::string_view composite, op;
  std::array<Attribute, 4> attributes = {};
  int64_t opset = 0;
};

// Composites whose attributes are numbers, flags or words that the ONNX operator has too.
constexpr std::array kRows = {
    Row{"relu", "Relu", {}},
    Row{"leaky_relu", "LeakyRelu", {{{"alpha", "alpha"}}}},
    Row{"prelu", "PRelu", {}},
    Row{"sigmoid", "Sigmoid", {}},
    Row{"hard_sigmoid", "HardSigmoid", {{{"alpha", "alpha"}, {"beta", "beta"}}}},
    Row{"hard_swish", "HardSwish", {}},
    Row{"softplus", "Softplus", {}},
    Row{"softsign", "Softsign", {}},
    Row{"elu", "Elu", {{{"alpha", "alpha"}}}},
    Row{"selu", "Selu", {{{"alpha", "alpha"}, {"gamma", "gamma"}}}},
    Row{"celu", "Celu", {{{"alpha", "alpha"}}}},
    Row{"gelu", "Gelu", {{{"approximate", "approximate"}}}, 20},
    Row{"silu", "Swish", {}, 24},
    Row{"mish", "Mish", {}},
    Row{"batch_norm", "BatchNormalization", {{{"epsilon", "epsilon"}}}},
    Row{"instance_norm", "InstanceNormalization", {{{"epsilon", "epsilon"}}}},
    Row{"softmax", "Softmax", {{{"axis", "axis"}}}},
    Row{"log_softmax", "LogSoftmax", {{{"axis", "axis"}}}},
    Row{"gemm", "Gemm", {{{"alpha", "alpha"}, {"beta", "beta"}, {"trans_a", "transA"}, {"trans_b", "transB"}}}},
    Row{"global_average_pool", "GlobalAveragePool", {}},
    Row{"global_max_pool", "GlobalMaxPool", {}},
};

bool write_row(NodeExport& e, const Row& row) {
  size_t count = 1;  // `name`
  for (const Attribute& attribute : row.attributes) {
    if (attribute.ours.empty()) break;
    const std::string name(attribute.ours), onnx(attribute.onnx);
    if (!e.node.attrs.has(name)) return false;
    ++count;
    const Attr& value = e.node.attrs.all().at(name);
    if (const auto* number = std::get_if<double>(&value)) {
      if (!is_single(*number)) return false;
      set_float(e.proto, onnx, *number);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      set_int(e.proto, onnx, *integer);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      set_int(e.proto, onnx, *flag);
    } else if (const auto* word = std::get_if<std::string>(&value)) {
      set_string(e.proto, onnx, *word);
    } else {
      return false;
    }
  }
  if (e.node.attrs.all().size() != count) return false;
  e.context.need_opset(row.opset);
  return finish(e, std::string(row.op).c_str());
}

bool write_clip(NodeExport& e) {
  for (size_t i = 1; i < 3; ++i)
    if (e.graph.type(e.node.inputs[i]).rank() != 0) return false;
  return finish(e, "Clip");
}

// Whether the node normalises in the type that ONNX does by default: f32 for floats of 16 bits.
bool has_default_stash(const NodeExport& e) {
  const DType dtype = e.graph.type(e.node.inputs[0]).dtype;
  return e.node.attrs.get_or<DType>("stash", dtype) == (dtype_bits(dtype) < 32 ? DType::kF32 : dtype);
}

bool write_norm(NodeExport& e, const char* op, size_t inputs, int64_t opset) {
  const double epsilon = e.node.attrs.get<double>("epsilon");
  if (e.node.inputs.size() < inputs || !is_single(epsilon) || !has_default_stash(e)) return false;
  if (e.node.attrs.has("axis")) set_int(e.proto, "axis", e.node.attrs.get_int("axis"));
  if (e.node.attrs.has("groups")) set_int(e.proto, "num_groups", e.node.attrs.get_int("groups"));
  set_float(e.proto, "epsilon", epsilon);
  e.context.need_opset(opset);
  return finish(e, op);
}

void set_window(NodeExport& e) {
  const Attrs& attrs = e.node.attrs;
  Ints pads = attrs.get_ints("pads_begin");
  pads.insert(pads.end(), attrs.get_ints("pads_end").begin(), attrs.get_ints("pads_end").end());
  set_ints(e.proto, "pads", pads);
  set_ints(e.proto, "strides", attrs.get_ints("strides"));
  set_ints(e.proto, "dilations", attrs.get_ints("dilations"));
}

bool write_pool(NodeExport& e) {
  const bool average = e.node.attrs.get<std::string>("name") == "average_pool";
  if (!e.node.attrs.has("ceil_mode") || e.node.attrs.has("count_include_pad") != average) return false;
  set_window(e);
  set_ints(e.proto, "kernel_shape", e.node.attrs.get_ints("window"));
  set_int(e.proto, "ceil_mode", e.node.attrs.get<bool>("ceil_mode"));
  if (average) set_int(e.proto, "count_include_pad", e.node.attrs.get<bool>("count_include_pad"));
  const Ints& dilations = e.node.attrs.get_ints("dilations");
  if (average && std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; }))
    e.context.need_opset(19);
  return finish(e, average ? "AveragePool" : "MaxPool");
}

bool write_conv_transpose(NodeExport& e) {
  const auto weights = static_dims(e.graph.type(e.node.inputs[1]).shape);
  if (!weights) return false;
  set_window(e);
  set_ints(e.proto, "kernel_shape", Ints(weights->begin() + 2, weights->end()));
  set_ints(e.proto, "output_padding", e.node.attrs.get_ints("output_padding"));
  set_int(e.proto, "group", e.node.attrs.get_int("groups"));
  return finish(e, "ConvTranspose");
}

bool write_quantization(NodeExport& e, bool quantizes) {
  const Node& node = e.node;
  const DType integers = quantizes ? node.attrs.get<DType>("to") : e.graph.type(node.inputs[0]).dtype;
  const DType real = e.graph.type(node.inputs[quantizes ? 0 : 1]).dtype;
  const int bits = dtype_bits(integers);
  if (real == DType::kF64 || bits < 4 || bits > 32 || (bits == 32 && (quantizes || integers != DType::kI32)))
    return false;
  const bool has_axis = node.attrs.has("axis");
  if (has_axis) set_int(e.proto, "axis", node.attrs.get_int("axis"));
  const bool says_type = quantizes && node.inputs.size() == 2 && integers != DType::kU8;
  if (says_type) set_int(e.proto, "output_dtype", onnx_of_dtype(integers));
  if (bits == 16 || says_type) e.context.need_opset(21);
  return finish(e, quantizes ? "QuantizeLinear" : "DequantizeLinear");
}

bool write_integer_product(NodeExport& e, const char* op) {
  if (e.node.attrs.has("groups")) {
    const auto weights = static_dims(e.graph.type(e.node.inputs[1]).shape);
    if (!weights) return false;
    set_window(e);
    set_ints(e.proto, "kernel_shape", Ints(weights->begin() + 2, weights->end()));
    set_int(e.proto, "group", e.node.attrs.get_int("groups"));
  }
  return finish(e, op);
}

constexpr std::array kReductions = {
    Attribute{"reduce_mean", "ReduceMean"},
    Attribute{"reduce_l1", "ReduceL1"},
    Attribute{"reduce_l2", "ReduceL2"},
    Attribute{"reduce_log_sum", "ReduceLogSum"},
    Attribute{"reduce_log_sum_exp", "ReduceLogSumExp"},
    Attribute{"reduce_sum_square", "ReduceSumSquare"},
};

bool write_reduction(NodeExport& e, std::string_view op) {
  const Ints& axes = e.node.attrs.get_ints("axes");
  e.proto.set_op_type(std::string(op));
  set_int(e.proto, "keepdims", e.node.attrs.get<bool>("keepdims"));
  if (axes.empty()) {
    set_int(e.proto, "noop_with_empty_axes", 1);
    set_inputs(e.proto, e.inputs);
  } else {
    set_inputs(e.proto, {e.inputs[0], e.context.ints(axes)});
  }
  return true;
}

}  // namespace

bool write_standard_composite(NodeExport& e) {
  const std::string& name = e.node.attrs.get<std::string>("name");
  for (const Row& row : kRows)
    if (row.composite == name) return write_row(e, row);
  for (const Attribute& row : kReductions)
    if (row.ours == name) return write_reduction(e, row.onnx);
  if (name == "clip") return write_clip(e);
  if (name == "layer_norm") return write_norm(e, "LayerNormalization", 2, 17);
  if (name == "group_norm") return write_norm(e, "GroupNormalization", 3, 21);
  if (name == "rms_norm") return write_norm(e, "RMSNormalization", 2, 23);
  if (name == "max_pool" || name == "average_pool") return write_pool(e);
  if (name == "conv_transpose") return write_conv_transpose(e);
  if (name == "quantize" || name == "dequantize") return write_quantization(e, name == "quantize");
  if (name == "dynamic_quantize") return finish(e, "DynamicQuantizeLinear");
  if (name == "matmul_integer") return write_integer_product(e, "MatMulInteger");
  if (name == "conv_integer") return write_integer_product(e, "ConvInteger");
  return false;
}

}  // namespace tessera::inline onnx_import
