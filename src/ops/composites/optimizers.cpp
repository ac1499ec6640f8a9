// Optimizers: what one step makes of a weight and of the state that belongs to it, given the weight's gradient.
#include <fmt/format.h>

#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

using Result = std::vector<ValueId>;

// The operands: weight, gradient, states of the weight's type, then the learning rate and the number of the step as
// scalars.
struct Step {
  CompositeBody& b;
  size_t states;

  Step(CompositeBody& body, size_t num_states) : b(body), states(num_states) {
    const OpContext& context = b.context();
    require_dtype(context, 0, is_real, kRealTypes);
    for (size_t i = 1; i < 2 + states; ++i) {
      const TensorType& type = context.inputs[i];
      if (type.dtype != context.inputs[0].dtype || !same_shape(type.shape, context.inputs[0].shape))
        context.fail("TSR-2024", describe_operand(context, i) + " for " + describe_operand(context, 0),
                     "a gradient and states of the weight's type");
    }
    for (const size_t i : {2 + states, 3 + states}) require_rank(context, i, 0, 0);
    require_dtype(context, 2 + states, is_real, kRealTypes);
    require_dtype(context, 3 + states, is_integral, kIntegralTypes);
  }
  double attr(const char* name) const { return b.attrs().get<double>(name); }
  ValueId weight() const { return b.operand(0); }
  ValueId state(size_t i) const { return b.operand(2 + i); }
  ValueId rate() const { return b.cast(b.operand(2 + states), b.dtype()); }
  ValueId number() const { return b.cast(b.operand(3 + states), b.dtype()); }
  ValueId is_first() const {
    const ValueId number = b.operand(3 + states);
    return b.add("le", {number, b.scalar(0, b.type(number).dtype)});
  }
  ValueId scaled(ValueId v, double factor) const { return b.add_scalar("mul", v, factor); }
  // The gradient of the loss with half the squared norm of the weights, times l2, added.
  ValueId gradient() const { return b.add("add", {scaled(weight(), attr("l2")), b.operand(1)}); }
};

Result adagrad(CompositeBody& b) {
  const Step step(b, 1);
  const ValueId g = step.gradient();
  const ValueId decay = b.add_scalar("add", step.scaled(step.number(), step.attr("decay")), 1);
  const ValueId rate = b.add("div", {step.rate(), decay});
  const ValueId squares = b.add("add", {step.state(0), b.add("mul", {g, g})});
  const ValueId root = b.add_scalar("add", b.add("sqrt", {squares}), step.attr("epsilon"));
  const ValueId change = b.add("div", {b.add("mul", {rate, g}), root});
  return {b.add("sub", {step.weight(), change}), squares};
}

Result adam(CompositeBody& b) {
  const Step step(b, 2);
  const double alpha = step.attr("alpha"), beta = step.attr("beta");
  const ValueId g = step.gradient();
  const ValueId mean = b.add("add", {step.scaled(step.state(0), alpha), step.scaled(g, 1 - alpha)});
  const ValueId squares = b.add("add", {step.scaled(step.state(1), beta), step.scaled(b.add("mul", {g, g}), 1 - beta)});
  const ValueId root = b.add_scalar("add", b.add("sqrt", {squares}), step.attr("epsilon"));
  // 1 - factor^number: the part of the whole that an average has seen. It corrects for the zeros that it began with.
  const auto seen = [&](double factor) {
    return b.add("sub", {b.scalar(1), b.add("pow", {b.scalar(factor), step.number()})});
  };
  const ValueId corrected = b.add("div", {b.add("mul", {step.rate(), b.add("sqrt", {seen(beta)})}), seen(alpha)});
  const ValueId rate = b.add("select", {step.is_first(), step.rate(), corrected});
  const ValueId moved = b.add("sub", {step.weight(), b.add("div", {b.add("mul", {rate, mean}), root})});
  return {step.scaled(moved, 1 - step.attr("shrink")), mean, squares};
}

Result momentum(CompositeBody& b) {
  const Step step(b, 1);
  const double alpha = step.attr("alpha");
  const ValueId g = step.gradient();
  const ValueId weight = b.add("select", {step.is_first(), b.scalar(1), b.scalar(step.attr("beta"))});
  const ValueId velocity = b.add("add", {step.scaled(step.state(0), alpha), b.add("mul", {weight, g})});
  const ValueId direction =
      b.attrs().get_or<bool>("nesterov", false) ? b.add("add", {g, step.scaled(velocity, alpha)}) : velocity;
  return {b.add("sub", {step.weight(), b.add("mul", {step.rate(), direction})}), velocity};
}

std::vector<CompositeDef> definitions() {
  const AttrDef l2{"l2", AttrKind::kFloat, true, "the gradient grows by this much of the weight"};
  const AttrDef epsilon{"epsilon", AttrKind::kFloat, true, "added to the root that divides"};
  return {
      {"adagrad",
       "A step of Adagrad: the new weight and the new sum of squared gradients. The operands are weight, gradient, sum "
       "of "
       "squared gradients, learning rate, number of the step.",
       5,
       5,
       {l2, epsilon, {"decay", AttrKind::kFloat, true, "the rate is divided by 1 + this times the number of the step"}},
       adagrad,
       "adagrad(w: f32[2], g: f32[2], s: f32[2], rate: f32[], t: i64[]) {l2 = 0.0, epsilon = 0.0, decay = 1.0}\n"
       "run w = 1 2 ; g = 3 -4 ; s = 16 0 ; rate = 1 ; t = 1 -> y0 = 0.7 2.5 ; y1 = 25 16"},
      {"adam",
       "A step of Adam: the new weight and the new averages of gradients and of their squares. The operands are "
       "weight, "
       "gradient, average, average of squares, learning rate, number of the step: at 0 or below, the averages are not "
       "corrected.",
       6,
       6,
       {l2,
        epsilon,
        {"alpha", AttrKind::kFloat, true, "how much of the average stays"},
        {"beta", AttrKind::kFloat, true, "how much of the average of squares stays"},
        {"shrink", AttrKind::kFloat, true, "the part of the new weight that is taken away at the end"}},
       adam,
       "adam(w: f32[1], g: f32[1], m: f32[1], v: f32[1], rate: f32[], t: i64[]) "
       "{l2 = 0.0, epsilon = 0.0, alpha = 0.75, beta = 0.75, shrink = 0.5}\n"
       "run w = 2 ; g = 4 ; m = 0 ; v = 0 ; rate = 1 ; t = 1 -> y0 = 0.5 ; y1 = 1 ; y2 = 4\n"
       "run w = 2 ; g = 4 ; m = 0 ; v = 0 ; rate = 1 ; t = 0 -> y0 = 0.75 ; y1 = 1 ; y2 = 4"},
      {"momentum",
       "A step of gradient descent with momentum: the new weight and the new momentum. The operands are weight, "
       "gradient, "
       "momentum, learning rate, number of the step: at 0 or below, the gradient counts in full.",
       5,
       5,
       {l2,
        {"alpha", AttrKind::kFloat, true, "how much of the momentum stays"},
        {"beta", AttrKind::kFloat, true, "how much of the gradient the momentum takes in"},
        {"nesterov", AttrKind::kBool, false, "the weight follows the gradient and alpha times the new momentum"}},
       momentum,
       "momentum(w: f32[1], g: f32[1], v: f32[1], rate: f32[], t: i64[]) {l2 = 0.0, alpha = 0.5, beta = 0.25}\n"
       "run w = 1 ; g = 4 ; v = 2 ; rate = 0.5 ; t = 1 -> y0 = 0 ; y1 = 2\n"
       "run w = 1 ; g = 4 ; v = 2 ; rate = 0.5 ; t = 0 -> y0 = -1.5 ; y1 = 5"},
  };
}

}  // namespace

const std::vector<CompositeDef>& optimizer_composites() {
  static const std::vector<CompositeDef> list = definitions();
  return list;
}

}  // namespace tessera::inline ops
