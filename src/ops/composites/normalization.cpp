// Normalisations.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

using Result = std::vector<ValueId>;

// TSR-2022, TSR-2024 unless operand i is a vector over the channels of x[N,C,...].
void require_channels(CompositeBody& b, size_t i) {
  const TensorType& x = b.type(b.operand(0));
  require_rank(b.context(), i, 1, 1);
  if (!equal_extents(b.type(b.operand(i)).shape[0], x.shape[1]))
    b.context().fail("TSR-2024", describe_operand(b.context(), i),
                     fmt::format("one element for each of the {} channels", to_string(x.shape[1])));
}

// `vector`, one element for each channel, shaped so that it broadcasts along dimension 1 of x.
ValueId along_channels(CompositeBody& b, ValueId vector) {
  const TensorType& x = b.type(b.operand(0));
  if (x.rank() == 2) return vector;
  Shape shape(x.shape.size() - 1, 1);
  shape[0] = x.shape[1];
  return b.reshape(vector, shape);
}

// Operand i, a vector over the channels, shaped as along_channels says.
ValueId per_channel(CompositeBody& b, size_t i) {
  require_channels(b, i);
  return along_channels(b, b.operand(i));
}

void require_image(CompositeBody& b, int min_rank) {
  require_dtype(b.context(), 0, is_real, kRealTypes);
  require_same_dtype(b.context());
  require_rank(b.context(), 0, min_rank, std::numeric_limits<int>::max());
}

Result batch_norm(CompositeBody& b) {
  require_image(b, 2);
  const ValueId variance = b.add_scalar("add", per_channel(b, 4), b.attrs().get<double>("epsilon"));
  const ValueId factor = b.add("div", {per_channel(b, 1), b.add("sqrt", {variance})});
  const ValueId centred = b.add("sub", {b.operand(0), per_channel(b, 3)});
  return {b.add("add", {b.add("mul", {centred, factor}), per_channel(b, 2)})};
}

// Mean and variance of `x` over `axes`, which stay with extent 1.
struct Moments {
  ValueId mean, centred, squares, variance;  // x - mean, and its square
};

Moments moments(CompositeBody& b, ValueId x, const std::vector<int64_t>& axes) {
  const ValueId mean = b.divide_by_count(b.reduce("sum", x, axes), x, axes);
  const ValueId centred = b.add("sub", {x, mean});
  const ValueId squares = b.reduce("sum", b.add("mul", {centred, centred}), axes);
  return {mean, centred, squares, b.divide_by_count(squares, x, axes)};
}

// sqrt(variance + epsilon)
ValueId deviation(CompositeBody& b, ValueId variance) {
  return b.add("sqrt", {b.add_scalar("add", variance, b.attrs().get<double>("epsilon"))});
}

ValueId reciprocal(CompositeBody& b, ValueId x) { return b.add("div", {b.scalar(1, b.type(x).dtype), x}); }

// The first operand in the type in which it is normalised.
ValueId stashed(CompositeBody& b) {
  const DType stash = b.attrs().get_or<DType>("stash", b.dtype());
  if (!is_real(stash)) b.context().fail("TSR-2020", fmt::format("stash = {}", dtype_name(stash)), kRealTypes);
  return b.cast(b.operand(0), stash);
}

bool wants_statistics(const CompositeBody& b) { return b.attrs().get_or<bool>("statistics", false); }

std::vector<int64_t> axes_from(int64_t first, int rank) {
  std::vector<int64_t> axes;
  for (int64_t axis = first; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

Result batch_norm_training(CompositeBody& b) {
  require_dtype(b.context(), 0, is_real, kRealTypes);
  require_rank(b.context(), 0, 2, std::numeric_limits<int>::max());
  for (size_t i = 1; i < 5; ++i) {
    require_channels(b, i);
    require_dtype(b.context(), i, is_real, kRealTypes);
  }
  const ValueId x = stashed(b);
  const DType wide = b.type(x).dtype;
  std::vector<int64_t> axes = axes_from(2, b.type(x).rank());
  axes.insert(axes.begin(), 0);
  const Moments batch = moments(b, x, axes);
  const ValueId inverse = reciprocal(b, deviation(b, batch.variance));
  const auto operand = [&](size_t i) { return b.cast(per_channel(b, i), wide); };
  const ValueId scaled = b.add("mul", {batch.centred, b.add("mul", {operand(1), inverse})});
  const ValueId y = b.cast(b.add("add", {scaled, operand(2)}), b.dtype());

  const Shape channels = b.type(b.operand(3)).shape;
  const auto as_vector = [&](ValueId v) { return b.reshape(v, channels); };
  const double momentum = b.attrs().get<double>("momentum");
  const auto running = [&](size_t i, ValueId own) {
    const ValueId old = b.add_scalar("mul", b.cast(b.operand(i), wide), momentum);
    return b.cast(b.add("add", {old, b.add_scalar("mul", own, 1 - momentum)}), b.type(b.operand(i)).dtype);
  };
  const bool unbiased = b.attrs().get_or<bool>("unbiased", false);
  const ValueId variance = unbiased ? b.divide_by_count(batch.squares, x, axes, 1) : batch.variance;
  const ValueId mean = as_vector(batch.mean);
  return {y, running(3, mean), running(4, as_vector(variance)), mean, as_vector(inverse)};
}

Result instance_norm(CompositeBody& b) {
  require_image(b, 3);
  const Moments m = moments(b, b.operand(0), axes_from(2, b.type(b.operand(0)).rank()));
  const ValueId unit = b.add("div", {m.centred, deviation(b, m.variance)});
  return {b.add("add", {b.add("mul", {unit, per_channel(b, 1)}), per_channel(b, 2)})};
}

Result layer_norm(CompositeBody& b) {
  require_image(b, 1);
  const ValueId x = stashed(b);
  const int rank = b.type(x).rank();
  const int64_t axis = require_int(b.context(), "axis", 0, rank - 1);
  const Moments m = moments(b, x, axes_from(axis, rank));
  const ValueId spread = deviation(b, m.variance);
  ValueId y = b.cast(b.add("div", {m.centred, spread}), b.dtype());
  if (b.num_operands() > 1) y = b.add("mul", {y, b.operand(1)});
  if (b.num_operands() == 3) y = b.add("add", {y, b.operand(2)});
  if (!same_shape(b.type(y).shape, b.type(x).shape))
    b.context().fail("TSR-2023", describe_operand(b.context(), 1),
                     "scale and bias that broadcast to " + describe_operand(b.context(), 0));
  if (!wants_statistics(b)) return {y};
  return {y, m.mean, reciprocal(b, spread)};
}

Result rms_norm(CompositeBody& b) {
  for (size_t i = 0; i < b.num_operands(); ++i) require_dtype(b.context(), i, is_real, kRealTypes);
  require_rank(b.context(), 0, 1, std::numeric_limits<int>::max());
  const ValueId x = stashed(b);
  const int rank = b.type(x).rank();
  const auto axes = axes_from(require_int(b.context(), "axis", 0, rank - 1), rank);
  const ValueId squares = b.divide_by_count(b.reduce("sum", b.add("mul", {x, x}), axes), x, axes);
  const ValueId root = deviation(b, squares);
  ValueId y = b.cast(b.add("div", {x, root}), b.type(b.operand(b.num_operands() - 1)).dtype);
  if (b.num_operands() > 1) y = b.add("mul", {y, b.operand(1)});
  if (!same_shape(b.type(y).shape, b.type(x).shape))
    b.context().fail("TSR-2023", describe_operand(b.context(), 1),
                     "a scale that broadcasts to " + describe_operand(b.context(), 0));
  if (!wants_statistics(b)) return {y};
  return {y, reciprocal(b, root)};
}

Result group_norm(CompositeBody& b) {
  require_image(b, 3);
  const Shape shape = b.type(b.operand(0)).shape;
  const int64_t groups = require_int(b.context(), "groups", 1, kMaxExtent);
  if (!equal_sizes(floormod(shape[1], groups), 0))
    b.context().fail("TSR-2024", fmt::format("{} groups of {} channels", groups, to_string(shape[1])),
                     "groups that divide the channels");
  Expr inner = floordiv(shape[1], groups);
  for (size_t d = 2; d < shape.size(); ++d) inner = inner * shape[d];
  const auto channels = [&](size_t i) {
    require_channels(b, i);
    Shape along(shape.size(), 1);
    along[1] = shape[1];
    return b.add("reshape", {b.operand(i)}, {{"shape", along}});
  };
  const ValueId x = b.reshape(stashed(b), {shape[0], groups, inner});
  const Moments m = moments(b, x, {2});
  const ValueId unit = b.add("mul", {m.centred, reciprocal(b, deviation(b, m.variance))});
  const ValueId y = b.cast(b.reshape(unit, shape), b.dtype());
  return {b.add("add", {b.add("mul", {y, channels(1)}), channels(2)})};
}

std::vector<CompositeDef> definitions() {
  const AttrDef epsilon{"epsilon", AttrKind::kFloat, true, "added to the variance"};
  const AttrDef stash{"stash", AttrKind::kDType, false, "the type in which x is normalised; its own if left out"};
  return {
      {"batch_norm",
       "(x - mean) * scale / sqrt(var + epsilon) + bias, the operands x, scale, bias, mean, var.",
       5,
       5,
       {epsilon},
       batch_norm,
       "batch_norm(x: f32[1,2,2], scale: f32[2], bias: f32[2], mean: f32[2], var: f32[2]) {epsilon = 1.0}\n"
       "run x = 1 2 3 4 ; scale = 1 2 ; bias = 0 10 ; mean = 1 3 ; var = 0 3 -> y = 0 1 10 11"},
      {"batch_norm_training",
       "x with mean 0 and variance 1 in each channel of the batch, times scale plus bias; then the running mean and "
       "variance, which take in the batch's; then the batch's mean and 1 / sqrt(variance + epsilon). The operands are "
       "x, "
       "scale, bias, running mean, running variance.",
       5,
       5,
       {epsilon,
        {"momentum", AttrKind::kFloat, true, "the part of the running values that stays; the batch gives the rest"},
        {"unbiased", AttrKind::kBool, false, "the running variance divides by one less than the number of elements"},
        stash},
       batch_norm_training,
       "batch_norm_training(x: f32[2,2], scale: f32[2], bias: f32[2], mean: f32[2], var: f32[2]) "
       "{epsilon = 0.0, momentum = 0.75}\n"
       "run x = 1 10 3 30 ; scale = 1 2 ; bias = 0 5 ; mean = 2 4 ; var = 1 0 -> "
       "y0 = -1 3 1 7 ; y1 = 2 8 ; y2 = 1 25 ; y3 = 2 20 ; y4 = 1 0.1"},
      {"group_norm",
       "Groups of channels of each sample of x with mean 0 and variance 1, times scale plus bias, one for each "
       "channel.",
       3,
       3,
       {epsilon, {"groups", AttrKind::kInt, true, "how many groups the channels are in"}, stash},
       group_norm,
       "group_norm(x: f32[1,2,2], scale: f32[2], bias: f32[2]) {groups = 1, epsilon = 0.0}\n"
       "run x = 1 3 1 3 ; scale = 1 2 ; bias = 0 5 -> y = -1 1 3 7"},
      {"instance_norm",
       "Each channel of each sample of x with mean 0 and variance 1, times scale plus bias.",
       3,
       3,
       {epsilon},
       instance_norm,
       "instance_norm(x: f32[1,2,2], scale: f32[2], bias: f32[2]) {epsilon = 0.0}\n"
       "run x = 1 3 10 30 ; scale = 1 2 ; bias = 0 5 -> y = -1 1 3 7"},
      {"layer_norm",
       "x with mean 0 and variance 1 over the dimensions from axis on, times scale and plus bias if given.",
       1,
       3,
       {epsilon,
        {"axis", AttrKind::kInt, true, "the first dimension that is normalised over"},
        stash,
        {"statistics", AttrKind::kBool, false, "mean and 1 / sqrt(variance + epsilon) are results, too"}},
       layer_norm,
       "layer_norm(x: f32[2,2], scale: f32[2], bias: f32[2]) {axis = 1, epsilon = 0.0}\n"
       "run x = 1 3 10 30 ; scale = 1 2 ; bias = 0 5 -> y = -1 7 -1 7"},
      {"rms_norm",
       "x divided by the root of the mean of its squares over the dimensions from axis on, times scale if given, and "
       "of "
       "scale's type.",
       1,
       2,
       {epsilon,
        {"axis", AttrKind::kInt, true, "the first dimension that is normalised over"},
        stash,
        {"statistics", AttrKind::kBool, false, "1 / sqrt(mean of squares + epsilon) is a result, too"}},
       rms_norm,
       "rms_norm(x: f32[2,2], scale: f32[2]) {axis = 1, epsilon = 0.0}\n"
       "run x = 1 7 3 4 ; scale = 1 2 -> y = 0.2 2.8 0.84852814 2.2627417"},
  };
}

}  // namespace

const std::vector<CompositeDef>& normalization_composites() {
  static const std::vector<CompositeDef> list = definitions();
  return list;
}

}  // namespace tessera::inline ops
