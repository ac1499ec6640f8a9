// Losses of scores [N, C, ...] for classes against targets [N, ...], the numbers of the right classes.
#include <fmt/format.h>

#include <numeric>

#include "graph/adjoint.h"
#include "ops/composites/composites.h"
#include "ops/composites/softmax.h"
#include "ops/index_gradients.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

using Result = std::vector<ValueId>;

Shape without_classes(const TensorType& scores) {
  Shape shape = scores.shape;
  shape.erase(shape.begin() + 1);
  return shape;
}

void require_operands(CompositeBody& b) {
  const OpContext& context = b.context();
  require_dtype(context, 0, is_real, kRealTypes);
  require_rank(context, 0, 2, std::numeric_limits<int>::max());
  require_dtype(context, 1, is_index, kIndexTypes);
  const TensorType& scores = b.type(b.operand(0));
  const TensorType& targets = b.type(b.operand(1));
  const Shape want = without_classes(scores);
  bool fits = want.size() == targets.shape.size();
  for (size_t d = 0; fits && d < want.size(); ++d) fits = equal_extents(want[d], targets.shape[d]);
  if (!fits)
    context.fail("TSR-2024", describe_operand(context, 1) + " for " + describe_operand(context, 0),
                 "the scores' shape without dimension 1");
  if (b.num_operands() < 3) return;
  require_rank(context, 2, 1, 1);
  if (!equal_extents(b.type(b.operand(2)).shape[0], scores.shape[1]))
    context.fail("TSR-2024", describe_operand(context, 2),
                 fmt::format("one element for each of the {} classes", to_string(scores.shape[1])));
  if (b.type(b.operand(2)).dtype != scores.dtype)
    context.fail("TSR-2021", describe_operand(context, 2) + " for " + describe_operand(context, 0),
                 "equal element types");
}

// The loss from log probabilities of the scores' shape: minus those of the targets, weighted by their classes.
ValueId loss_of(CompositeBody& b, ValueId log_probabilities) {
  const std::string reduction = b.attrs().get<std::string>("reduction");
  const size_t way = require_word(b.context(), "reduction", reduction, {"none", "mean", "sum"});
  const ValueId targets = b.cast(b.operand(1), DType::kI64);
  const Shape shape = b.type(targets).shape;
  // Wherever a target is ignored, class 0 stands in for it and counts nothing.
  std::optional<ValueId> ignored;
  ValueId classes = targets;
  const auto integer = [&](int64_t value) {
    auto tensor = std::make_shared<Tensor>(DType::kI64, std::vector<int64_t>{});
    tensor->set_int(0, value);
    return b.add("constant", {}, {{"value", TensorPtr(std::move(tensor))}});
  };
  if (b.attrs().has("ignore_index")) {
    ignored = b.add("eq", {targets, integer(b.attrs().get_int("ignore_index"))});
    classes = b.add("select", {*ignored, integer(0), targets});
  }
  Shape one_class = b.type(log_probabilities).shape;
  one_class[1] = 1;
  const ValueId chosen =
      b.add("gather_elements", {log_probabilities, b.reshape(classes, one_class)}, {{"axis", int64_t{1}}});
  ValueId losses = b.add("neg", {b.reshape(chosen, shape)});
  std::optional<ValueId> weights;
  if (b.num_operands() > 2) {
    weights = b.add("gather", {b.operand(2), classes}, {{"axis", int64_t{0}}});
  } else if (ignored) {
    weights = b.add("broadcast", {b.scalar(1)}, {{"shape", shape}});
  }
  if (ignored) {
    weights = b.add("select", {*ignored, b.scalar(0), *weights});
    losses = b.add("select", {*ignored, b.scalar(0), losses});
  }
  if (weights) losses = b.add("mul", {losses, *weights});
  if (way == 0) return losses;
  std::vector<int64_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  const auto total = [&](ValueId v) {
    return b.add("reduce", {v}, {{"kind", std::string("sum")}, {"axes", axes}, {"keepdims", false}});
  };
  const ValueId sum = total(losses);
  if (way == 2) return sum;
  return weights ? b.add("div", {sum, total(*weights)}) : b.divide_by_count(sum, losses, axes);
}

// What one target's loss counts in the result: the gradient of the result, times the weight of the target's class, 0
// where it is ignored, for a mean divided by the weights of all.
ValueId gradient_of_losses(Adjoint& a, ValueId classes) {
  const Shape shape = a.type(classes).shape;
  const ValueId g = a.gradient(), zero = a.scalar(0, g);
  ValueId weights = Adjoint::kNone;
  if (a.num_operands() > 2) weights = a.op("gather", {a.in(2), classes}, {{"axis", int64_t{0}}});
  if (a.attrs().has("ignore_index")) {
    if (weights == Adjoint::kNone) weights = a.filled(1, a.type(g).dtype, shape);
    const ValueId ignored = a.op("eq", {a.cast(a.in(1), DType::kI64), a.integer(a.attrs().get_int("ignore_index"))});
    weights = a.select(ignored, zero, weights);
  }
  const std::string& reduction = a.attrs().get<std::string>("reduction");
  ValueId of_each = reduction == "none" ? g : a.broadcast(g, shape);
  if (weights != Adjoint::kNone) of_each = a.mul(of_each, weights);
  if (reduction != "mean") return of_each;
  std::vector<int64_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  const ValueId total = weights != Adjoint::kNone
                            ? a.reduce("sum", weights, axes, false)
                            : a.cast(a.integer(elements_of(shape, 0, shape.size())), a.type(g).dtype);
  return a.div(of_each, total);
}

// A class out of range is clamped into it, as in the loss.
ValueId classes_of(Adjoint& a) {
  ValueId targets = a.cast(a.in(1), DType::kI64);
  const Expr count = a.type(a.in(0)).shape[1];
  if (a.attrs().has("ignore_index")) {
    const ValueId ignored = a.op("eq", {targets, a.integer(a.attrs().get_int("ignore_index"))});
    targets = a.select(ignored, a.integer(0), targets);
  }
  return places_in_range(a, targets, count);
}

// `at_target` [N, ...] where dimension 1 is the target's class, elsewhere 0.
ValueId at_classes(Adjoint& a, ValueId classes, ValueId at_target) {
  const Shape scores = a.type(a.in(0)).shape;
  Shape one_class = scores;
  one_class[1] = 1;
  const ValueId numbers = a.op("iota", {}, {{"shape", scores}, {"axis", int64_t{1}}, {"dtype", DType::kI64}});
  const ValueId is_target = a.op("eq", {numbers, a.reshape(classes, one_class)});
  return a.select(is_target, a.reshape(at_target, one_class), a.scalar(0, at_target));
}

// Each target adds its loss to the gradient of its class's weight; of a mean, how far it is from the mean, as a part of
// all weights.
ValueId gradient_of_weights(Adjoint& a, ValueId classes, ValueId log_probabilities) {
  const Shape shape = a.type(classes).shape;
  Shape one_class = a.type(a.in(0)).shape;
  one_class[1] = 1;
  const ValueId of_target =
      a.op("gather_elements", {log_probabilities, a.reshape(classes, one_class)}, {{"axis", int64_t{1}}});
  ValueId each = a.neg(a.reshape(of_target, shape));
  const ValueId g = a.gradient(), zero = a.scalar(0, g);
  const ValueId is_ignored =
      a.attrs().has("ignore_index")
          ? a.op("eq", {a.cast(a.in(1), DType::kI64), a.integer(a.attrs().get_int("ignore_index"))})
          : Adjoint::kNone;
  const auto counted = [&](ValueId v) { return is_ignored == Adjoint::kNone ? v : a.select(is_ignored, zero, v); };
  const bool is_mean = a.attrs().get<std::string>("reduction") == "mean";
  if (is_mean) {
    std::vector<int64_t> axes(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    const ValueId weights = counted(a.op("gather", {a.in(2), classes}, {{"axis", int64_t{0}}}));
    each = a.div(a.sub(each, a.out(0)), a.reduce("sum", weights, axes, false));
  }
  each = counted(a.mul(each, a.broadcast(g, shape)));
  const Expr all = elements_of(shape, 0, shape.size());
  return added_at(a, a.reshape(each, {all}), a.reshape(classes, {all}), a.type(a.in(2)).shape, 0);
}

Result nll_gradient(Adjoint& a) {
  const ValueId classes = classes_of(a);
  Result gradients(a.num_operands(), Adjoint::kNone);
  if (a.wants(0)) gradients[0] = at_classes(a, classes, a.neg(gradient_of_losses(a, classes)));
  if (a.num_operands() > 2 && a.wants(2)) gradients[2] = gradient_of_weights(a, classes, a.in(0));
  return gradients;
}

// softmax - 1 at the target and softmax elsewhere; what the second result passes on comes in as through log_softmax.
Result cross_entropy_gradient(Adjoint& a) {
  const ValueId softmax = a.op("exp", {a.out(1)});
  Shape one_class = a.type(a.in(0)).shape;
  one_class[1] = 1;
  ValueId sum = Adjoint::kNone;
  if (a.gradient(0) != Adjoint::kNone) {
    const ValueId classes = classes_of(a), of_each = gradient_of_losses(a, classes);
    sum = a.sub(a.mul(softmax, a.reshape(of_each, one_class)), at_classes(a, classes, of_each));
  }
  if (const ValueId g = a.gradient(1); g != Adjoint::kNone) {
    const ValueId passed = a.sub(g, a.mul(softmax, a.reduce("sum", g, {1}, true)));
    sum = sum == Adjoint::kNone ? passed : a.add(sum, passed);
  }
  Result gradients(a.num_operands(), Adjoint::kNone);
  gradients[0] = sum;
  if (a.num_operands() > 2 && a.wants(2) && a.gradient(0) != Adjoint::kNone)
    gradients[2] = gradient_of_weights(a, classes_of(a), a.out(1));
  return gradients;
}

std::vector<CompositeDef> definitions() {
  const AttrDef reduction{"reduction", AttrKind::kString, true,
                          "none: a loss for each target; sum; mean: the sum divided by the weights of the targets that "
                          "count"};
  const AttrDef ignore_index{"ignore_index", AttrKind::kInt, false, "targets of this number count nothing"};
  return {
      {"nll_loss",
       "The negative log likelihood of targets t[N,...], given log probabilities x[N,C,...] of C classes and, as a "
       "third "
       "operand, a weight for each class.",
       2,
       3,
       {reduction, ignore_index},
       [](CompositeBody& b) -> Result {
         require_operands(b);
         return {loss_of(b, b.operand(0))};
       },
       "nll_loss(x: f32[3,2], t: i64[3], w: f32[2]) {reduction = \"mean\", ignore_index = -1}\n"
       "run x = -1 -2 -3 -4 -5 -6 ; t = 0 1 -1 ; w = 1 3 -> y = 3.25",
       nll_gradient},
      {"softmax_cross_entropy",
       "The negative log likelihood of targets t[N,...] under the softmax of scores x[N,C,...] over C classes, and the "
       "logarithm of that softmax; a third operand is a weight for each class.",
       2,
       3,
       {reduction, ignore_index},
       [](CompositeBody& b) -> Result {
         require_operands(b);
         const ValueId log_probabilities = log_softmax(b, b.operand(0), 1);
         return {loss_of(b, log_probabilities), log_probabilities};
       },
       "softmax_cross_entropy(x: f32[2,2], t: i64[2]) {reduction = \"sum\"}\n"
       "run x = 0 1 1000 0 ; t = 0 1 -> y0 = 1001.31326169 ; y1 = -1.31326169 -0.31326169 0 -1000",
       cross_entropy_gradient},
  };
}

}  // namespace

const std::vector<CompositeDef>& loss_composites() {
  static const std::vector<CompositeDef> list = definitions();
  return list;
}

}  // namespace tessera::inline ops
