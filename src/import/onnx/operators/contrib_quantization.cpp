// Quantised operators of the domain com.microsoft: real value = (stored value - zero point) * scale.
#include <fmt/format.h>

#include <cmath>

#include "arith/simplify.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// A scale or zero point: one value, or one for each entry of `axis` of x.
ValueId along(NodeContext& c, ValueId parameter, ValueId x, int axis) {
  if (c.num_elements(parameter) == 1) return c.reshape(parameter, {});
  Ints shape(static_cast<size_t>(c.rank(x)), 1);
  if (axis < 0 || axis >= c.rank(x))
    c.malformed(fmt::format("a scale or zero point of type {} for an operand of type {}", c.type(parameter).to_string(),
                            c.type(x).to_string()),
                "one element");
  const Expr extent = c.shape(x)[static_cast<size_t>(axis)];
  const Ints dims = c.dims(parameter);
  if (dims.size() != 1 || !equal_sizes(dims[0], extent))
    c.malformed(fmt::format("a scale or zero point of type {} for an operand of type {}", c.type(parameter).to_string(),
                            c.type(x).to_string()),
                fmt::format("one element, or {}", to_string(extent)));
  shape[static_cast<size_t>(axis)] = dims[0];
  return c.reshape(parameter, shape);
}

// Operand `i` with its scale and zero point (either may be -1 when it is left out), as floats.
ValueId real(NodeContext& c, int i, int scale, int zero, int axis = 0) {
  const ValueId x = c.in(i);
  ValueId wide = c.cast(x, DType::kI32);
  if (zero >= 0 && c.has(zero)) wide = c.sub(wide, c.cast(along(c, c.in(zero), x, axis), DType::kI32));
  return c.mul(c.cast(wide, DType::kF32), along(c, c.in(scale), x, axis));
}

// y in the type of operand `like`, by the scale and the zero point of those numbers.
ValueId stored(NodeContext& c, ValueId y, int scale, int zero, DType like) {
  const ValueId none = c.scalar(like, 0);
  return quantized(c, y, c.reshape(c.in(scale), {}), c.has(zero) ? c.reshape(c.in(zero), {}) : none);
}

ValueId activated(NodeContext& c, ValueId x) {
  const std::string name = c.attrs.get_string("activation", "");
  const std::vector<double> parameters = c.attrs.get_floats("activation_params");
  if (name.empty()) return x;
  if (name == "Relu") return c.composite("relu", {x});
  if (name == "Sigmoid") return c.composite("sigmoid", {x});
  if (name == "Tanh") return c.op("tanh", {x});
  if (name == "LeakyRelu" && parameters.size() == 1) return c.composite("leaky_relu", {x}, {{"alpha", parameters[0]}});
  if (name == "Clip" && parameters.size() == 2)
    return c.op("min", {c.op("max", {x, c.scalar_like(x, parameters[0])}), c.scalar_like(x, parameters[1])});
  if (name == "HardSigmoid" && parameters.size() == 2)
    return c.composite("hard_sigmoid", {x}, {{"alpha", parameters[0]}, {"beta", parameters[1]}});
  c.unsupported(fmt::format("activation = {} with {} parameters", name, parameters.size()));
}

// a [.., K] times weights of 2, 4 or 8 bits: B [N, blocks, bytes of a block], a scale for each block, zero points
// packed like the weights or as floats (the middle of the range without them), a bias.
void import_matmul_nbits(NodeContext& c) {
  c.require_inputs(3, 6);
  if (c.has(4)) c.unsupported("g_idx: an order of the groups");
  const int64_t k = c.attrs.require_int("K"), n = c.attrs.require_int("N"), bits = c.attrs.get_int("bits", 4);
  const int64_t block = c.attrs.require_int("block_size");
  c.attrs.ignore("accuracy_level");  // at least as exact as every level
  c.attrs.ignore("weight_prepacked");
  if (bits != 2 && bits != 4 && bits != 8) c.unsupported(fmt::format("bits = {}", bits));
  constexpr int64_t kMost = int64_t{1} << 31;
  const bool fits = k >= 1 && n >= 1 && block >= 16 && k <= kMost && n <= kMost && block <= kMost;
  if (!fits || (block & (block - 1)) != 0 || !checked_num_elements({n, (k + block - 1) / block, block}))
    c.malformed(fmt::format("K = {}, N = {}, block_size = {}", k, n, block),
                "positive, a power of two from 16 on, and at most 2^40 weights");
  const ValueId a = c.in(0);
  const int64_t blocks = (k + block - 1) / block, bytes = block * bits / 8;
  if (c.num_elements(c.in(1)) != n * blocks * bytes || c.dtype(c.in(1)) != DType::kU8)
    c.malformed(fmt::format("weights of type {}", c.type(c.in(1)).to_string()),
                fmt::format("u8[{},{},{}]", n, blocks, bytes));
  const DType dtype = c.dtype(a);
  const auto per_block = [&](ValueId x, const char* what) {
    if (c.num_elements(x) != n * blocks)
      c.malformed(fmt::format("{} of type {}", what, c.type(x).to_string()), fmt::format("{} elements", n * blocks));
    return c.reshape(x, {n, blocks});
  };
  std::vector<ValueId> operands = {c.reshape(c.in(1), {n, blocks * bytes}), per_block(c.in(2), "scales")};
  if (c.has(3) && is_float(c.dtype(c.in(3)))) {
    operands.push_back(per_block(c.in(3), "zero points"));
  } else if (c.has(3)) {
    const int64_t row = (blocks * bits + 7) / 8;
    if (c.num_elements(c.in(3)) != n * row)
      c.malformed(fmt::format("zero points of type {}", c.type(c.in(3)).to_string()), fmt::format("u8[{},{}]", n, row));
    operands.push_back(c.reshape(c.in(3), {n, row}));
  }
  const ValueId w =
      c.op("dequantize_blocks", operands, {{"format", fmt::format("u{}", bits)}, {"group", block}, {"elements", k}});
  ValueId y = c.op("matmul", {c.cast(a, DType::kF32), w}, {{"transpose_b", true}});
  if (c.has(5)) y = c.add(y, c.cast(c.in(5), DType::kF32));
  c.out(0, c.cast(y, dtype));
}

// QLinearAdd, QLinearMul: each operand with its scale and zero point, then those of the result.
void import_qlinear_binary(NodeContext& c) {
  c.require_inputs(7, 8);
  c.out(0, stored(c, c.op(c.primitive(), {real(c, 0, 1, 2), real(c, 3, 4, 5)}), 6, 7, c.dtype(c.in(0))));
}

// QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearReduceMean, QLinearGlobalAveragePool: `primitive` is the
// operator in between.
void import_qlinear_unary(NodeContext& c) {
  c.require_inputs(4, 5);
  const ValueId x = real(c, 0, 1, 2);
  ValueId y = x;
  const std::string kind = c.primitive();
  if (kind == "leaky_relu") {
    y = c.composite(kind, {x}, {{"alpha", c.attrs.get_float("alpha", static_cast<double>(0.01f))}});
  } else if (kind == "softmax") {
    if (c.attrs.get_int("opset", 13) < 13 && c.axis(c.attrs.get_int("axis", 1), c.rank(x)) != c.rank(x) - 1)
      c.unsupported("opset below 13 with another axis than the last");
    y = c.composite(kind, {x}, {{"axis", static_cast<int64_t>(c.axis(c.attrs.get_int("axis", -1), c.rank(x)))}});
  } else if (kind == "reduce_mean") {
    Ints axes = c.axes(c.attrs.get_ints("axes"), c.rank(x));
    for (int d = 0; axes.empty() && d < c.rank(x); ++d) axes.push_back(d);
    y = c.composite(kind, {x}, {{"axes", axes}, {"keepdims", c.attrs.get_int("keepdims", 1) != 0}});
  } else if (kind == "global_average_pool") {
    if (c.attrs.get_int("channels_last", 0) != 0) c.unsupported("channels_last = 1");
    y = c.composite(kind, {x});
  } else {
    y = c.composite(kind, {x});
  }
  c.out(0, stored(c, y, 3, 4, c.dtype(c.in(0))));
}

void import_qlinear_average_pool(NodeContext& c) {
  c.require_inputs(4, 5);
  if (c.attrs.get_int("channels_last", 0) != 0) c.unsupported("channels_last = 1");
  c.out(0, stored(c, average_pool(c, real(c, 0, 1, 2)), 3, 4, c.dtype(c.in(0))));
}

// The result's scale and zero point, then three operands for each part.
void import_qlinear_concat(NodeContext& c) {
  c.require_inputs(5, -1);
  std::vector<ValueId> parts;
  for (int i = 2; i + 1 < c.num_inputs(); i += 3) parts.push_back(real(c, i, i + 1, i + 2));
  const int64_t axis = c.axis(c.attrs.require_int("axis"), c.rank(parts[0]));
  const ValueId y = parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", axis}});
  c.out(0, stored(c, y, 0, 1, c.dtype(c.in(2))));
}

// A condition, two operands with scale and zero point each, those of the result.
void import_qlinear_where(NodeContext& c) {
  c.require_inputs(9, 9);
  c.out(0, stored(c, c.op("select", {c.in(0), real(c, 1, 2, 3), real(c, 4, 5, 6)}), 7, 8, c.dtype(c.in(1))));
}

// alpha * a * b + a bias in units of both scales; floats without a scale of the result.
void import_qgemm(NodeContext& c) {
  c.require_inputs(6, 9);
  const bool trans_a = c.attrs.get_int("transA", 0) != 0, trans_b = c.attrs.get_int("transB", 0) != 0;
  const double alpha = c.attrs.get_float("alpha", 1);
  const ValueId a = c.in(0), b = c.in(3);
  if (c.rank(a) != 2 || c.rank(b) != 2)
    c.malformed(fmt::format("operands of types {} and {}", c.type(a).to_string(), c.type(b).to_string()), "matrices");
  const int column = trans_b ? 0 : 1;
  const auto centred = [&](ValueId x, int zero, int axis) {
    const ValueId wide = c.cast(x, DType::kI32);
    return c.has(zero) ? c.sub(wide, c.cast(along(c, c.in(zero), x, axis), DType::kI32)) : wide;
  };
  ValueId y =
      c.op("matmul", {centred(a, 2, 0), centred(b, 5, column)}, {{"transpose_a", trans_a}, {"transpose_b", trans_b}});
  if (c.has(6)) y = c.add(y, c.in(6));
  ValueId scale = c.mul(c.reshape(c.in(1), {}), c.num_elements(c.in(4)) == 1 ? c.reshape(c.in(4), {}) : c.in(4));
  if (alpha != 1) scale = c.mul(scale, c.scalar_like(scale, alpha));
  const ValueId sum = c.mul(c.cast(y, DType::kF32), scale);
  c.out(0, c.has(7) ? stored(c, sum, 7, 8, c.dtype(a)) : sum);
}

// MatMulIntegerToFloat: a, b, their scales, their zero points, a bias. DynamicQuantizeMatMul: a in floats, which gets
// the scale and zero point of its range; b, its scale and zero point, a bias.
void import_matmul_integer_to_float(NodeContext& c) {
  const bool dynamic = c.primitive() == "dynamic";
  c.require_inputs(dynamic ? 3 : 4, dynamic ? 5 : 7);
  const ValueId b = c.in(1);
  if (c.rank(c.in(0)) < 2 || c.rank(b) < 2)
    c.malformed(fmt::format("operands of types {} and {}", c.type(c.in(0)).to_string(), c.type(b).to_string()),
                "matrices or batches of them");
  ValueId a = c.cast(c.in(0), DType::kI32), scale = c.scalar(DType::kF32, 1);
  if (dynamic) {
    const DynamicRange range = dynamic_range(c, c.in(0));
    a = c.sub(c.cast(range.values, DType::kI32), c.cast(range.zero, DType::kI32));
    scale = range.scale;
  } else {
    scale = along(c, c.in(2), a, c.rank(a) - 1);
    if (c.has(4)) a = c.sub(a, c.cast(along(c, c.in(4), a, c.rank(a) - 1), DType::kI32));
  }
  const int b_scale = dynamic ? 2 : 3, b_zero = dynamic ? 3 : 5, bias = dynamic ? 4 : 6;
  ValueId wide = c.cast(b, DType::kI32);
  if (c.has(b_zero)) wide = c.sub(wide, c.cast(along(c, c.in(b_zero), b, c.rank(b) - 1), DType::kI32));
  ValueId y = c.cast(c.op("matmul", {a, wide}), DType::kF32);
  y = c.mul(y, c.mul(scale, c.num_elements(c.in(b_scale)) == 1 ? c.reshape(c.in(b_scale), {}) : c.in(b_scale)));
  c.out(0, c.has(bias) ? c.add(y, c.in(bias)) : y);
}

// A convolution, an operand that is added, an activation.
void import_fused_conv(NodeContext& c) {
  c.require_inputs(2, 4);
  ValueId y = convolution(c);
  if (c.has(3)) y = c.add(y, c.in(3));
  c.out(0, activated(c, y));
}

}  // namespace

OperatorFamily contrib_quantization_operators() {
  static constexpr OperatorImporter contrib[] = {
      OperatorImporter{"DynamicQuantizeMatMul", 1, import_matmul_integer_to_float, "dynamic"},
      OperatorImporter{"FusedConv", 1, import_fused_conv},
      OperatorImporter{"MatMulIntegerToFloat", 1, import_matmul_integer_to_float},
      OperatorImporter{"MatMulNBits", 1, import_matmul_nbits},
      OperatorImporter{"QGemm", 1, import_qgemm},
      OperatorImporter{"QLinearAdd", 1, import_qlinear_binary, "add"},
      OperatorImporter{"QLinearAveragePool", 1, import_qlinear_average_pool},
      OperatorImporter{"QLinearConcat", 1, import_qlinear_concat},
      OperatorImporter{"QLinearGlobalAveragePool", 1, import_qlinear_unary, "global_average_pool"},
      OperatorImporter{"QLinearLeakyRelu", 1, import_qlinear_unary, "leaky_relu"},
      OperatorImporter{"QLinearMul", 1, import_qlinear_binary, "mul"},
      OperatorImporter{"QLinearReduceMean", 1, import_qlinear_unary, "reduce_mean"},
      OperatorImporter{"QLinearSigmoid", 1, import_qlinear_unary, "sigmoid"},
      OperatorImporter{"QLinearSoftmax", 1, import_qlinear_unary, "softmax"},
      OperatorImporter{"QLinearWhere", 1, import_qlinear_where},
  };
  return {{kContribDomain, contrib}};
}

}  // namespace tessera::inline onnx_import
