// Normalisations, softmax, reductions.
#include <fmt/format.h>

#include <numeric>

#include "import/caffe/layers/handlers.h"
#include "import/common/local_response.h"

namespace tessera::inline caffe {
namespace {

Ints axes_from(LayerContext& c, int64_t first) {
  Ints axes(static_cast<size_t>(c.rank(c.in()) - first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

ValueId mean(LayerContext& c, ValueId x, const Ints& axes) {
  int64_t count = 1;
  for (const int64_t axis : axes) count *= c.dims(x)[static_cast<size_t>(axis)];
  return c.div(c.reduce("sum", x, axes, true), c.scalar_like(x, static_cast<double>(count)));
}

// The weights are sums: mean and variance, and how much was added to them.
void import_batch_norm(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::BatchNormParameter& p = c.layer().batch_norm_param();
  if (p.has_use_global_stats() && !p.use_global_stats()) c.unsupported("use_global_stats: false");
  const ValueId x = c.in();
  if (c.rank(x) < 2) c.malformed(fmt::format("a bottom of type {}", c.type(x).to_string()), "[N,C,...]");
  const int64_t channels = c.dims(x)[1];
  ValueId mean = c.blob(0, {channels}), variance = c.blob(1, {channels});
  if (c.num_blobs() > 2) {
    const double added = c.constant(c.blob(2, {1}))->get_double(0);
    const double factor = added == 0 ? 0 : 1 / added;
    mean = c.mul(mean, c.scalar_like(mean, factor));
    variance = c.mul(variance, c.scalar_like(variance, factor));
  }
  Tensor ones(DType::kF32, {channels});
  for (int64_t i = 0; i < channels; ++i) ones.set_double(i, 1);
  const ValueId scale = c.constant_value(std::move(ones)), bias = c.zeros(DType::kF32, Ints{channels});
  c.out(c.composite("batch_norm", {x, scale, bias, mean, variance}, {{"epsilon", static_cast<double>(p.eps())}}));
}

void import_lrn(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::LRNParameter& p = c.layer().lrn_param();
  const ValueId x = c.in();
  const int64_t size = p.local_size();
  if (size % 2 != 1) c.malformed(fmt::format("local_size = {}", size), "an odd number");
  if (c.rank(x) < 3) c.malformed(fmt::format("a bottom of type {}", c.type(x).to_string()), "[N,C,...]");
  const double alpha = static_cast<double>(p.alpha()), beta = static_cast<double>(p.beta());
  if (p.norm_region() == proto::LRNParameter::ACROSS_CHANNELS)
    return c.out(local_response(c, x, size, alpha, beta, static_cast<double>(p.k())));
  // The mean of squares over a window of the image, padding counted; k is 1 there.
  c.require_rank(0, 4);
  const Ints pads(2, (size - 1) / 2);
  const ValueId squares = c.composite("average_pool", {c.mul(x, x)},
                                      {{"window", Ints{size, size}},
                                       {"strides", Ints{1, 1}},
                                       {"pads_begin", pads},
                                       {"pads_end", pads},
                                       {"dilations", Ints{1, 1}},
                                       {"count_include_pad", true}});
  const ValueId base = c.add(c.mul(squares, c.scalar_like(x, alpha)), c.scalar_like(x, 1));
  c.out(c.div(x, c.op("pow", {base, c.scalar_like(x, beta)})));
}

void import_mvn(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::MVNParameter& p = c.layer().mvn_param();
  const ValueId x = c.in();
  if (c.rank(x) < 3) c.malformed(fmt::format("a bottom of type {}", c.type(x).to_string()), "[N,C,...]");
  const Ints axes = axes_from(c, p.across_channels() ? 1 : 2);
  const ValueId centred = c.sub(x, mean(c, x, axes));
  if (!p.normalize_variance()) return c.out(centred);
  const ValueId deviation = c.op("sqrt", {mean(c, c.mul(centred, centred), axes)});
  c.out(c.div(centred, c.add(deviation, c.scalar_like(x, static_cast<double>(p.eps())))));
}

// SSD's: x over the root of the sum of squares of an image, or of the channels of each of its places, times a scale.
void import_normalize(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::NormalizeParameter& p = c.layer().norm_param();
  const ValueId x = c.in();
  if (c.rank(x) < 2) c.malformed(fmt::format("a bottom of type {}", c.type(x).to_string()), "[N,C,...]");
  const Ints axes = p.across_spatial() ? axes_from(c, 1) : Ints{1};
  const ValueId squares = c.reduce("sum", c.mul(x, x), axes, true);
  const ValueId norm = c.op("sqrt", {c.add(squares, c.scalar_like(x, static_cast<double>(p.eps())))});
  const ValueId scale = p.channel_shared() ? c.blob(0, {1}) : c.per_channel(c.blob(0, {c.dims(x)[1]}), c.rank(x));
  c.out(c.mul(c.div(x, norm), scale));
}

void import_softmax(LayerContext& c) {
  c.require_bottoms(1, 1);
  c.out(c.composite("softmax", {c.in()}, {{"axis", c.axis(c.layer().softmax_param().axis(), c.rank(c.in()))}}));
}

// All dimensions from `axis` on to one number.
void import_reduction(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::ReductionParameter& p = c.layer().reduction_param();
  ValueId x = c.in();
  const int64_t first = c.rank(x) == 0 ? 0 : c.axis(p.axis(), c.rank(x));
  const Ints axes = axes_from(c, first);
  double factor = static_cast<double>(p.coeff());
  if (p.operation() == proto::ReductionParameter::ASUM) x = c.op("abs", {x});
  if (p.operation() == proto::ReductionParameter::SUMSQ) x = c.mul(x, x);
  if (p.operation() == proto::ReductionParameter::MEAN)
    for (const int64_t axis : axes) factor /= static_cast<double>(c.dims(x)[static_cast<size_t>(axis)]);
  const ValueId sum = c.reduce("sum", x, axes, false);
  c.out(factor == 1 ? sum : c.mul(sum, c.scalar_like(sum, factor)));
}

// Places of maxima, as floats: along an axis, which stays, or of all that stands behind the first dimension.
void import_arg_max(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::ArgMaxParameter& p = c.layer().argmax_param();
  if (p.top_k() != 1 || p.out_max_val()) c.unsupported("top_k above 1, or out_max_val");
  ValueId x = c.in();
  if (c.num_elements(x) == 0 || c.rank(x) == 0)
    c.malformed(fmt::format("a bottom of type {}", c.type(x).to_string()), "[N,...] with elements");
  int64_t axis = 1;
  if (p.has_axis()) {
    axis = c.axis(p.axis(), c.rank(x));
  } else {
    const int64_t rows = c.dims(x)[0];
    x = c.reshape(x, {rows, c.num_elements(x) / rows, 1});
  }
  const ValueId place = place_of_extremum(c, x, c.reduce("max", x, {axis}, true), axis);
  c.out(c.cast(place, DType::kF32));
}

}  // namespace

std::span<const CaffeLayer> normalization_layers() {
  static constexpr CaffeLayer rows[] = {
      {"ArgMax", import_arg_max},  {"BatchNorm", import_batch_norm}, {"LRN", import_lrn},
      {"MVN", import_mvn},         {"Normalize", import_normalize},  {"Reduction", import_reduction},
      {"Softmax", import_softmax},
  };
  return rows;
}

}  // namespace tessera::inline caffe
