// Reductions beyond sum, product, minimum and maximum. All take `axes` and `keepdims` as reduce does.
#include <fmt/format.h>

#include "graph/adjoint.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

using Result = std::vector<ValueId>;

ValueId reduce(CompositeBody& b, const char* kind, ValueId x) {
  return b.add("reduce", {x},
               {{"kind", std::string(kind)},
                {"axes", b.attrs().get_ints("axes")},
                {"keepdims", b.attrs().get<bool>("keepdims")}});
}

ValueId square(CompositeBody& b, ValueId x) { return b.add("mul", {x, x}); }

// The mean; integers truncate.
ValueId mean(CompositeBody& b, ValueId x) {
  const auto& axes = require_axes(b.context(), "axes", b.type(x).rank());
  return b.mean(x, axes, b.attrs().get<bool>("keepdims"));
}

// log of the sum of exp, the maximum taken out first. Where the maximum is infinite, x - max would be NaN.
ValueId log_sum_exp(CompositeBody& b, ValueId x) {
  const auto& axes = require_axes(b.context(), "axes", b.type(x).rank());
  const auto finite = [&](ValueId m) { return b.add("select", {b.add("is_inf", {m}), b.scalar(0), m}); };
  const ValueId e = b.add("exp", {b.add("sub", {x, finite(b.reduce("max", x, axes))})});
  return b.add("add", {b.add("log", {reduce(b, "sum", e)}), finite(reduce(b, "max", x))});
}

// Result and gradient with the reduced dimensions of extent 1.
ValueId kept(Adjoint& a, ValueId v) {
  Shape shape = a.type(a.in(0)).shape;
  for (const int64_t axis : a.attrs().get_ints("axes")) shape[static_cast<size_t>(axis)] = 1;
  return a.reshape(v, shape);
}

// x / norm; 0 where all elements are 0.
Result l2_gradient(Adjoint& a) {
  const ValueId x = a.in(0), norm = kept(a, a.out()), zero = a.scalar(0, x);
  const ValueId direction = a.mul(x, a.div(kept(a, a.gradient()), norm));
  return {a.select(a.op("eq", {norm, zero}), zero, direction)};
}

// The softmax over the axes, of infinite results too.
Result log_sum_exp_gradient(Adjoint& a) {
  const ValueId x = a.in(0), y = kept(a, a.out());
  const ValueId finite = a.select(a.op("is_inf", {y}), a.scalar(0, x), y);
  return {a.mul(kept(a, a.gradient()), a.op("exp", {a.sub(x, finite)}))};
}

CompositeDef define(const char* name, const char* doc, bool real_only, ValueId (*f)(CompositeBody&, ValueId),
                    const char* run, std::function<Result(Adjoint&)> gradient = {}) {
  return {name,
          doc,
          1,
          1,
          {{"axes", AttrKind::kInts, true, "the dimensions to reduce"},
           {"keepdims", AttrKind::kBool, true, "whether a reduced dimension stays with extent 1"}},
          [real_only, f](CompositeBody& b) -> Result {
            if (real_only) {
              require_dtype(b.context(), 0, is_real, kRealTypes);
            } else {
              require_dtype(b.context(), 0, is_arithmetic, kArithmeticTypes);
            }
            return {f(b, b.operand(0))};
          },
          fmt::format("{}(x: f32[2,2]) {{axes = [1], keepdims = false}}\nrun {}", name, run),
          std::move(gradient)};
}

}  // namespace

const std::vector<CompositeDef>& reduction_composites() {
  static const std::vector<CompositeDef> list = {
      define("reduce_mean", "The mean over the axes.", false, mean, "x = 1 2 3 5 -> y = 1.5 4"),
      define(
          "reduce_l1", "The sum of absolute values over the axes.", false,
          [](CompositeBody& b, ValueId x) { return reduce(b, "sum", b.add("abs", {x})); }, "x = 1 -2 3 5 -> y = 3 8"),
      define(
          "reduce_l2", "The square root of the sum of squares over the axes.", true,
          [](CompositeBody& b, ValueId x) { return b.add("sqrt", {reduce(b, "sum", square(b, x))}); },
          "x = 3 4 5 12 -> y = 5 13", l2_gradient),
      define(
          "reduce_log_sum", "The logarithm of the sum over the axes.", true,
          [](CompositeBody& b, ValueId x) { return b.add("log", {reduce(b, "sum", x)}); },
          "x = 0.5 0.5 1 1 -> y = 0 0.69314718"),
      define("reduce_log_sum_exp", "The logarithm of the sum of exponentials over the axes.", true, log_sum_exp,
             "x = 0 0 1000 1000 -> y = 0.69314718 1000.69315", log_sum_exp_gradient),
      define(
          "reduce_sum_square", "The sum of squares over the axes.", false,
          [](CompositeBody& b, ValueId x) { return reduce(b, "sum", square(b, x)); }, "x = 1 -2 3 5 -> y = 5 34"),
  };
  return list;
}

}  // namespace tessera::inline ops
