// Windows over images: averages and maxima.
#include <fmt/format.h>

#include <algorithm>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

SlidingWindow pool_window(OperatorContext& c, ValueId x) {
  const auto& options = c.options<tflite::Pool2DOptions>();
  if (c.rank(x) != 4) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "an image [N,H,W,C]");
  return sliding_window(c, x, options.padding(), {options.filter_height(), options.filter_width()},
                        {options.stride_h(), options.stride_w()}, {1, 1});
}

Attrs window_attrs(const SlidingWindow& window) {
  return {{"window", window.extents},
          {"strides", window.strides},
          {"pads_begin", window.pads_begin},
          {"pads_end", window.pads_end},
          {"dilations", window.dilations}};
}

// How many elements of the image each place of the window covers, [1,1,H,W]; a scalar where all cover the same.
Tensor covered(const SlidingWindow& window, const Ints& in, const Ints& out) {
  const auto along = [&](size_t d, int64_t place) {
    const int64_t first = place * window.strides[d] - window.pads_begin[d];
    return std::min(first + window.extents[d], in[d]) - std::max<int64_t>(first, 0);
  };
  const bool whole = window.pads_begin == Ints{0, 0} && window.pads_end == Ints{0, 0};
  Tensor counts(DType::kI32, whole ? Ints{} : Ints{1, 1, out[0], out[1]});
  int64_t index = 0;
  for (int64_t y = 0; y < (whole ? 1 : out[0]); ++y)
    for (int64_t x = 0; x < (whole ? 1 : out[1]); ++x) counts.set_int(index++, along(0, y) * along(1, x));
  return counts;
}

void import_average_pool(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0), image = channels_first(c, x);
  const SlidingWindow window = pool_window(c, x);
  const int8_t activation = c.options<tflite::Pool2DOptions>().fused_activation_function();
  if (is_float(c.dtype(x))) {
    Attrs attrs = window_attrs(window);
    attrs.set("count_include_pad", false);
    return c.out(0, activated(c, channels_last(c, c.composite("average_pool", {image}, attrs)), activation));
  }
  if (!c.is_quantized(c.tensor(0))) c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(x))));
  require_same_quantization(c, c.tensor(0), c.output(0));
  const StoredRange range = stored_range(c, c.output(0), activation);
  Attrs attrs = window_attrs(window);
  attrs.set("kind", std::string("sum"));
  const ValueId sum = c.op("reduce_window", {c.cast(image, DType::kI32)}, attrs);
  const Ints in = c.dims(image), out = c.dims(sum);
  constexpr int64_t kMost = 1 << 24;
  if (out[2] > kMost || out[3] > kMost || out[2] * out[3] > kMost)
    c.unsupported(fmt::format("an image of more than {} places", kMost));
  Tensor counts = covered(window, {in[2], in[3]}, {out[2], out[3]});
  Tensor halves(DType::kI32, counts.dims());
  for (int64_t i = 0; i < counts.num_elements(); ++i) halves.set_int(i, counts.get_int(i) / 2);
  // Rounded to the nearest, halves away from zero: division cuts off.
  ValueId half = c.constant_value(std::move(halves));
  if (range.low < 0 || is_signed_int(c.dtype(x)))
    half = c.op("select", {c.op("gt", {sum, c.scalar_like(sum, 0)}), half, c.op("neg", {half})});
  const ValueId mean = c.div(c.add(sum, half), c.constant_value(std::move(counts)));
  const ValueId kept = c.op("min", {c.op("max", {mean, c.scalar_like(mean, static_cast<double>(range.low))}),
                                    c.scalar_like(mean, static_cast<double>(range.high))});
  c.out(0, channels_last(c, c.cast(kept, c.dtype(x))));
}

// The root of the mean of squares.
void import_l2_pool(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (!is_float(c.dtype(x))) c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(x))));
  Attrs attrs = window_attrs(pool_window(c, x));
  attrs.set("count_include_pad", false);
  const ValueId image = channels_first(c, x);
  const ValueId mean = c.composite("average_pool", {c.mul(image, image)}, attrs);
  const int8_t activation = c.options<tflite::Pool2DOptions>().fused_activation_function();
  c.out(0, activated(c, channels_last(c, c.op("sqrt", {mean})), activation));
}

void import_max_pool(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const SlidingWindow window = pool_window(c, x);
  const int8_t activation = c.options<tflite::Pool2DOptions>().fused_activation_function();
  const ValueId y = channels_last(c, c.composite("max_pool", {channels_first(c, x)}, window_attrs(window)));
  if (is_float(c.dtype(x))) return c.out(0, activated(c, y, activation));
  if (!c.is_quantized(c.tensor(0))) c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(x))));
  require_same_quantization(c, c.tensor(0), c.output(0));
  if (activation == 0) return c.out(0, y);
  const StoredRange range = stored_range(c, c.output(0), activation);
  c.out(0, c.op("min", {c.op("max", {y, c.scalar_like(y, static_cast<double>(range.low))}),
                        c.scalar_like(y, static_cast<double>(range.high))}));
}

}  // namespace

std::span<const TfliteOperator> pooling_operators() {
  static constexpr TfliteOperator operators[] = {
      {tflite::BuiltinOperator::AVERAGE_POOL_2D, import_average_pool},
      {tflite::BuiltinOperator::L2_POOL_2D, import_l2_pool},
      {tflite::BuiltinOperator::MAX_POOL_2D, import_max_pool},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
