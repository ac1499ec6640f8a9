// channel_shuffle: the channels (dimension 1) of `groups` groups one after the other become one of each group in turn,
// as in Zhang et al., "ShuffleNet", 2017.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  require_rank(ctx, 0, 2, std::numeric_limits<int>::max());
  const int64_t groups = require_int(ctx, "groups", 1, kMaxExtent);
  const auto channels = as_int(x.shape[1]);
  if (!channels) ctx.fail("TSR-2030", fmt::format("dimension 1 of {}", describe_operand(ctx, 0)), "a fixed extent");
  if (*channels % groups != 0)
    ctx.fail("TSR-2025", fmt::format("groups = {} for {}", groups, describe_operand(ctx, 0)),
             "a number that divides the channels");
  return {TensorType{x.dtype, x.shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const int64_t groups = ctx.attrs.get_int("groups");
  const int64_t of_group = std::max<int64_t>(*as_int(ctx.inputs[0].shape[1]) / groups, 1);
  std::vector<Expr> index = body.axis_vars();
  const Expr channel = index[1];
  index[1] = floormod(channel, Expr(groups)) * Expr(of_group) + floordiv(channel, Expr(groups));
  body.value = load(body.inputs[0], index);
  return body;
}

// Groups that come in turn are put together again.
std::vector<ValueId> gradient(Adjoint& a) {
  const int64_t channels = *as_int(a.type(a.in(0)).shape[1]), groups = a.attrs().get_int("groups");
  if (channels == 0) return {a.gradient()};
  return {a.op("channel_shuffle", {a.gradient()}, {{"groups", channels / groups}})};
}

}  // namespace

const OpDef& channel_shuffle_op() {
  static const OpDef op{
      .name = "channel_shuffle",
      .doc = "Dimension 1 of x as `groups` groups, of which one element each comes in turn.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"groups", AttrKind::kInt, true, "how many groups; divides the extent of dimension 1"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[1,6]) -> (%y: f32[1,6]) {
  %y = channel_shuffle(%x) {groups = 2} : f32[1,6]
}
run x = 1 2 3 4 5 6 -> y = 1 4 2 5 3 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
