// Values in proportion to the size of those beside them.
#include <fmt/format.h>

#include <algorithm>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// What 1 / sqrt(x) is, for x of at least 0 in i64, as a factor of 31 bits and how far to shift right: what
// fixed_functions.h calls inverse_root.
struct Root {
  ValueId factor = -1, right = -1;
};
Root inverse_root_of(Emitter& c, ValueId x) {
  const ValueId tiny = c.op("le", {x, c.integer(1)});
  // Pairs of digits until there are 28 or 29 of them.
  ValueId digits = c.integer(0);
  for (int bit = 0; bit < 31; ++bit)
    digits = c.add(digits, c.cast(c.op("ge", {x, c.integer(int64_t{1} << bit)}), DType::kI64));
  const ValueId one = c.integer(1), zero = c.integer(0);
  const ValueId above = c.op("max", {c.div(c.sub(digits, c.integer(28)), c.integer(2)), zero});
  const ValueId pairs = c.op("max", {c.sub(c.div(c.sub(c.integer(31), digits), c.integer(2)), one), zero});
  const ValueId fitted = c.op("shift_left", {c.op("shift_right", {x, c.add(above, above)}), c.add(pairs, pairs)});
  const ValueId right = c.sub(c.add(c.integer(11), above), pairs);
  const ValueId half = halved(c, c.op("shift_right", {fitted, one}), one);
  const ValueId three_halves = c.integer((1 << 28) + (1 << 27));
  ValueId y = c.integer(1 << 28);
  for (int i = 0; i < 5; ++i) {
    const ValueId cube = kept_in_32(c, c.mul(high_product(c, high_product(c, y, y), y), c.integer(64)));
    const ValueId next = c.sub(high_product(c, three_halves, y), high_product(c, half, cube));
    y = kept_in_32(c, c.mul(next, c.integer(8)));
  }
  const ValueId factor = high_product(c, y, c.integer(1518500250));  // sqrt(1/2)
  const ValueId less = c.op("max", {c.op("neg", {right}), zero});
  return {c.op("select", {tiny, c.integer(int64_t{INT32_MAX}), c.op("shift_left", {factor, less})}),
          c.op("select", {tiny, zero, c.op("max", {right, zero})})};
}

void import_l2_normalization(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (c.rank(x) < 1) c.malformed("a number", "one dimension or more");
  const Ints last = {c.rank(x) - 1};
  const int8_t activation = c.options<tflite::L2NormOptions>().fused_activation_function();
  if (is_float(c.dtype(x))) {
    const ValueId size = c.op("sqrt", {c.reduce("sum", c.mul(x, x), last, true)});
    return c.out(0, activated(c, c.div(x, c.op("max", {size, c.scalar_like(x, 1e-6)})), activation));
  }
  const TfliteTensor& y = c.output(0);
  if (!has_scale(c) || dtype_bits(c.dtype(x)) != 8 || y.dtype != c.dtype(x))
    c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(x))));
  if (c.dims(x).back() > INT32_MAX / 65536) c.unsupported("rows that long");
  const StoredRange range = stored_range(c, y);
  const ValueId own = c.cast(centred(c, 0), DType::kI64);
  const Root root = inverse_root_of(c, c.reduce("sum", c.mul(own, own), last, true));
  // Results have seven digits: of u8 the operand gets them, of i8 the shift is less by them.
  const bool has_sign = y.dtype == DType::kI8;
  const ValueId more = c.sub(root.right, c.integer(has_sign ? 7 : 0)), zero = c.integer(0);
  const ValueId left = has_sign ? c.op("max", {c.op("neg", {more}), zero}) : c.integer(7);
  const ValueId scaled = high_product(c, c.op("shift_left", {own, left}), root.factor);
  const ValueId moved = c.add(halved(c, scaled, c.op("max", {more, zero})), c.integer(has_sign ? 0 : 128));
  c.out(0, c.cast(kept_within(c, moved, range.low, range.high), y.dtype));
}

// Each channel by the squares of those around it.
void import_local_response(OperatorContext& c) {
  c.require_inputs(1, 1);
  const auto& options = c.options<tflite::LocalResponseNormalizationOptions>();
  const ValueId x = c.in(0);
  if (c.rank(x) != 4 || c.dtype(x) != DType::kF32)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "f32 [N,H,W,C]");
  const int64_t channels = c.dims(x)[3], radius = std::min<int64_t>(options.radius(), channels);
  if (radius < 0) c.malformed(fmt::format("a radius of {}", radius), "at least 0");
  const ValueId square = channels_first(c, c.mul(x, x));
  const auto number = [&](float value) { return c.scalar(DType::kF32, static_cast<double>(value)); };
  const ValueId factor = number(options.alpha());
  if (radius == 0) return c.out(0, c.mul(x, c.op("pow", {number(options.bias()), number(-options.beta())})));
  // Windows over channels, the last one of which LiteRT leaves out: [N,1,C,H*W].
  const Ints dims = c.dims(square);
  const ValueId flat = c.reshape(square, {dims[0], 1, channels, dims[2] * dims[3]});
  const ValueId sum = c.op("reduce_window", {flat},
                           {{"kind", std::string("sum")},
                            {"window", Ints{2 * radius, 1}},
                            {"strides", Ints{1, 1}},
                            {"pads_begin", Ints{radius, 0}},
                            {"pads_end", Ints{radius - 1, 0}},
                            {"dilations", Ints{1, 1}}});
  const ValueId around = channels_last(c, c.reshape(sum, dims));
  const ValueId base = c.add(c.mul(around, factor), number(options.bias()));
  c.out(0, c.mul(x, c.op("pow", {base, number(-options.beta())})));
}

}  // namespace

std::span<const TfliteOperator> normalization_operators() {
  static constexpr TfliteOperator operators[] = {
      {tflite::BuiltinOperator::L2_NORMALIZATION, import_l2_normalization},
      {tflite::BuiltinOperator::LOCAL_RESPONSE_NORMALIZATION, import_local_response},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
