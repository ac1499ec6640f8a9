// Normalisations.
#include <fmt/format.h>

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

// Operand i, a vector over the channels, shaped so that it broadcasts along dimension 1 of x.
ValueId per_channel(CompositeBody& b, size_t i) {
  require_channels(b, i);
  const TensorType& x = b.type(b.operand(0));
  std::vector<int64_t> shape(static_cast<size_t>(x.rank() - 1), 1);
  if (shape.size() == 1) return b.operand(i);
  shape[0] = b.static_extent(x.shape[1], "the number of channels");
  return b.add("reshape", {b.operand(i)}, {{"shape", shape}});
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

// (x - mean) / sqrt(variance + epsilon) with both taken over `axes`.
ValueId normalize(CompositeBody& b, ValueId x, const std::vector<int64_t>& axes) {
  const ValueId mean = b.divide_by_count(b.reduce("sum", x, axes), x, axes);
  const ValueId centred = b.add("sub", {x, mean});
  const ValueId squares = b.reduce("sum", b.add("mul", {centred, centred}), axes);
  const ValueId variance = b.add_scalar("add", b.divide_by_count(squares, x, axes), b.attrs().get<double>("epsilon"));
  return b.add("div", {centred, b.add("sqrt", {variance})});
}

std::vector<int64_t> axes_from(int64_t first, int rank) {
  std::vector<int64_t> axes;
  for (int64_t axis = first; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

Result instance_norm(CompositeBody& b) {
  require_image(b, 3);
  const ValueId unit = normalize(b, b.operand(0), axes_from(2, b.type(b.operand(0)).rank()));
  return {b.add("add", {b.add("mul", {unit, per_channel(b, 1)}), per_channel(b, 2)})};
}

Result layer_norm(CompositeBody& b) {
  require_image(b, 1);
  const int rank = b.type(b.operand(0)).rank();
  const int64_t axis = require_int(b.context(), "axis", 0, rank - 1);
  ValueId y = normalize(b, b.operand(0), axes_from(axis, rank));
  if (b.num_operands() > 1) y = b.add("mul", {y, b.operand(1)});
  if (b.num_operands() == 3) y = b.add("add", {y, b.operand(2)});
  if (!same_shape(b.type(y).shape, b.type(b.operand(0)).shape))
    b.context().fail("TSR-2023", describe_operand(b.context(), 1),
                     "scale and bias that broadcast to " + describe_operand(b.context(), 0));
  return {y};
}

Result rms_norm(CompositeBody& b) {
  require_image(b, 1);
  const ValueId x = b.operand(0);
  const int rank = b.type(x).rank();
  const auto axes = axes_from(require_int(b.context(), "axis", 0, rank - 1), rank);
  const ValueId squares = b.divide_by_count(b.reduce("sum", b.add("mul", {x, x}), axes), x, axes);
  ValueId y = b.add("div", {x, b.add("sqrt", {b.add_scalar("add", squares, b.attrs().get<double>("epsilon"))})});
  if (b.num_operands() > 1) y = b.add("mul", {y, b.operand(1)});
  if (!same_shape(b.type(y).shape, b.type(x).shape))
    b.context().fail("TSR-2023", describe_operand(b.context(), 1),
                     "a scale that broadcasts to " + describe_operand(b.context(), 0));
  return {y};
}

// The mean over the last dimension, kept with extent 1.
ValueId row_mean(CompositeBody& b, ValueId x) {
  const auto last = static_cast<size_t>(b.type(x).rank() - 1);
  const int64_t count = b.static_extent(b.type(x).shape[last], "the size of a group");
  return b.add_scalar("div", b.reduce("sum", x, {static_cast<int64_t>(last)}), static_cast<double>(count));
}

Result group_norm(CompositeBody& b) {
  require_image(b, 3);
  const ValueId given = b.operand(0);
  std::vector<int64_t> dims;
  for (const Expr& dim : b.type(given).shape) dims.push_back(b.static_extent(dim, "a dimension"));
  const int64_t groups = require_int(b.context(), "groups", 1, kMaxExtent);
  if (dims[1] % groups != 0)
    b.context().fail("TSR-2024", fmt::format("{} groups of {} channels", groups, dims[1]),
                     "groups that divide the channels");
  int64_t inner = dims[1] / groups;
  for (size_t d = 2; d < dims.size(); ++d) inner *= dims[d];
  const auto reshape = [&](ValueId v, const std::vector<int64_t>& shape) {
    return static_dims(b.type(v).shape) == shape ? v : b.add("reshape", {v}, {{"shape", shape}});
  };
  const auto cast = [&](ValueId v, DType dtype) {
    return b.type(v).dtype == dtype ? v : b.add("cast", {v}, {{"to", dtype}});
  };
  const auto channels = [&](size_t i) {
    require_channels(b, i);
    std::vector<int64_t> shape(dims.size(), 1);
    shape[1] = dims[1];
    return b.add("reshape", {b.operand(i)}, {{"shape", shape}});
  };
  const ValueId x = reshape(cast(given, b.attrs().get_or<DType>("stash", b.dtype())), {dims[0], groups, inner});
  const ValueId centred = b.add("sub", {x, row_mean(b, x)});
  const ValueId variance = row_mean(b, b.add("mul", {centred, centred}));
  const ValueId deviation = b.add("sqrt", {b.add_scalar("add", variance, b.attrs().get<double>("epsilon"))});
  const ValueId unit = b.add("mul", {centred, b.add("div", {b.scalar(1, b.type(x).dtype), deviation})});
  const ValueId y = cast(reshape(unit, dims), b.dtype());
  return {b.add("add", {b.add("mul", {y, channels(1)}), channels(2)})};
}

std::vector<CompositeDef> definitions() {
  const AttrDef epsilon{"epsilon", AttrKind::kFloat, true, "added to the variance"};
  return {
      {"batch_norm",
       "(x - mean) * scale / sqrt(var + epsilon) + bias, the operands x, scale, bias, mean, var.",
       5,
       5,
       {epsilon},
       batch_norm,
       "batch_norm(x: f32[1,2,2], scale: f32[2], bias: f32[2], mean: f32[2], var: f32[2]) {epsilon = 1.0}\n"
       "run x = 1 2 3 4 ; scale = 1 2 ; bias = 0 10 ; mean = 1 3 ; var = 0 3 -> y = 0 1 10 11"},
      {"group_norm",
       "Groups of channels of each sample of x with mean 0 and variance 1, times scale plus bias, one for each "
       "channel.",
       3,
       3,
       {epsilon,
        {"groups", AttrKind::kInt, true, "how many groups the channels are in"},
        {"stash", AttrKind::kDType, false, "the type in which x is normalised; its own if left out"}},
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
       {epsilon, {"axis", AttrKind::kInt, true, "the first dimension that is normalised over"}},
       layer_norm,
       "layer_norm(x: f32[2,2], scale: f32[2], bias: f32[2]) {axis = 1, epsilon = 0.0}\n"
       "run x = 1 3 10 30 ; scale = 1 2 ; bias = 0 5 -> y = -1 7 -1 7"},
      {"rms_norm",
       "x divided by the root of the mean of its squares over the dimensions from axis on, times scale if given.",
       1,
       2,
       {epsilon, {"axis", AttrKind::kInt, true, "the first dimension that is normalised over"}},
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
