#include "train/loss.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/composites/composites.h"
#include "support/error.h"

namespace tessera::inline train {
namespace {

ValueId composite(const GraphOps& o, const char* name, std::vector<ValueId> operands, Attrs attrs) {
  return add_composite(o.builder, o.ops, name, std::move(operands), std::move(attrs))[0];
}

ValueId mean(const GraphOps& o, ValueId v) {
  return composite(o, "reduce_mean", {v}, {{"axes", o.all_axes(v)}, {"keepdims", false}});
}

}  // namespace

const std::vector<std::string_view>& loss_names() {
  static const std::vector<std::string_view> names = {"cross_entropy", "nll", "mse"};
  return names;
}

LossKind loss_kind(const std::string& name) {
  const auto& names = loss_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw UserError({.id = "TSR-2080",
                     .message = fmt::format("there is no loss '{}'", name),
                     .node = {},
                     .legal = fmt::format("{}", fmt::join(names, ", ")),
                     .hint = {}});
  return static_cast<LossKind>(found - names.begin());
}

ValueId loss_of(const GraphOps& o, LossKind kind, double label_smoothing, std::optional<int64_t> ignored,
                ValueId scores, ValueId target) {
  if (kind == LossKind::kMeanSquaredError) {
    const ValueId off = o.sub(scores, target);
    return mean(o, o.mul(off, off));
  }
  const char* name = kind == LossKind::kCrossEntropy ? "softmax_cross_entropy" : "nll_loss";
  Attrs attrs = {{"reduction", std::string("mean")}};
  if (ignored) attrs.set("ignore_index", *ignored);
  const std::vector<ValueId> results = add_composite(o.builder, o.ops, name, {scores, target}, std::move(attrs));
  if (label_smoothing == 0) return results[0];
  // The mean over classes, too, of what the loss is where each is the target.
  const ValueId logs = kind == LossKind::kCrossEntropy ? results[1] : scores;
  return o.sub(o.times(results[0], 1 - label_smoothing), o.times(mean(o, logs), label_smoothing));
}

ValueId count_right(const GraphOps& o, ValueId scores, ValueId target) {
  const Shape shape = o.type(scores).shape;
  Shape one_class = shape;
  one_class[1] = 1;
  const ValueId largest = o.reduce("max", scores, {1}, true);
  const ValueId number = o.op("iota", {}, {{"shape", shape}, {"axis", int64_t{1}}, {"dtype", DType::kI64}});
  const ValueId is_target = o.op("eq", {number, o.op("reshape", {target}, {{"shape", one_class}})});
  const ValueId is_largest = o.op("eq", {scores, largest});
  return o.total(o.cast(o.op("logical_and", {is_target, is_largest}), DType::kI64));
}

ValueId distillation_loss(const GraphOps& o, LossKind kind, double temperature, ValueId student, ValueId teacher) {
  if (kind == LossKind::kMeanSquaredError) {
    const ValueId off = o.sub(student, teacher);
    return mean(o, o.mul(off, off));
  }
  const auto logs = [&](ValueId scores) {
    return composite(o, "log_softmax", {o.times(scores, 1 / temperature)}, {{"axis", int64_t{1}}});
  };
  const ValueId wanted = logs(teacher), own = logs(student);
  const ValueId each = o.mul(o.op("exp", {wanted}), o.sub(wanted, own));
  const ValueId of_samples = o.reduce("sum", each, {1}, false);
  return o.times(mean(o, of_samples), temperature * temperature);
}

}  // namespace tessera::inline train
