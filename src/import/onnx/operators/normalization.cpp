// Normalisations.
#include <fmt/format.h>

#include <cmath>

#include "arith/simplify.h"

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kEpsilon = static_cast<double>(1e-5f);

Ints axes_from(int first, int rank) {
  Ints axes;
  for (int axis = first; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

ValueId mean(NodeContext& c, ValueId x, const Ints& axes) {
  return c.composite("reduce_mean", {x}, {{"axes", axes}, {"keepdims", true}});
}

struct Normalised {
  ValueId mean, inverse_deviation, values;
};

// (x - mean) / sqrt(variance + epsilon) over the axes.
Normalised normalise(NodeContext& c, ValueId x, const Ints& axes, double epsilon) {
  const ValueId centre = mean(c, x, axes);
  const ValueId centred = c.sub(x, centre);
  const ValueId variance = mean(c, c.mul(centred, centred), axes);
  const ValueId deviation = c.op("sqrt", {c.add(variance, c.scalar_like(x, epsilon))});
  const ValueId inverse = c.div(c.scalar_like(x, 1), deviation);
  return {centre, inverse, c.mul(centred, inverse)};
}

// 16-bit floats are normalised in f32 when stash_type says so, as it does by default.
DType stash_type(NodeContext& c, ValueId x) {
  const int64_t stash = c.attrs.get_int("stash_type", 1);
  if (stash != 1 && stash != 0) c.unsupported(fmt::format("stash_type = {}; only 1 (float) is supported", stash));
  return stash == 1 && dtype_bits(c.dtype(x)) < 32 ? DType::kF32 : c.dtype(x);
}

ValueId stashed(NodeContext& c, ValueId x) { return c.cast(x, stash_type(c, x)); }

void import_batch_normalization(NodeContext& c) {
  c.require_inputs(5, 5);
  const double momentum = c.attrs.get_float("momentum", static_cast<double>(0.9f));
  const bool training = c.attrs.get_int("training_mode", 0) != 0;
  if (c.version() < 7 && c.attrs.get_int("is_test", 0) == 0) c.unsupported("is_test = 0; only inference is supported");
  if (c.version() < 9 && c.attrs.get_int("spatial", 1) == 0) c.unsupported("spatial = 0");
  if (!training) c.no_outputs_from(1, "the running statistics");
  const ValueId x = c.in(0);
  std::vector<ValueId> operands = {x};
  for (int i = 1; i < 5; ++i) operands.push_back(c.cast(c.in(i), c.dtype(x)));
  if (training) {
    // The statistics are the batch's own; the running ones take them in.
    Ints axes = axes_from(2, c.rank(x));
    axes.insert(axes.begin(), 0);
    const ValueId wide = dtype_bits(c.dtype(x)) < 32 ? c.cast(x, DType::kF32) : x;
    const ValueId centre = mean(c, wide, axes), centred = c.sub(wide, centre);
    const ValueId variance = mean(c, c.mul(centred, centred), axes);
    const std::vector<ValueId> statistics = {centre, variance};
    for (int i = 0; i < 2; ++i) {
      const ValueId own = c.reshape(statistics[static_cast<size_t>(i)], c.dims(c.in(3 + i)));
      const ValueId old = c.cast(c.in(3 + i), c.dtype(own));
      const ValueId taken = c.mul(own, c.scalar_like(own, 1 - momentum));
      c.out(1 + i, c.cast(c.add(c.mul(old, c.scalar_like(old, momentum)), taken), c.dtype(c.in(3 + i))));
      operands[static_cast<size_t>(3 + i)] = c.cast(own, c.dtype(x));
    }
  }
  c.out(0, c.composite("batch_norm", operands, {{"epsilon", c.attrs.get_float("epsilon", kEpsilon)}}));
}

void import_instance_normalization(NodeContext& c) {
  c.require_inputs(3, 3);
  c.out(0, c.composite("instance_norm", c.all_inputs(), {{"epsilon", c.attrs.get_float("epsilon", kEpsilon)}}));
}

void import_layer_normalization(NodeContext& c) {
  c.require_inputs(2, 3);
  const ValueId given = c.in(0);
  const int rank = c.rank(given);
  const int axis = c.axis(c.attrs.get_int("axis", -1), rank);
  const double epsilon = c.attrs.get_float("epsilon", kEpsilon);
  const ValueId x = stashed(c, given);
  if (!c.wants(1) && !c.wants(2) && x == given)
    return c.out(0, c.composite("layer_norm", c.all_inputs(), {{"axis", int64_t{axis}}, {"epsilon", epsilon}}));
  const Normalised n = normalise(c, x, axes_from(axis, rank), epsilon);
  ValueId y = c.mul(c.cast(n.values, c.dtype(given)), c.in(1));
  if (c.has(2)) y = c.add(y, c.in(2));
  c.out(0, y);
  c.out(1, n.mean);
  c.out(2, n.inverse_deviation);
}

// Channels are normalised in groups; scale and bias are per channel (opset 21).
void import_group_normalization(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId given = c.in(0);
  const Shape dims = c.shape(given);
  const int64_t groups = c.attrs.require_int("num_groups");
  if (dims.size() < 3 || groups < 1 || !equal_sizes(floormod(dims[1], groups), 0))
    c.malformed(fmt::format("num_groups = {} for an operand of type {}", groups, c.type(given).to_string()),
                "[batch, channels, spatial dimensions...] with channels that the groups divide");
  const double epsilon = c.attrs.get_float("epsilon", kEpsilon);
  if (!static_dims(dims)) {  // the composite wants sizes as numbers
    const ValueId x = stashed(c, given);
    const Expr inner = floordiv(dims[1], groups) * Emitter::count(Shape(dims.begin() + 2, dims.end()));
    const Normalised n = normalise(c, c.reshape(x, {dims[0], groups, inner}), {2}, epsilon);
    const ValueId y = c.cast(c.reshape(n.values, dims), c.dtype(given));
    return c.out(0, c.add(c.mul(y, c.per_channel(c.in(1), c.rank(y))), c.per_channel(c.in(2), c.rank(y))));
  }
  Attrs attrs = {{"groups", groups}, {"epsilon", epsilon}};
  if (const DType stash = stash_type(c, given); stash != c.dtype(given)) attrs.set("stash", stash);
  c.out(0, c.composite("group_norm", c.all_inputs(), attrs));
}

// x / sqrt(mean(x^2) + epsilon) * scale, and the inverse of that root for those who ask. The result has the scale's
// type.
void import_rms_normalization(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId given = c.in(0);
  const int rank = c.rank(given);
  const int axis = c.axis(c.attrs.get_int("axis", -1), rank);
  const ValueId x = stashed(c, given);
  const double epsilon = c.attrs.get_float("epsilon", kEpsilon);
  if (!c.wants(1) && x == given && c.dtype(c.in(1)) == c.dtype(x))
    return c.out(0, c.composite("rms_norm", {x, c.in(1)}, {{"axis", int64_t{axis}}, {"epsilon", epsilon}}));
  const ValueId square = mean(c, c.mul(x, x), axes_from(axis, rank));
  const ValueId root = c.op("sqrt", {c.add(square, c.scalar_like(x, epsilon))});
  c.out(0, c.mul(c.cast(c.div(x, root), c.dtype(c.in(1))), c.in(1)));
  if (c.wants(1)) c.out(1, c.div(c.scalar_like(root, 1), root));
}

// x divided by its L1 or L2 norm along the axis; 0 where the norm is 0.
void import_lp_normalization(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints axes = {c.axis(c.attrs.get_int("axis", -1), c.rank(x))};
  const int64_t p = c.attrs.get_int("p", 2);
  if (p != 1 && p != 2) c.malformed(fmt::format("p = {}", p), "1 or 2");
  const ValueId norm = c.composite(p == 1 ? "reduce_l1" : "reduce_l2", {x}, {{"axes", axes}, {"keepdims", true}});
  const ValueId zero = c.scalar_like(x, 0);
  c.out(0, c.op("select", {c.op("eq", {norm, zero}), zero, c.div(x, norm)}));
}

// (x - mean) / (sqrt(mean(x^2) - mean^2) + 1e-9)
void import_mean_variance_normalization(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints axes = c.axes(c.attrs.get_ints("axes", {0, 2, 3}), c.rank(x));
  const ValueId centred = c.sub(x, mean(c, x, axes));
  const ValueId deviation = c.op("sqrt", {mean(c, c.mul(centred, centred), axes)});
  c.out(0, c.div(centred, c.add(deviation, c.scalar_like(x, 1e-9))));
}

// x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta: a window over the channels, the
// dimensions behind them taken as one.
void import_lrn(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  if (dims.size() < 2)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "[batch, channels, ...]");
  const int64_t size = c.attrs.require_int("size");
  if (size < 1 || size > (int64_t{1} << 31)) c.malformed(fmt::format("size = {}", size), "1 or more");
  const Expr inner = Emitter::count(Shape(dims.begin() + 2, dims.end()));
  const ValueId squares = c.reshape(c.mul(x, x), {dims[0], 1, dims[1], inner});
  const ValueId sums = c.op("reduce_window", {squares},
                            {{"kind", std::string("sum")},
                             {"window", Ints{size, 1}},
                             {"strides", Ints{1, 1}},
                             {"dilations", Ints{1, 1}},
                             {"pads_begin", Ints{(size - 1) / 2, 0}},
                             {"pads_end", Ints{size - 1 - (size - 1) / 2, 0}}});
  const double alpha = c.attrs.get_float("alpha", static_cast<double>(1e-4f));
  const ValueId scaled = c.mul(c.reshape(sums, dims), c.scalar_like(x, alpha / static_cast<double>(size)));
  const ValueId base = c.add(scaled, c.scalar_like(x, c.attrs.get_float("bias", 1)));
  c.out(0, c.div(x, c.op("pow", {base, c.scalar_like(x, c.attrs.get_float("beta", 0.75))})));
}

}  // namespace

OperatorFamily normalization_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"BatchNormalization", 1, import_batch_normalization},
      OperatorImporter{"GroupNormalization", 21, import_group_normalization},
      OperatorImporter{"InstanceNormalization", 1, import_instance_normalization},
      OperatorImporter{"LRN", 1, import_lrn},
      OperatorImporter{"LayerNormalization", 1, import_layer_normalization},
      OperatorImporter{"LpNormalization", 1, import_lp_normalization},
      OperatorImporter{"MeanVarianceNormalization", 9, import_mean_variance_normalization},
      OperatorImporter{"RMSNormalization", 23, import_rms_normalization},
      OperatorImporter{"SimplifiedLayerNormalization", 1, import_rms_normalization},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
