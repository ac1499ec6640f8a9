#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {

using Ints = std::vector<int64_t>;

ValueId activated(Emitter& c, ValueId x, int8_t activation) {
  const auto within = [&](double low, double high) {
    return c.op("min", {c.op("max", {x, c.scalar_like(x, low)}), c.scalar_like(x, high)});
  };
  switch (static_cast<tflite::Activation>(activation)) {
    case tflite::Activation::NONE: return x;
    case tflite::Activation::RELU:
      return is_float(c.dtype(x)) ? c.composite("relu", {x}) : c.op("max", {x, c.scalar_like(x, 0)});
    case tflite::Activation::RELU_N1_TO_1: return within(-1, 1);
    case tflite::Activation::RELU6: return within(0, 6);
    case tflite::Activation::TANH:
      if (is_float(c.dtype(x))) return c.op("tanh", {x});
      [[fallthrough]];
    default: c.unsupported(fmt::format("the activation {}", static_cast<int>(activation)));
  }
}

StoredRange stored_range(OperatorContext& c, const TfliteTensor& result, int8_t activation) {
  StoredRange range;
  range.zero = c.zero_point(result);
  const int bits = dtype_bits(result.dtype);
  range.low = is_signed_int(result.dtype) ? -(int64_t{1} << (bits - 1)) : 0;
  range.high = range.low + (int64_t{1} << bits) - 1;
  const float scale = c.scale(result);
  const auto stored = [&](float value) {
    return range.zero + static_cast<int64_t>(std::clamp(std::round(value / scale), -1e6F, 1e6F));
  };
  const int64_t low = range.low, high = range.high;
  switch (static_cast<tflite::Activation>(activation)) {
    case tflite::Activation::NONE: break;
    case tflite::Activation::RELU: range.low = std::max(low, stored(0)); break;
    case tflite::Activation::RELU6:
      range.low = std::max(low, stored(0));
      range.high = std::min(high, stored(6));
      break;
    case tflite::Activation::RELU_N1_TO_1:
      range.low = std::max(low, stored(-1));
      range.high = std::min(high, stored(1));
      break;
    default: c.unsupported(fmt::format("the activation {} of quantised values", static_cast<int>(activation)));
  }
  return range;
}

SlidingWindow sliding_window(OperatorContext& c, ValueId image, int8_t padding, Ints extents, Ints strides,
                             Ints dilations) {
  const Ints dims = c.dims(image);
  constexpr int64_t kMost = int64_t{1} << 31;
  SlidingWindow window;
  for (size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] < 1 || strides[d] < 1 || dilations[d] < 1 || extents[d] > kMost || dilations[d] > kMost)
      c.malformed(fmt::format("a window of {} with stride {} and dilation {}", extents[d], strides[d], dilations[d]),
                  "numbers of at least 1");
    const int64_t in = dims[d + 1], span = (extents[d] - 1) * dilations[d] + 1;
    int64_t total = 0;
    if (padding == static_cast<int8_t>(tflite::Padding::SAME)) {
      const int64_t out = (in + strides[d] - 1) / strides[d];
      total = std::max<int64_t>((out - 1) * strides[d] + span - in, 0);
    } else if (in < span) {
      c.malformed(fmt::format("a window that spans {} on {} elements", span, in), "a window that fits");
    }
    window.pads_begin.push_back(total / 2);
    window.pads_end.push_back(total - total / 2);
  }
  window.extents = std::move(extents);
  window.strides = std::move(strides);
  window.dilations = std::move(dilations);
  return window;
}

ValueId channels_first(OperatorContext& c, ValueId image) {
  Ints perm = {0, c.rank(image) - 1};
  for (int d = 1; d + 1 < c.rank(image); ++d) perm.push_back(d);
  return c.transpose(image, perm);
}

ValueId channels_last(OperatorContext& c, ValueId image) {
  Ints perm = {0};
  for (int d = 2; d < c.rank(image); ++d) perm.push_back(d);
  perm.push_back(1);
  return c.transpose(image, perm);
}

ValueId centred(Emitter& c, ValueId x, int64_t zero) {
  const ValueId wide = c.cast(x, DType::kI32);
  return zero == 0 ? wide : c.sub(wide, c.scalar(DType::kI32, static_cast<double>(zero)));
}

ValueId centred(OperatorContext& c, int i) { return centred(c, c.in(i), c.zero_point(c.tensor(i))); }

ValueId real(OperatorContext& c, int i) {
  return c.mul(c.cast(centred(c, i), DType::kF32), c.scalar(DType::kF32, c.scale(c.tensor(i))));
}

ValueId of_each_byte(OperatorContext& c, ValueId x, DType result, const std::function<int64_t(int64_t)>& f) {
  const bool has_sign = c.dtype(x) == DType::kI8;
  const int64_t least = has_sign ? -128 : 0;
  Tensor table(result, {256});
  for (int64_t i = 0; i < 256; ++i) table.set_int(i, f(i + least));
  ValueId place = c.cast(x, DType::kI32);
  if (has_sign) place = c.add(place, c.scalar(DType::kI32, 128));
  return c.op("gather", {c.constant_value(std::move(table)), place}, {{"axis", int64_t{0}}});
}

ValueId of_each_word(Emitter& c, ValueId x, DType result, const std::function<int64_t(int64_t)>& f) {
  Tensor table(result, {65536});
  for (int64_t i = 0; i < 65536; ++i) table.set_int(i, f(i - 32768));
  const ValueId place = c.add(c.cast(x, DType::kI32), c.scalar(DType::kI32, 32768));
  return c.op("gather", {c.constant_value(std::move(table)), place}, {{"axis", int64_t{0}}});
}

ValueId of_each_pair(OperatorContext& c, ValueId a, ValueId b, DType result,
                     const std::function<int64_t(int64_t, int64_t)>& f) {
  const int64_t least = c.dtype(a) == DType::kI8 ? -128 : 0;
  Tensor table(result, {65536});
  for (int64_t i = 0; i < 256; ++i)
    for (int64_t j = 0; j < 256; ++j) table.set_int(i * 256 + j, f(i + least, j + least));
  const ValueId first = c.mul(centred(c, a, least), c.scalar(DType::kI32, 256));
  const ValueId place = c.add(first, centred(c, b, least));
  return c.op("gather", {c.constant_value(std::move(table)), place}, {{"axis", int64_t{0}}});
}

ValueId kept_within(Emitter& c, ValueId x, int64_t low, int64_t high) {
  return c.op("min", {c.op("max", {x, c.scalar_like(x, static_cast<double>(low))}),
                      c.scalar_like(x, static_cast<double>(high))});
}

bool has_scale(OperatorContext& c, int i) { return c.is_quantized(c.tensor(i)) && !c.tensor(i).quantization.empty(); }

ValueId rescaled(OperatorContext& c, ValueId x, const TfliteTensor& from, const TfliteTensor& to,
                 const StoredRange& range) {
  const double scale = static_cast<double>(c.scale(from)) / static_cast<double>(c.scale(to));
  return requantize(c, centred(c, x, c.zero_point(from)), {fixed_scale(scale)}, 0, FixedRounding::kTwice, range,
                    to.dtype);
}

void require_same_quantization(OperatorContext& c, const TfliteTensor& a, const TfliteTensor& b) {
  if (c.scale(a) != c.scale(b) || c.zero_point(a) != c.zero_point(b))
    c.malformed(fmt::format("'{}' has the scale {} and the zero point {}, '{}' {} and {}", a.name, c.scale(a),
                            c.zero_point(a), b.name, c.scale(b), c.zero_point(b)),
                "the same for both");
}

DynamicallyQuantized dynamically_quantized(Emitter& c, ValueId x, bool asymmetric) {
  Ints axes;
  for (int d = 1; d < c.rank(x); ++d) axes.push_back(d);
  const ValueId zero = c.scalar(DType::kF32, 0);
  const auto wide = [&](ValueId v) { return c.cast(v, DType::kF64); };
  const auto number = [&](double value) { return c.scalar(DType::kF64, value); };
  // Halves away from zero, as the runtime's C++ rounds.
  const auto away = [&](ValueId v) {
    const ValueId half = c.op("floor", {c.add(c.op("abs", {v}), c.scalar_like(v, 0.5))});
    return c.op("select", {c.op("lt", {v, c.scalar_like(v, 0)}), c.op("neg", {half}), half});
  };
  const auto bytes = [&](ValueId v, double low) {
    const ValueId kept = c.op("min", {c.op("max", {v, c.scalar_like(v, low)}), c.scalar_like(v, 127)});
    return c.cast(c.cast(kept, DType::kI32), DType::kI8);
  };
  DynamicallyQuantized result;
  if (!asymmetric) {
    const ValueId most = c.reduce("max", c.op("abs", {x}), axes, true);
    const ValueId none = c.op("eq", {most, zero});
    result.scale = c.op("select", {none, c.scalar(DType::kF32, 1), c.div(most, c.scalar(DType::kF32, 127))});
    const ValueId inverse = c.op("select", {none, zero, c.div(c.scalar(DType::kF32, 127), most)});
    result.values = bytes(away(c.mul(x, inverse)), -127);
    return result;
  }
  const ValueId low = wide(c.op("min", {c.reduce("min", x, axes, true), zero}));
  const ValueId high = wide(c.op("max", {c.reduce("max", x, axes, true), zero}));
  const ValueId none = c.op("eq", {low, high});
  const ValueId scale = c.op("select", {none, number(1), c.div(c.sub(high, low), number(255))});
  const ValueId from_low = c.sub(number(-128), c.div(low, scale)), from_high = c.sub(number(127), c.div(high, scale));
  const ValueId low_error = c.add(number(128), c.op("abs", {c.div(low, scale)}));
  const ValueId high_error = c.add(number(127), c.op("abs", {c.div(high, scale)}));
  const ValueId point = c.op("select", {c.op("lt", {low_error, high_error}), from_low, from_high});
  const ValueId kept = c.op("min", {c.op("max", {away(point), number(-128)}), number(127)});
  result.scale = c.cast(scale, DType::kF32);
  result.zero = c.op("select", {none, c.scalar(DType::kI32, 0), c.cast(kept, DType::kI32)});
  const ValueId inverse = c.div(c.scalar(DType::kF32, 1), result.scale);
  const ValueId moved = c.add(c.cast(result.zero, DType::kF32), c.mul(x, inverse));
  result.values = bytes(away(moved), -128);
  return result;
}

}  // namespace tessera::inline tflite_import
