// Normalisations.
#include <fmt/format.h>

#include <cmath>

#include "arith/simplify.h"

#include "import/common/local_response.h"
#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kEpsilon = static_cast<double>(1e-5f);

ValueId mean(NodeContext& c, ValueId x, const Ints& axes) {
  return c.composite("reduce_mean", {x}, {{"axes", axes}, {"keepdims", true}});
}

// 16-bit floats are normalised in f32 when stash_type says so, as it does by default.
DType stash_type(NodeContext& c, ValueId x) {
  const int64_t stash = c.attrs.get_int("stash_type", 1);
  if (stash != 1 && stash != 0) c.unsupported(fmt::format("stash_type = {}; only 1 (float) is supported", stash));
  return stash == 1 && dtype_bits(c.dtype(x)) < 32 ? DType::kF32 : c.dtype(x);
}

// The attributes of a composite that normalises x in the stash type, with statistics as further results when asked for.
Attrs norm_attrs(NodeContext& c, ValueId x, bool statistics) {
  Attrs attrs = {{"epsilon", c.attrs.get_float("epsilon", kEpsilon)}};
  if (const DType stash = stash_type(c, x); stash != c.dtype(x)) attrs.set("stash", stash);
  if (statistics) attrs.set("statistics", true);
  return attrs;
}

void out_all(NodeContext& c, const std::vector<ValueId>& results) {
  for (size_t i = 0; i < results.size(); ++i) c.out(static_cast<int>(i), results[i]);
}

void import_batch_normalization(NodeContext& c) {
  c.require_inputs(5, 5);
  const double momentum = c.attrs.get_float("momentum", static_cast<double>(0.9f));
  const bool training = c.attrs.get_int("training_mode", 0) != 0;
  if (c.version() < 7 && c.attrs.get_int("is_test", 0) == 0) c.unsupported("is_test = 0; only inference is supported");
  if (c.version() < 9 && c.attrs.get_int("spatial", 1) == 0) c.unsupported("spatial = 0");
  if (!training) c.no_outputs_from(1, "the running statistics");
  const ValueId x = c.in(0);
  Attrs attrs = {{"epsilon", c.attrs.get_float("epsilon", kEpsilon)}};
  std::vector<ValueId> operands = c.all_inputs();
  if (!training || c.state().for_training) {
    // A training step moves the statistics of what is read as for inference.
    for (int i = 1; i < 3; ++i) c.out(i, operands[static_cast<size_t>(i) + 2]);
    for (size_t i = 1; i < 5; ++i) operands[i] = c.cast(operands[i], c.dtype(x));
    return c.out(0, c.composite("batch_norm", operands, attrs));
  }
  // The statistics are the batch's own; the running ones take them in.
  attrs.set("momentum", momentum);
  if (dtype_bits(c.dtype(x)) < 32) attrs.set("stash", DType::kF32);
  const std::vector<ValueId> results = c.composite_results("batch_norm_training", operands, attrs);
  for (int i = 0; i < 3; ++i) c.out(i, results[static_cast<size_t>(i)]);
}

void import_instance_normalization(NodeContext& c) {
  c.require_inputs(3, 3);
  c.out(0, c.composite("instance_norm", c.all_inputs(), {{"epsilon", c.attrs.get_float("epsilon", kEpsilon)}}));
}

void import_layer_normalization(NodeContext& c) {
  c.require_inputs(2, 3);
  Attrs attrs = norm_attrs(c, c.in(0), c.wants(1) || c.wants(2));
  attrs.set("axis", int64_t{c.axis(c.attrs.get_int("axis", -1), c.rank(c.in(0)))});
  out_all(c, c.composite_results("layer_norm", c.all_inputs(), attrs));
}

// Channels are normalised in groups; scale and bias are per channel (opset 21).
void import_group_normalization(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId x = c.in(0);
  const int64_t groups = c.attrs.require_int("num_groups");
  if (c.rank(x) < 3 || groups < 1 || !equal_sizes(floormod(c.shape(x)[1], groups), 0))
    c.malformed(fmt::format("num_groups = {} for an operand of type {}", groups, c.type(x).to_string()),
                "[batch, channels, spatial dimensions...] with channels that the groups divide");
  Attrs attrs = norm_attrs(c, x, false);
  attrs.set("groups", groups);
  c.out(0, c.composite("group_norm", c.all_inputs(), attrs));
}

// x / sqrt(mean(x^2) + epsilon) * scale, and the inverse of that root for those who ask. The result has the scale's
// type.
void import_rms_normalization(NodeContext& c) {
  c.require_inputs(2, 2);
  Attrs attrs = norm_attrs(c, c.in(0), c.wants(1));
  attrs.set("axis", int64_t{c.axis(c.attrs.get_int("axis", -1), c.rank(c.in(0)))});
  out_all(c, c.composite_results("rms_norm", c.all_inputs(), attrs));
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

void import_lrn(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (c.rank(x) < 2) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "[batch, channels, ...]");
  const int64_t size = c.attrs.require_int("size");
  if (size < 1 || size > (int64_t{1} << 31)) c.malformed(fmt::format("size = {}", size), "1 or more");
  c.out(0, local_response(c, x, size, c.attrs.get_float("alpha", static_cast<double>(1e-4f)),
                          c.attrs.get_float("beta", 0.75), c.attrs.get_float("bias", 1)));
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
