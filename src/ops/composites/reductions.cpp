// Reductions beyond sum, product, minimum and maximum. All take `axes` and `keepdims` as reduce does.
#include <fmt/format.h>

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
  return b.divide_by_count(reduce(b, "sum", x), x, axes);
}

// log of the sum of exp, the maximum taken out first. Where the maximum is infinite, x - max would be NaN.
ValueId log_sum_exp(CompositeBody& b, ValueId x) {
  const auto& axes = require_axes(b.context(), "axes", b.type(x).rank());
  const auto finite = [&](ValueId m) { return b.add("select", {b.add("is_inf", {m}), b.scalar(0), m}); };
  const ValueId e = b.add("exp", {b.add("sub", {x, finite(b.reduce("max", x, axes))})});
  return b.add("add", {b.add("log", {reduce(b, "sum", e)}), finite(reduce(b, "max", x))});
}

CompositeDef define(const char* name, const char* doc, bool real_only, ValueId (*f)(CompositeBody&, ValueId),
                    const char* run) {
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
          fmt::format("{}(x: f32[2,2]) {{axes = [1], keepdims = false}}\nrun {}", name, run)};
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
          "x = 3 4 5 12 -> y = 5 13"),
      define(
          "reduce_log_sum", "The logarithm of the sum over the axes.", true,
          [](CompositeBody& b, ValueId x) { return b.add("log", {reduce(b, "sum", x)}); },
          "x = 0.5 0.5 1 1 -> y = 0 0.69314718"),
      define("reduce_log_sum_exp", "The logarithm of the sum of exponentials over the axes.", true, log_sum_exp,
             "x = 0 0 1000 1000 -> y = 0.69314718 1000.69315"),
      define(
          "reduce_sum_square", "The sum of squares over the axes.", false,
          [](CompositeBody& b, ValueId x) { return reduce(b, "sum", square(b, x)); }, "x = 1 -2 3 5 -> y = 5 34"),
  };
  return list;
}

}  // namespace tessera::inline ops
