// Normalisations and softmax.
#include <fmt/format.h>

#include <limits>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {

using Ints = std::vector<int64_t>;

ValueId mean(AtenContext& c, ValueId x, const Ints& axes, bool keepdims) {
  return axes.empty() ? x : c.composite("reduce_mean", {x}, {{"axes", axes}, {"keepdims", keepdims}});
}

namespace {

// What the program gives as a scale or shift, or else a vector of one number.
ValueId vector_or(AtenContext& c, const char* name, const Expr& extent, DType dtype, double otherwise) {
  if (const auto given = c.maybe_tensor(name)) return c.cast(*given, dtype);
  return c.broadcast(c.scalar(dtype, otherwise), {extent});
}

// 16-bit floats are normalised in f32.
Attrs norm_attrs(AtenContext& c, ValueId x, double epsilon) {
  Attrs attrs = {{"epsilon", epsilon}};
  if (dtype_bits(c.dtype(x)) < 32) attrs.set("stash", DType::kF32);
  return attrs;
}

void batch_norm(AtenContext& c, const char* mean_name, const char* var_name) {
  const ValueId x = c.tensor("input");
  if (c.rank(x) < 2) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "[batch, channels, ...]");
  const Expr channels = c.shape(x)[1];
  const DType dtype = c.dtype(x);
  c.out(c.composite("batch_norm",
                    {x, vector_or(c, "weight", channels, dtype, 1), vector_or(c, "bias", channels, dtype, 0),
                     c.cast(c.tensor(mean_name), dtype), c.cast(c.tensor(var_name), dtype)},
                    {{"epsilon", c.number("eps", 1e-5)}}));
}

// Each channel over the batch and its dimensions, by their own statistics.
void by_own_statistics(AtenContext& c) {
  const DType dtype = c.dtype(c.tensor("input"));
  const ValueId x = in_wide_float(c, c.tensor("input"));
  Ints axes;
  for (int d = 0; d < c.rank(x); ++d)
    if (d != 1) axes.push_back(d);
  const ValueId centred = c.sub(x, mean(c, x, axes));
  const ValueId variance = mean(c, c.mul(centred, centred), axes);
  const ValueId root = c.op("sqrt", {c.add(variance, c.scalar_like(x, c.number("eps", 1e-5)))});
  ValueId y = c.div(centred, root);
  const auto per_channel = [&](ValueId v) { return c.per_channel(c.cast(v, c.dtype(x)), c.rank(x)); };
  if (const auto weight = c.maybe_tensor("weight")) y = c.mul(y, per_channel(*weight));
  if (const auto bias = c.maybe_tensor("bias")) y = c.add(y, per_channel(*bias));
  c.out(c.cast(y, dtype));
}

void import_batch_norm_inference(AtenContext& c) { batch_norm(c, "running_mean", "running_var"); }

void import_batch_norm(AtenContext& c) {
  if (!c.truth("training", false)) return batch_norm(c, "running_mean", "running_var");
  if (c.overload() == "no_stats" || !c.has("running_mean")) return by_own_statistics(c);
  c.unsupported("running statistics that are updated");
}

void import_instance_norm(AtenContext& c) {
  const ValueId x = c.tensor("input");
  if (!c.truth("use_input_stats", true)) return batch_norm(c, "running_mean", "running_var");
  if (c.has("running_mean")) c.unsupported("running statistics that are updated");
  const Expr channels = c.shape(x)[1];
  c.out(c.composite("instance_norm",
                    {x, vector_or(c, "weight", channels, c.dtype(x), 1), vector_or(c, "bias", channels, c.dtype(x), 0)},
                    {{"epsilon", c.number("eps", 1e-5)}}));
}

void import_layer_norm(AtenContext& c) {
  const ValueId x = c.tensor("input");
  const auto count = std::ssize(c.sizes("normalized_shape"));
  const int64_t axis = c.rank(x) - count;
  if (axis < 0 || count == 0) c.malformed(fmt::format("{} dimensions for {}", count, c.type(x).to_string()), "fewer");
  Attrs attrs = norm_attrs(c, x, c.number("eps", 1e-5));
  attrs.set("axis", axis);
  const bool statistics = c.wants(1) || c.wants(2);
  if (statistics) attrs.set("statistics", true);
  std::vector<ValueId> operands = {x};
  const auto weight = c.maybe_tensor("weight"), bias = c.maybe_tensor("bias");
  const Shape sizes = c.shape(x);
  const Shape normalized(sizes.begin() + axis, sizes.end());
  if (weight || bias) operands.push_back(weight ? *weight : c.broadcast(c.scalar_like(x, 1), normalized));
  if (bias) operands.push_back(*bias);
  const std::vector<ValueId> results = c.composite_results("layer_norm", operands, attrs);
  c.out(results[0]);
  // They are f32 for a 16-bit operand, and have the operand's dimensions.
  for (size_t i = 1; i < results.size(); ++i) c.out(i, results[i]);
}

void import_rms_norm(AtenContext& c) {
  const ValueId x = c.tensor("input");
  const auto count = std::ssize(c.sizes("normalized_shape"));
  const double smallest = c.dtype(x) == DType::kF64    ? 2.220446049250313e-16
                          : c.dtype(x) == DType::kBF16 ? 0.0078125
                          : c.dtype(x) == DType::kF16  ? 0.0009765625
                                                       : 1.1920928955078125e-07;
  Attrs attrs = norm_attrs(c, x, c.number("eps", smallest));
  attrs.set("axis", c.rank(x) - count);
  std::vector<ValueId> operands = {x};
  if (const auto weight = c.maybe_tensor("weight")) operands.push_back(c.cast(*weight, c.dtype(x)));
  c.out(c.composite("rms_norm", operands, attrs));
}

// Without a scale or shift by group_norm, which wants both.
void import_group_norm(AtenContext& c) {
  const ValueId x = c.tensor("input");
  if (c.rank(x) < 2) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "[batch, channels, ...]");
  const int64_t groups = c.whole(c.has("group") ? "group" : "num_groups");
  const Expr channels = c.shape(x)[1];
  Attrs attrs = norm_attrs(c, x, c.number("eps", 1e-5));
  attrs.set("groups", groups);
  const ValueId weight = vector_or(c, "weight", channels, c.dtype(x), 1);
  const ValueId bias = vector_or(c, "bias", channels, c.dtype(x), 0);
  if (c.wants(1) || c.wants(2)) {
    // One over the deviation, and the mean, of each group.
    const Ints sizes = {c.dims(x)[0], groups, c.num_elements(x) / std::max<int64_t>(1, c.dims(x)[0] * groups)};
    const ValueId lines = c.reshape(in_wide_float(c, x), sizes);
    const ValueId centre = mean(c, lines, {2}), distance = c.sub(lines, centre);
    const ValueId variance = mean(c, c.mul(distance, distance), {2}, false);
    const ValueId deviation = c.op("sqrt", {c.add(variance, c.scalar_like(variance, c.number("eps", 1e-5)))});
    c.out(1, c.cast(c.reshape(centre, {c.shape(x)[0], groups}), c.dtype(x)));
    c.out(2, c.cast(c.div(c.scalar_like(deviation, 1), deviation), c.dtype(x)));
  }
  if (c.rank(x) > 2) return c.out(c.composite("group_norm", {x, weight, bias}, attrs));
  const ValueId image = c.reshape(x, {c.shape(x)[0], channels, 1});
  c.out(c.reshape(c.composite("group_norm", {image, weight, bias}, attrs), c.shape(x)));
}

template <const char* kName>
void import_softmax(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = c.cast(given, c.result_dtype(c.dtype(given)));
  if (c.rank(x) == 0) return c.out(c.reshape(c.composite(kName, {c.reshape(x, {1})}, {{"axis", int64_t{0}}}), {}));
  c.out(c.composite(kName, {x}, {{"axis", c.dimension("dim", c.rank(x))}}));
}
constexpr char kSoftmax[] = "softmax", kLogSoftmax[] = "log_softmax";

// Rows of nothing but -inf become zeros.
void import_safe_softmax(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = c.cast(given, c.result_dtype(c.dtype(given)));
  const int64_t axis = c.dimension("dim", c.rank(x));
  const ValueId most = c.rank(x) == 0 ? x : c.reduce("max", x, {axis}, true);
  const ValueId nothing = c.op("eq", {most, c.scalar_like(x, -std::numeric_limits<double>::infinity())});
  // Zeros take their place before, too, so that gradients are no NaN.
  const ValueId zero = c.scalar_like(x, 0);
  const ValueId y = c.composite("softmax", {c.op("select", {nothing, zero, x})}, {{"axis", axis}});
  c.out(c.op("select", {nothing, zero, y}));
}

}  // namespace

std::span<const AtenOperator> normalization_operators() {
  static constexpr AtenOperator table[] = {
      {"_batch_norm_no_update", import_batch_norm_inference},
      {"_fused_rms_norm", import_rms_norm},
      {"_log_softmax", import_softmax<kLogSoftmax>},
      {"_native_batch_norm_legit", import_batch_norm},
      {"_native_batch_norm_legit_no_training", import_batch_norm_inference},
      {"_safe_softmax", import_safe_softmax},
      {"_softmax", import_softmax<kSoftmax>},
      {"batch_norm", import_batch_norm},
      {"group_norm", import_group_norm},
      {"instance_norm", import_instance_norm},
      {"layer_norm", import_layer_norm},
      {"log_softmax", import_softmax<kLogSoftmax>},
      {"native_batch_norm", import_batch_norm},
      {"native_group_norm", import_group_norm},
      {"native_layer_norm", import_layer_norm},
      {"rms_norm", import_rms_norm},
      {"softmax", import_softmax<kSoftmax>},
  };
  return table;
}

}  // namespace tessera::inline aten
