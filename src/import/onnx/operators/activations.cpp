// Activation functions and softmax.
#include <fmt/format.h>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {

namespace {

void import_activation(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.composite(c.primitive(), {c.in(0)}));
}

void import_alpha_activation(NodeContext& c) {
  c.require_inputs(1, 1);
  const double fallback = c.primitive() == "leaky_relu" ? static_cast<double>(0.01f) : 1.0;
  c.out(0, c.composite(c.primitive(), {c.in(0)}, {{"alpha", c.attrs.get_float("alpha", fallback)}}));
}

void import_hard_sigmoid(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.composite("hard_sigmoid", {c.in(0)},
                       {{"alpha", c.attrs.get_float("alpha", static_cast<double>(0.2f))},
                        {"beta", c.attrs.get_float("beta", 0.5)}}));
}

void import_selu(NodeContext& c) {
  c.require_inputs(1, 1);
  // Opset 6 gave the constants more digits.
  const bool short_constants = c.version() < 6;
  const double alpha = short_constants ? static_cast<double>(1.6732f) : 1.67326319217681884765625;
  const double gamma = short_constants ? static_cast<double>(1.0507f) : 1.05070102214813232421875;
  c.out(0, c.composite("selu", {c.in(0)},
                       {{"alpha", c.attrs.get_float("alpha", alpha)}, {"gamma", c.attrs.get_float("gamma", gamma)}}));
}

void import_gelu(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.composite("gelu", {c.in(0)}, {{"approximate", c.attrs.get_string("approximate", "none")}}));
}

void import_prelu(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  ValueId slope = c.in(1);
  // Before opset 7 there is one slope, or one for each channel.
  if (c.version() < 7 && !same_shape(c.shape(slope), c.shape(x))) {
    const bool per_channel = c.rank(x) >= 2 && same_shape(c.shape(slope), {c.shape(x)[1]});
    if (!c.has_one_element(slope) && !per_channel)
      c.malformed(
          fmt::format("slopes of type {} for an operand of type {}", c.type(slope).to_string(), c.type(x).to_string()),
          "one element, or one for each channel");
    slope = c.has_one_element(slope) ? c.reshape(slope, {}) : c.per_channel(slope, c.rank(x));
  }
  c.out(0, c.composite("prelu", {x, slope}));
}

void import_thresholded_relu(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const ValueId above = c.op("gt", {x, c.scalar_like(x, c.attrs.get_float("alpha", 1))});
  c.out(0, c.op("select", {above, x, c.scalar_like(x, 0)}));
}

// x + bias below -lambd, x - bias above lambd, 0 between.
void import_shrink(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const double lambd = c.attrs.get_float("lambd", 0.5);
  const ValueId bias = c.scalar_like(x, c.attrs.get_float("bias", 0));
  const ValueId high = c.op("select", {c.op("gt", {x, c.scalar_like(x, lambd)}), c.sub(x, bias), c.scalar_like(x, 0)});
  c.out(0, c.op("select", {c.op("lt", {x, c.scalar_like(x, -lambd)}), c.add(x, bias), high}));
}

// x * sigmoid(alpha * x)
ValueId swish(NodeContext& c, ValueId x) {
  const double alpha = c.attrs.get_float("alpha", 1);
  if (alpha == 1) return c.composite("silu", {x});
  return c.mul(x, c.composite("sigmoid", {c.mul(x, c.scalar_like(x, alpha))}));
}

void import_swish(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, swish(c, c.in(0)));
}

void import_swiglu(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId gate = c.in(0), value = c.in(1);
  if (!same_shape(c.shape(gate), c.shape(value)))
    c.malformed(fmt::format("operands of type {} and {}", c.type(gate).to_string(), c.type(value).to_string()),
                "operands of one shape");
  c.out(0, c.mul(swish(c, gate), value));
}

// Before opset 13 the operand counts as a matrix whose rows are the dimensions before `axis`; since then only the one
// dimension `axis` is normalised.
void import_softmax(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const int rank = c.rank(x);
  const int64_t given = c.attrs.get_int("axis", c.version() < 13 ? 1 : -1);
  if (c.version() >= 13 || given == rank - 1 || given == -1)
    return c.out(0, c.composite(c.primitive(), {x}, {{"axis", int64_t{c.axis(given, rank)}}}));
  // An axis of `rank` makes the whole tensor one column of rows with one element.
  const int axis = given == rank ? rank : c.axis(given, rank);
  const auto product = [&](int from, int to) { return Emitter::count(Shape(dims.begin() + from, dims.begin() + to)); };
  const ValueId matrix = c.reshape(x, {product(0, axis), product(axis, rank)});
  c.out(0, c.reshape(c.composite(c.primitive(), {matrix}, {{"axis", int64_t{1}}}), dims));
}

// 1 at the first maximum along the axis, 0 elsewhere.
void import_hardmax(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const int rank = c.rank(x);
  const int axis = c.axis(c.attrs.get_int("axis", c.version() < 13 ? 1 : -1), rank);
  Shape work = dims;
  if (c.version() < 13 && axis != rank - 1) {
    work = {1, 1};
    for (int d = 0; d < rank; ++d) {
      Expr& extent = work[d < axis ? 0 : 1];
      extent = extent * dims[static_cast<size_t>(d)];
    }
  }
  const int64_t over = c.version() < 13 ? static_cast<int64_t>(work.size()) - 1 : axis;
  const ValueId flat = c.reshape(x, work);
  const ValueId place = c.iota(work, over);
  const ValueId is_max = c.op("eq", {flat, c.reduce("max", flat, {over}, true)});
  const ValueId candidates = c.op("select", {is_max, place, c.integer(work[static_cast<size_t>(over)])});
  const ValueId first = c.op("eq", {place, c.reduce("min", candidates, {over}, true)});
  c.out(0, c.reshape(c.cast(first, c.dtype(x)), dims));
}

}  // namespace

OperatorFamily activations_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Celu", 12, import_alpha_activation, "celu"},
      OperatorImporter{"Elu", 1, import_alpha_activation, "elu"},
      OperatorImporter{"Gelu", 20, import_gelu},
      OperatorImporter{"HardSigmoid", 1, import_hard_sigmoid},
      OperatorImporter{"HardSwish", 14, import_activation, "hard_swish"},
      OperatorImporter{"Hardmax", 1, import_hardmax},
      OperatorImporter{"LeakyRelu", 1, import_alpha_activation, "leaky_relu"},
      OperatorImporter{"LogSoftmax", 1, import_softmax, "log_softmax"},
      OperatorImporter{"Mish", 18, import_activation, "mish"},
      OperatorImporter{"PRelu", 1, import_prelu},
      OperatorImporter{"Relu", 1, import_activation, "relu"},
      OperatorImporter{"Selu", 1, import_selu},
      OperatorImporter{"Shrink", 9, import_shrink},
      OperatorImporter{"Sigmoid", 1, import_activation, "sigmoid"},
      OperatorImporter{"Softmax", 1, import_softmax, "softmax"},
      OperatorImporter{"Softplus", 1, import_activation, "softplus"},
      OperatorImporter{"Softsign", 1, import_activation, "softsign"},
      OperatorImporter{"SwiGLU", 28, import_swiglu},
      OperatorImporter{"Swish", 24, import_swish},
      OperatorImporter{"ThresholdedRelu", 10, import_thresholded_relu},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
