#include "train/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/error.h"

namespace tessera::inline train {
namespace {

// One parameter in its element type. Numbers of the step are computed in f64 and rounded once, as torch's are.
struct Update {
  const GraphOps& o;
  const OptimizerOptions& options;
  const StepNumbers& step;
  ValueId p, g;
  std::vector<ValueId> moments;

  DType dtype() const { return o.type(p).dtype; }
  double epsilon() const {
    if (options.epsilon >= 0) return options.epsilon;
    return options.kind == OptimizerKind::kAdagrad ? 1e-10 : 1e-8;
  }
  ValueId rate() const { return o.cast(guarded(step.rate), dtype()); }
  // f64[]: the number, or 0 in a step that changes nothing.
  ValueId guarded(ValueId number) const {
    return step.ok < 0 ? number : o.op("select", {step.ok, number, o.zero(DType::kF64)});
  }
  // v times the number, or times `otherwise` in a step that changes nothing.
  ValueId times(ValueId v, double number, double otherwise) const {
    if (step.ok < 0) return o.times(v, number);
    const ValueId factor = o.op("select", {step.ok, o.scalar(number, DType::kF64), o.scalar(otherwise, DType::kF64)});
    return o.mul(v, o.cast(factor, o.type(v).dtype));
  }
  // The gradient of the loss and of half the squared norm of the parameter, times the decay.
  ValueId decayed() const { return options.weight_decay == 0 ? g : o.add(g, o.times(p, options.weight_decay)); }
  // from + (to - from) * part
  ValueId moved(ValueId from, ValueId to, double part) const { return o.add(from, times(o.sub(to, from), part, 0)); }
  // v * factor + x * x * (1 - factor)
  ValueId mean_of_squares(ValueId v, ValueId x, double factor) const {
    return o.add(times(v, factor, 1), times(o.mul(x, x), 1 - factor, 0));
  }
  // 1 - factor^number, f64
  ValueId seen(double factor) const {
    return o.sub(o.scalar(1, DType::kF64), o.op("pow", {o.scalar(factor, DType::kF64), step.number}));
  }

  std::vector<ValueId> sgd() const {
    ValueId d = decayed();
    if (options.momentum == 0) return {o.sub(p, o.mul(d, rate()))};
    const ValueId kept = times(moments[0], options.momentum, 1);
    ValueId velocity = o.add(kept, times(d, 1 - options.dampening, 0));
    if (options.dampening != 0) {  // the first gradient counts in full
      const ValueId first = o.op("eq", {step.number, o.scalar(1, DType::kF64)});
      velocity = o.op("select", {first, times(d, 1, 0), velocity});
    }
    d = options.nesterov ? o.add(d, o.times(velocity, options.momentum)) : velocity;
    return {o.sub(p, o.mul(d, rate())), velocity};
  }

  std::vector<ValueId> adam() const {
    ValueId weight = p, d = g;
    if (options.weight_decay != 0 && options.kind == OptimizerKind::kAdamW) {
      const ValueId shrink = o.sub(o.scalar(1, DType::kF64), o.times(step.rate, options.weight_decay));
      const ValueId one = o.scalar(1, DType::kF64);
      weight = o.mul(p, o.cast(step.ok < 0 ? shrink : o.op("select", {step.ok, shrink, one}), dtype()));
    } else {
      d = decayed();
    }
    const ValueId mean = moved(moments[0], d, 1 - options.beta1);
    const ValueId squares = mean_of_squares(moments[1], d, options.beta2);
    const ValueId size = o.cast(guarded(o.div(step.rate, seen(options.beta1))), dtype());
    const ValueId root = o.div(o.sqrt(squares), o.cast(o.sqrt(seen(options.beta2)), dtype()));
    return {o.sub(weight, o.mul(size, o.div(mean, o.plus(root, epsilon())))), mean, squares};
  }

  std::vector<ValueId> rmsprop() const {
    const ValueId d = decayed();
    std::vector<ValueId> after = {mean_of_squares(moments[0], d, options.alpha)};
    ValueId spread = after[0];
    if (options.centered) {
      after.push_back(moved(moments[1], d, 1 - options.alpha));
      spread = o.sub(spread, o.mul(after[1], after[1]));
    }
    ValueId direction = o.div(d, o.plus(o.sqrt(spread), epsilon()));
    if (options.momentum > 0) {
      direction = o.add(times(moments[after.size()], options.momentum, 1), times(direction, 1, 0));
      after.push_back(direction);
    }
    after.insert(after.begin(), o.sub(p, o.mul(direction, rate())));
    return after;
  }

  std::vector<ValueId> adagrad() const {
    const ValueId d = decayed();
    const ValueId sum = o.add(moments[0], times(o.mul(d, d), 1, 0));
    const ValueId slowed = o.plus(o.times(o.plus(step.number, -1), options.rate_decay), 1);
    const ValueId size = options.rate_decay == 0 ? rate() : o.cast(guarded(o.div(step.rate, slowed)), dtype());
    return {o.sub(p, o.mul(size, o.div(d, o.plus(o.sqrt(sum), epsilon())))), sum};
  }
};

}  // namespace

const std::vector<std::string_view>& optimizer_names() {
  static const std::vector<std::string_view> names = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
  return names;
}

OptimizerKind optimizer_kind(const std::string& name) {
  const auto& names = optimizer_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw UserError({.id = "TSR-2080",
                     .message = fmt::format("there is no optimizer '{}'", name),
                     .node = {},
                     .legal = fmt::format("{}", fmt::join(names, ", ")),
                     .hint = {}});
  return static_cast<OptimizerKind>(found - names.begin());
}

void check_optimizer(const OptimizerOptions& options) {
  const auto require = [](bool holds, const char* name, double value, const char* legal) {
    if (!holds)
      throw UserError(
          {.id = "TSR-2081", .message = fmt::format("{} = {}", name, value), .node = {}, .legal = legal, .hint = {}});
  };
  const auto below_one = [&](const char* name, double value) {
    require(value >= 0 && value < 1, name, value, "a number from 0 to below 1");
  };
  const auto finite = [&](const char* name, double value) {
    require(value >= 0 && std::isfinite(value), name, value, "a finite number of at least 0");
  };
  below_one("beta1", options.beta1);
  below_one("beta2", options.beta2);
  below_one("alpha", options.alpha);
  finite("momentum", options.momentum);
  finite("weight_decay", options.weight_decay);
  finite("rate_decay", options.rate_decay);
  require(std::isfinite(options.epsilon), "epsilon", options.epsilon, "a finite number");
  require(std::isfinite(options.dampening), "dampening", options.dampening, "a finite number");
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "momentum", options.momentum,
          "with nesterov, a momentum above 0 and no dampening");
}

std::vector<std::string> moment_names(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kSgd:
      return options.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"velocity"};
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: return {"mean", "squares"};
    case OptimizerKind::kAdagrad: return {"squares"};
    case OptimizerKind::kRmsProp: {
      std::vector<std::string> names = {"squares"};
      if (options.centered) names.push_back("mean");
      if (options.momentum > 0) names.push_back("velocity");
      return names;
    }
  }
  return {};
}

std::vector<ValueId> optimizer_step(const GraphOps& o, const OptimizerOptions& options, const StepNumbers& step,
                                    ValueId parameter, ValueId gradient, const std::vector<ValueId>& moments) {
  // What is not finite is no factor of zeros.
  if (step.ok >= 0) gradient = o.op("select", {step.ok, gradient, o.zero(o.type(gradient).dtype)});
  const Update update{o, options, step, parameter, gradient, moments};
  switch (options.kind) {
    case OptimizerKind::kSgd: return update.sgd();
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: return update.adam();
    case OptimizerKind::kRmsProp: return update.rmsprop();
    case OptimizerKind::kAdagrad: return update.adagrad();
  }
  return {};
}

}  // namespace tessera::inline train
