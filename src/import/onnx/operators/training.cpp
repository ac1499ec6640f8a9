// Updates of weights by their gradients: Adagrad, Adam, Momentum of ai.onnx.preview.training.
#include <fmt/format.h>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

// The learning rate, the number of the update, and groups of tensors: values, gradients, states. Results are in groups
// too: the new values, then the new states.
struct Update {
  NodeContext& c;
  int count = 0;  // tensors that are optimised

  Update(NodeContext& context, int states) : c(context) {
    const int groups = states + 2;
    c.require_inputs(2 + groups, -1);
    if ((c.num_inputs() - 2) % groups != 0)
      c.malformed(fmt::format("{} inputs", c.num_inputs()), fmt::format("2 and a multiple of {}", groups));
    count = (c.num_inputs() - 2) / groups;
    for (int i = 0; i < 2; ++i)
      if (c.num_elements(c.in(i)) != 1)
        c.malformed(fmt::format("input {} of type {}", i, c.type(c.in(i)).to_string()), "one element");
  }
  ValueId tensor(int group, int i) { return c.in(2 + group * count + i); }
  void result(int group, int i, ValueId v) { c.out(group * count + i, v); }
  // The rate and the number in the type of tensor i.
  ValueId rate(int i) { return c.cast(c.reshape(c.in(0), {}), c.dtype(tensor(0, i))); }
  ValueId number(int i) { return c.cast(c.reshape(c.in(1), {}), c.dtype(tensor(0, i))); }
  ValueId first_update() {
    const ValueId t = c.reshape(c.in(1), {});
    return c.op("le", {t, c.scalar_like(t, 0)});
  }
  ValueId scaled(ValueId v, double factor) { return c.mul(v, c.scalar_like(v, factor)); }
  ValueId gradient(int i, double regularization) {
    const ValueId x = tensor(0, i), g = tensor(1, i);
    for (const ValueId v : {g, tensor(2, i)})
      if (c.dims(v) != c.dims(x) || c.dtype(v) != c.dtype(x))
        c.malformed(fmt::format("a gradient or state of type {} for {}", c.type(v).to_string(), c.type(x).to_string()),
                    "equal types");
    return c.add(scaled(x, regularization), g);
  }
};

void import_adagrad(NodeContext& c) {
  Update u(c, 1);
  const double decay = c.attrs.get_float("decay_factor", 0), epsilon = c.attrs.get_float("epsilon", 1e-6),
               regularization = c.attrs.get_float("norm_coefficient", 0);
  for (int i = 0; i < u.count; ++i) {
    const ValueId g = u.gradient(i, regularization);
    const ValueId n = u.scaled(u.number(i), decay);
    const ValueId rate = c.div(u.rate(i), c.add(n, c.scalar_like(n, 1)));
    const ValueId squares = c.add(u.tensor(2, i), c.mul(g, g));
    const ValueId root = c.add(c.op("sqrt", {squares}), c.scalar_like(g, epsilon));
    u.result(0, i, c.sub(u.tensor(0, i), c.div(c.mul(rate, g), root)));
    u.result(1, i, squares);
  }
}

void import_adam(NodeContext& c) {
  Update u(c, 2);
  const double alpha = c.attrs.get_float("alpha", 0.9f), beta = c.attrs.get_float("beta", 0.999f),
               epsilon = c.attrs.get_float("epsilon", 1e-6f), before = c.attrs.get_float("norm_coefficient", 0),
               after = c.attrs.get_float("norm_coefficient_post", 0);
  for (int i = 0; i < u.count; ++i) {
    const ValueId g = u.gradient(i, before);
    const ValueId mean = c.add(u.scaled(u.tensor(2, i), alpha), u.scaled(g, 1 - alpha));
    const ValueId squares = c.add(u.scaled(u.tensor(3, i), beta), u.scaled(c.mul(g, g), 1 - beta));
    const ValueId root = c.add(c.op("sqrt", {squares}), c.scalar_like(g, epsilon));
    // 1 - alpha^t and 1 - beta^t, which correct what the averages have not seen.
    const auto seen = [&](double factor) {
      return c.sub(c.scalar_like(g, 1), c.op("pow", {c.scalar_like(g, factor), u.number(i)}));
    };
    const ValueId corrected = c.div(c.mul(u.rate(i), c.op("sqrt", {seen(beta)})), seen(alpha));
    const ValueId rate = c.op("select", {u.first_update(), u.rate(i), corrected});
    u.result(0, i, u.scaled(c.sub(u.tensor(0, i), c.div(c.mul(rate, mean), root)), 1 - after));
    u.result(1, i, mean);
    u.result(2, i, squares);
  }
}

void import_momentum(NodeContext& c) {
  Update u(c, 1);
  const double alpha = c.attrs.get_float("alpha", 0), beta = c.attrs.get_float("beta", 0),
               regularization = c.attrs.get_float("norm_coefficient", 0);
  const std::string mode = c.attrs.get_string("mode", "standard");
  if (mode != "standard" && mode != "nesterov") c.malformed(fmt::format("mode = {}", mode), "standard, nesterov");
  for (int i = 0; i < u.count; ++i) {
    const ValueId g = u.gradient(i, regularization);
    const ValueId weight = c.op("select", {u.first_update(), c.scalar_like(g, 1), c.scalar_like(g, beta)});
    const ValueId momentum = c.add(u.scaled(u.tensor(2, i), alpha), c.mul(weight, g));
    const ValueId direction = mode == "standard" ? momentum : c.add(g, u.scaled(momentum, alpha));
    u.result(0, i, c.sub(u.tensor(0, i), c.mul(u.rate(i), direction)));
    u.result(1, i, momentum);
  }
}

}  // namespace

OperatorFamily training_operators() {
  static constexpr OperatorImporter training[] = {
      OperatorImporter{"Adagrad", 1, import_adagrad},
      OperatorImporter{"Adam", 1, import_adam},
      OperatorImporter{"Momentum", 1, import_momentum},
  };
  return {{kTrainingDomain, training}};
}

}  // namespace tessera::inline onnx_import
