// softmax and its logarithm. The maximum is subtracted first, so that exp cannot overflow.
#include "ops/composites/softmax.h"

#include "graph/adjoint.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

using Result = std::vector<ValueId>;

struct Parts {
  ValueId shifted;  // x - max
  ValueId exps;     // exp(x - max)
  ValueId total;    // their sum
};

Parts parts_of(CompositeBody& b, ValueId x, int64_t axis) {
  const ValueId shifted = b.add("sub", {x, b.reduce("max", x, {axis})});
  const ValueId exps = b.add("exp", {shifted});
  return {shifted, exps, b.reduce("sum", exps, {axis})};
}

int64_t checked_axis(CompositeBody& b) {
  require_dtype(b.context(), 0, is_real, kRealTypes);
  return require_int(b.context(), "axis", 0, b.type(b.operand(0)).rank() - 1);
}

}  // namespace

ValueId log_softmax(CompositeBody& b, ValueId x, int64_t axis) {
  const Parts parts = parts_of(b, x, axis);
  return b.add("sub", {parts.shifted, b.add("log", {parts.total})});
}

ValueId divide_by_total(CompositeBody& b, ValueId exps, ValueId total) {
  const DType dtype = b.type(total).dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64) return b.add("div", {exps, total});
  return b.add("mul", {exps, b.add("div", {b.scalar(1), total})});
}

namespace {

std::vector<int64_t> axis_of(Adjoint& a) { return {a.attrs().get_int("axis")}; }

Result softmax_gradient(Adjoint& a) {
  const ValueId weighted = a.mul(a.gradient(), a.out());
  const ValueId total = a.reduce("sum", weighted, axis_of(a), true);
  return {a.mul(a.sub(a.gradient(), total), a.out())};
}

Result log_softmax_gradient(Adjoint& a) {
  const ValueId total = a.reduce("sum", a.gradient(), axis_of(a), true);
  return {a.sub(a.gradient(), a.mul(a.op("exp", {a.out()}), total))};
}

std::vector<CompositeDef> definitions() {
  const AttrDef axis{"axis", AttrKind::kInt, true, "the dimension that sums to 1"};
  return {
      {"softmax",
       "exp(x) divided by its sum along axis.",
       1,
       1,
       {axis},
       [](CompositeBody& b) -> Result {
         const Parts parts = parts_of(b, b.operand(0), checked_axis(b));
         return {divide_by_total(b, parts.exps, parts.total)};
       },
       "softmax(x: f32[2,2]) {axis = 1}\nrun x = 0 1 1000 1000 -> y = 0.26894142 0.73105858 0.5 0.5",
       softmax_gradient},
      {"log_softmax",
       "The logarithm of softmax.",
       1,
       1,
       {axis},
       [](CompositeBody& b) -> Result { return {log_softmax(b, b.operand(0), checked_axis(b))}; },
       "log_softmax(x: f32[2,2]) {axis = 1}\nrun x = 0 1 1000 0 -> y = -1.31326169 -0.31326169 0 -1000",
       log_softmax_gradient},
  };
}

}  // namespace

const std::vector<CompositeDef>& softmax_composites() {
  static const std::vector<CompositeDef> list = definitions();
  return list;
}

}  // namespace tessera::inline ops
