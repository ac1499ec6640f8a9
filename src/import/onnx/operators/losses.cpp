// Losses over classes: scores [N, C, ...], targets [N, ...].
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

ValueId loss(NodeContext& c, ValueId log_probability) {
  const ValueId target = c.in(1);
  const Ints dims = c.dims(log_probability);
  const std::string reduction = c.attrs.get_string("reduction", "mean");
  if (reduction != "none" && reduction != "mean" && reduction != "sum")
    c.malformed(fmt::format("reduction = {}", reduction), "none, mean, sum");
  Ints want = dims;
  if (dims.size() >= 2) want.erase(want.begin() + 1);
  if (dims.size() < 2 || c.dims(target) != want)
    c.malformed(fmt::format("targets of type {} for scores of type {}", c.type(target).to_string(),
                            c.type(log_probability).to_string()),
                "the scores' shape without dimension 1");
  const ValueId wide = c.cast(target, DType::kI64);
  std::optional<ValueId> ignored;
  if (c.attrs.has("ignore_index")) {
    ignored = c.op("eq", {wide, c.reshape(c.ints({c.attrs.get_int("ignore_index", 0)}), {})});
  }
  const ValueId in_range = ignored ? c.op("select", {*ignored, c.integer(0), wide}) : wide;
  Ints one_class = dims;
  one_class[1] = 1;
  const ValueId chosen =
      c.op("gather_elements", {log_probability, c.reshape(in_range, one_class)}, {{"axis", int64_t{1}}});
  ValueId losses = c.op("neg", {c.reshape(chosen, want)});
  const ValueId zero = c.scalar_like(losses, 0);
  std::optional<ValueId> weights;
  if (c.has(2)) weights = c.op("gather", {c.in(2), in_range}, {{"axis", int64_t{0}}});
  else if (ignored) weights = c.broadcast(c.scalar_like(losses, 1), want);
  if (ignored) {
    weights = c.op("select", {*ignored, zero, *weights});
    losses = c.op("select", {*ignored, zero, losses});
  }
  if (weights) losses = c.mul(losses, *weights);
  if (reduction == "none") return losses;
  Ints axes(want.size());
  std::iota(axes.begin(), axes.end(), 0);
  const ValueId sum = c.reduce("sum", losses, axes, false);
  if (reduction == "sum") return sum;
  if (weights) return c.div(sum, c.reduce("sum", *weights, axes, false));
  return c.div(sum, c.scalar_like(sum, static_cast<double>(c.num_elements(losses))));
}

void import_negative_log_likelihood_loss(NodeContext& c) {
  c.require_inputs(2, 3);
  c.out(0, loss(c, c.in(0)));
}

void import_softmax_cross_entropy_loss(NodeContext& c) {
  c.require_inputs(2, 3);
  const ValueId log_probability = c.composite("log_softmax", {c.in(0)}, {{"axis", int64_t{1}}});
  c.out(0, loss(c, log_probability));
  c.out(1, log_probability);
}

}  // namespace

OperatorFamily losses_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"NegativeLogLikelihoodLoss", 12, import_negative_log_likelihood_loss},
      OperatorImporter{"SoftmaxCrossEntropyLoss", 12, import_softmax_cross_entropy_loss},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
