// Sums, means and the like over dimensions, and softmax.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "import/tflite/fixed_functions.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

struct Reduced {
  ValueId x = -1;
  Ints axes;
  bool keeps = false;
  int64_t terms = 1;  // -1: values decide it
};

Reduced reduced(OperatorContext& c) {
  c.require_inputs(2, 2);
  Reduced r;
  r.x = c.in(0);
  r.keeps = c.options<tflite::ReducerOptions>().keep_dims();
  for (int64_t axis : c.const_ints(1, "the list of axes")) {
    axis = c.axis(axis, c.rank(r.x));
    if (std::find(r.axes.begin(), r.axes.end(), axis) == r.axes.end()) r.axes.push_back(axis);
  }
  std::sort(r.axes.begin(), r.axes.end());
  const Shape shape = c.shape(r.x);
  for (const int64_t axis : r.axes) {
    const auto extent = as_int(shape[static_cast<size_t>(axis)]);
    if (extent && r.terms >= 0) r.terms *= *extent;
    else r.terms = -1;
  }
  return r;
}

void require_known_terms(OperatorContext& c, const Reduced& r) {
  if (r.terms < 0) c.unsupported("a number of terms that values decide, of integers");
}

// The mean, or the sum, of quantised values: a mean's division is part of the factor.
ValueId quantized_total(OperatorContext& c, const Reduced& r, bool mean) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  if (y.dtype != x.dtype) c.unsupported("a result of another type");
  require_known_terms(c, r);
  if (r.terms == 0) c.unsupported("no terms");
  if (r.terms > INT32_MAX / (dtype_bits(x.dtype) == 8 ? 512 : 65536)) c.unsupported(fmt::format("{} terms", r.terms));
  FixedScale scale = fixed_scale(static_cast<double>(c.scale(x)) / static_cast<double>(c.scale(y)));
  if (mean) {
    // As many digits as 31 bits and the shift leave room for.
    int shift = 63 - std::countl_zero(static_cast<uint64_t>(r.terms));
    shift = std::min({shift, 32, 31 + scale.shift});
    scale.factor = static_cast<int32_t>((int64_t{scale.factor} << shift) / r.terms);
    scale.shift -= shift;
  }
  const ValueId sum = c.reduce("sum", centred(c, 0), r.axes, r.keeps);
  return requantize(c, sum, {scale}, 0, FixedRounding::kTwice, stored_range(c, y), y.dtype);
}

void import_total(OperatorContext& c) {
  const Reduced r = reduced(c);
  const bool mean = c.code() == tflite::BuiltinOperator::MEAN;
  if (has_scale(c)) return c.out(0, quantized_total(c, r, mean));
  if (!mean) return c.out(0, c.reduce("sum", r.x, r.axes, r.keeps));
  if (is_float(c.dtype(r.x)))
    return c.out(0, c.composite("reduce_mean", {r.x}, {{"axes", r.axes}, {"keepdims", r.keeps}}));
  // Of integers the sum is cut off.
  require_known_terms(c, r);
  const ValueId sum = c.reduce("sum", c.cast(r.x, DType::kI64), r.axes, r.keeps);
  c.out(0, c.cast(c.div(sum, c.integer(r.terms)), c.dtype(r.x)));
}

void import_extremum_of(OperatorContext& c) {
  const Reduced r = reduced(c);
  if (has_scale(c)) require_same_quantization(c, c.tensor(0), c.output(0));
  c.out(0, c.reduce(c.code() == tflite::BuiltinOperator::REDUCE_MAX ? "max" : "min", r.x, r.axes, r.keeps));
}

void import_product_of(OperatorContext& c) {
  const Reduced r = reduced(c);
  if (has_scale(c)) c.unsupported("quantised values");
  c.out(0, c.reduce("prod", r.x, r.axes, r.keeps));
}

void import_any_all(OperatorContext& c) {
  const Reduced r = reduced(c);
  const bool all = c.code() == tflite::BuiltinOperator::REDUCE_ALL;
  const ValueId numbers = c.reduce(all ? "min" : "max", c.cast(r.x, DType::kU8), r.axes, r.keeps);
  c.out(0, c.cast(numbers, DType::kBool));
}

// The first place of the extremum.
void import_arg(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const int axis = c.axis(c.const_int(1, "the axis"), c.rank(x));
  const Ints dims = c.dims(x);
  const ValueId extremum = c.reduce(c.code() == tflite::BuiltinOperator::ARG_MAX ? "max" : "min", x, {axis}, true);
  const ValueId places = c.iota(dims, axis);
  const ValueId found = c.op("select", {c.op("eq", {x, extremum}), places, c.integer(dims[static_cast<size_t>(axis)])});
  // Of the extremum's own shape, so that both are one kernel.
  const ValueId place = c.reduce("min", found, {axis}, true);
  Ints without = dims;
  without.erase(without.begin() + axis);
  c.out(0, c.cast(c.reshape(place, without), c.output(0).dtype));
}

// Of bytes: exponentials out of a table, in floats.
ValueId softmax_of_bytes(OperatorContext& c, float beta) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  const float scale = -c.scale(x) * beta;
  const StoredRange range = stored_range(c, y);
  Tensor table(DType::kF32, {256});
  for (int64_t below = 0; below < 256; ++below)
    table.as_mutable<float>()[static_cast<size_t>(below)] = std::exp(scale * static_cast<float>(below));
  const ValueId wide = c.cast(c.in(0), DType::kI32);
  const Ints last = {c.rank(wide) - 1};
  const ValueId below = c.sub(c.reduce("max", wide, last, true), wide);
  const ValueId powers = c.op("gather", {c.constant_value(std::move(table)), below}, {{"axis", int64_t{0}}});
  const ValueId total = c.mul(c.reduce("sum", powers, last, true), c.scalar(DType::kF32, c.scale(y)));
  const ValueId parts = c.mul(powers, c.div(c.scalar(DType::kF32, 1), total));
  const ValueId rounded = c.op("floor", {c.add(parts, c.scalar(DType::kF32, 0.5))});
  const ValueId moved = c.add(rounded, c.scalar(DType::kF32, static_cast<double>(range.zero)));
  const ValueId kept = c.op("min", {c.op("max", {moved, c.scalar(DType::kF32, static_cast<double>(range.low))}),
                                    c.scalar(DType::kF32, static_cast<double>(range.high))});
  return c.cast(kept, y.dtype);
}

// Of 16 bits: exponentials and the reciprocal of their sum out of tables, with 15 digits.
ValueId softmax_of_words(OperatorContext& c, float beta) {
  const TfliteTensor& x = c.tensor(0);
  const FixedScale scale = fixed_scale(static_cast<double>(c.scale(x)) * static_cast<double>(beta) / (10.0 / 65535.0));
  const auto made = [](double in_scale, int32_t in_zero, double (*f)(double)) {
    return WordTable::precise(in_scale, in_zero, 2.0 / 65535.0, 0, f);
  };
  const WordTable exponential = made(10.0 / 65535.0, INT16_MAX, [](double v) { return std::exp(v); });
  const WordTable reciprocal = made(1.0 / 65535.0, INT16_MIN, [](double v) { return 1 / (1 + v); });
  const auto word = [](const WordTable& table) {
    return [&table](int64_t stored) { return int64_t{table(static_cast<int16_t>(stored))}; };
  };
  const auto wide = [&](ValueId v) { return c.cast(v, DType::kI64); };
  const Ints last = {c.rank(c.in(0)) - 1};
  const ValueId own = c.cast(c.in(0), DType::kI32);
  const ValueId below = c.sub(own, c.reduce("max", own, last, true));
  const ValueId place = c.add(multiply(c, below, scale, FixedRounding::kTwice), c.scalar(DType::kI32, INT16_MAX));
  const ValueId powers = of_each_word(c, kept_within(c, place, INT16_MIN, INT16_MAX), DType::kI32, word(exponential));
  const ValueId sum = c.reduce("sum", powers, last, true);
  // The number of digits of the sum.
  ValueId digits = c.scalar(DType::kI64, 0);
  for (int bit = 0; bit < 31; ++bit)
    digits = c.add(digits, wide(c.cast(c.op("ge", {sum, c.scalar(DType::kI32, std::ldexp(1, bit))}), DType::kI32)));
  // 31 digits, of which 17 are kept, less the first.
  const ValueId shifted = c.op("shift_left", {wide(sum), c.sub(c.integer(31), digits)});
  const ValueId kept = c.op("shift_right", {c.add(shifted, c.integer(1 << 13)), c.integer(14)});
  const ValueId rest = c.sub(kept, c.integer((1 << 15) + (1 << 16)));
  const ValueId inverse =
      of_each_word(c, c.cast(kept_within(c, rest, INT16_MIN, INT16_MAX), DType::kI32), DType::kI64, word(reciprocal));
  const ValueId amount = c.sub(digits, c.integer(1));
  const ValueId half = c.op("shift_left", {c.integer(1), c.sub(amount, c.integer(1))});
  const ValueId parts = c.op("shift_right", {c.add(c.mul(wide(powers), inverse), half), amount});
  return c.cast(kept_within(c, parts, 0, INT16_MAX), DType::kI16);
}

void import_softmax(OperatorContext& c) {
  c.require_inputs(1, 1);
  const bool logarithm = c.code() == tflite::BuiltinOperator::LOG_SOFTMAX;
  const float beta = logarithm ? 1 : c.options<tflite::SoftmaxOptions>().beta();
  ValueId x = c.in(0);
  if (c.rank(x) < 1) c.malformed("a number", "one dimension or more");
  if (!is_float(c.dtype(x))) {
    if (!logarithm && c.dtype(x) == DType::kI16 && has_scale(c) && c.output(0).dtype == DType::kI16)
      return c.out(0, softmax_of_words(c, beta));
    if (logarithm && has_scale(c)) return c.out(0, log_softmax_of_bytes(c));
    if (logarithm || dtype_bits(c.dtype(x)) != 8 || !c.is_quantized(c.tensor(0)) || dtype_bits(c.output(0).dtype) > 16)
      c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(x))));
    return c.out(0, softmax_of_bytes(c, beta));
  }
  if (beta != 1) x = c.mul(x, c.scalar_like(x, static_cast<double>(beta)));
  c.out(0, c.composite(logarithm ? "log_softmax" : "softmax", {x}, {{"axis", int64_t{c.rank(x) - 1}}}));
}

}  // namespace

std::span<const TfliteOperator> reduction_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {ARG_MAX, import_arg},
      {ARG_MIN, import_arg},
      {LOG_SOFTMAX, import_softmax},
      {MEAN, import_total},
      {REDUCE_ALL, import_any_all},
      {REDUCE_ANY, import_any_all},
      {REDUCE_MAX, import_extremum_of},
      {REDUCE_MIN, import_extremum_of},
      {REDUCE_PROD, import_product_of},
      {SOFTMAX, import_softmax},
      {SUM, import_total},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
