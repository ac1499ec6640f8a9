// pad: elements added (or, with negative amounts, cut off) at both ends of every dimension.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/index_gradients.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

enum Mode : size_t { kConstantMode, kEdge, kReflect, kWrap };

Mode mode_of(const OpContext& ctx) {
  return static_cast<Mode>(
      require_word(ctx, "mode", ctx.attrs.get<std::string>("mode"), {"constant", "edge", "reflect", "wrap"}));
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  const Mode mode = mode_of(ctx);
  const Shape low = require_sizes(ctx, "low", x.shape.size(), -kMaxExtent, kMaxExtent);
  const Shape high = require_sizes(ctx, "high", x.shape.size(), -kMaxExtent, kMaxExtent);
  const size_t operands = mode == kConstantMode ? 2 : 1;
  if (ctx.inputs.size() != operands)
    ctx.fail("TSR-2034", plural(ctx.inputs.size(), "operand", "operands"),
             mode == kConstantMode ? "x and the value to pad with" : "x alone in the modes edge, reflect and wrap");
  if (mode == kConstantMode) {
    require_same_dtype(ctx);
    require_rank(ctx, 1, 0, 0);
  }
  Shape shape;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    const Expr extent = normalize_size(x.shape[d] + low[d] + high[d]);
    const auto known = as_int(extent);
    if (size_at_most(extent, -1))
      ctx.fail("TSR-2025", fmt::format("low = {}, high = {} for {}", join(low), join(high), describe_operand(ctx, 0)),
               "amounts that leave no dimension negative");
    if (mode != kConstantMode && is_const_int(x.shape[d], 0) && known != 0)
      ctx.fail("TSR-2024", fmt::format("padding of dimension {} of {}", d, describe_operand(ctx, 0)),
               "a dimension with elements to take the padding from", "use the mode constant");
    shape.push_back(extent);
  }
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Mode mode = mode_of(ctx);
  const Shape low = ctx.attrs.get_sizes("low"), high = ctx.attrs.get_sizes("high");
  std::vector<Expr> index;
  Expr inside = const_int(DType::kBool, 1);
  for (size_t d = 0; d < low.size(); ++d) {
    const Expr extent = ctx.inputs[0].shape[d];
    const Expr i = body.axes[d].var - low[d];
    const bool adds_low = !size_at_most(low[d], 0), adds_high = !size_at_most(high[d], 0);
    if (!adds_low && !adds_high) {
      index.push_back(i);
      continue;
    }
    switch (mode) {
      case kConstantMode:
        if (adds_low) inside = logical_and(inside, Expr(0) <= i);
        if (adds_high) inside = logical_and(inside, i < extent);
        index.push_back(i);
        break;
      case kEdge: index.push_back(min(max(i, 0), extent - Expr(1))); break;
      case kReflect: {
        // Runs to the end and back again, the ends once: a period of 2 (extent - 1), 1 for a single element.
        const Expr span = Expr(2) * (extent - Expr(1));
        const Expr phase = floormod(i, max(span, 1));
        index.push_back(min(phase, span - phase));
        break;
      }
      case kWrap: index.push_back(floormod(i, extent)); break;
    }
  }
  body.value = load(body.inputs[0], index);
  if (mode == kConstantMode) body.value = select(inside, body.value, load(body.inputs[1], {}));
  return body;
}

// What was added falls away, and what was cut off gets zeros; in the modes that repeat elements of x, the repetitions
// are added, dimension by dimension.
std::vector<ValueId> gradient(Adjoint& a) {
  const Shape x = a.type(a.in(0)).shape, low = a.attrs().get_sizes("low"), high = a.attrs().get_sizes("high");
  const std::string mode = a.attrs().get<std::string>("mode");
  ValueId g = a.gradient();
  if (mode != "constant") {
    for (size_t d = 0; d < x.size(); ++d) {
      if (is_const_int(low[d], 0) && is_const_int(high[d], 0)) continue;
      const ValueId places =
          a.op("pad", {numbers_along(a, x[d])}, {{"low", Shape{low[d]}}, {"high", Shape{high[d]}}, {"mode", mode}});
      Shape shape = a.type(g).shape;
      shape[d] = x[d];
      g = added_at(a, g, places, shape, d);
    }
    return {g};
  }
  const auto constant = [](const Shape& before, const Shape& after) -> Attrs {
    return {{"low", before}, {"high", after}, {"mode", std::string("constant")}};
  };
  std::vector<ValueId> gradients(2, Adjoint::kNone);
  if (a.wants(0)) {
    Shape less_low, less_high;
    for (size_t d = 0; d < x.size(); ++d) {
      less_low.push_back(normalize_size(Expr(0) - low[d]));
      less_high.push_back(normalize_size(Expr(0) - high[d]));
    }
    gradients[0] = a.op("pad", {g, a.scalar(0, g)}, constant(less_low, less_high));
  }
  if (a.wants(1)) {
    const ValueId is_padding =
        a.op("pad", {a.filled(0, DType::kBool, x), a.filled(1, DType::kBool, {})}, constant(low, high));
    gradients[1] = a.sum_to(a.select(is_padding, g, a.scalar(0, g)), a.in(1));
  }
  return gradients;
}

}  // namespace

const OpDef& pad_op() {
  static const OpDef op{
      .name = "pad",
      .doc = "x with elements added before and after each dimension; negative amounts cut off.",
      .min_inputs = 1,
      .max_inputs = 2,
      .attrs = {{"low", AttrKind::kSizes, true, "elements added before, per dimension"},
                {"high", AttrKind::kSizes, true, "elements added after, per dimension"},
                {"mode", AttrKind::kString, true,
                 "constant: the second operand, a scalar; edge: the nearest element; reflect: mirrored at the end "
                 "elements; wrap: from the other end"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[3]) -> (%y: f32[6]) {
  %y = pad(%x) {high = [1], low = [2], mode = "reflect"} : f32[6]
}
run x = 1 2 3 -> y = 3 2 1 2 3 2
)",
  };
  return op;
}

}  // namespace tessera::inline ops
