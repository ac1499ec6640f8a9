// resize: interpolation to other extents.
//
// Each output index o of a dimension stands for a coordinate of the input (`coordinate`, with scale s):
//   half_pixel             (o + 1/2) / s - 1/2
//   pytorch_half_pixel     the same, 0 when the output has one element
//   half_pixel_symmetric   half_pixel moved so that the middles agree when s * extent is not the output's extent
//   asymmetric             o / s
//   align_corners          o * (extent - 1) / (output extent - 1), 0 when the output has one element
//   tf_half_pixel_for_nn   (o + 1/2) / s
// A scale that is a ratio of small integers (as 2, 0.5, 0.6 are meant) gives coordinates in exact integer arithmetic;
// others are computed in f64. Places outside the input take the nearest element.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>

#include "arith/simplify.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

enum Mode : size_t { kNearest, kLinear, kCubic };
enum Coordinate : size_t {
  kHalfPixel,
  kPytorchHalfPixel,
  kHalfPixelSymmetric,
  kAsymmetric,
  kAlignCorners,
  kTfHalfPixel
};
enum Nearest : size_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };

Mode mode_of(const OpContext& ctx) {
  return static_cast<Mode>(
      require_word(ctx, "mode", ctx.attrs.get<std::string>("mode"), {"nearest", "linear", "cubic"}));
}
Coordinate coordinate_of(const OpContext& ctx) {
  return static_cast<Coordinate>(require_word(ctx, "coordinate", ctx.attrs.get<std::string>("coordinate"),
                                              {"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric",
                                               "align_corners", "tf_half_pixel_for_nn"}));
}
Nearest nearest_of(const OpContext& ctx) {
  return static_cast<Nearest>(require_word(ctx, "nearest_mode",
                                           ctx.attrs.get_or<std::string>("nearest_mode", "round_prefer_floor"),
                                           {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  coordinate_of(ctx);
  nearest_of(ctx);
  if (mode_of(ctx) == kNearest) {
    require_dtype(ctx, 0, is_movable, kMovableTypes);
  } else {
    require_dtype(ctx, 0, is_real, kRealTypes);
  }
  const Shape sizes = require_sizes(ctx, "sizes", x.shape.size(), 0, kMaxExtent);
  const auto& scales = ctx.attrs.get<std::vector<double>>("scales");
  if (scales.size() != x.shape.size())
    ctx.fail("TSR-2027",
             fmt::format("scales = [{}] ({})", fmt::join(scales, ", "), plural(scales.size(), "entry", "entries")),
             plural(x.shape.size(), "entry", "entries"));
  for (size_t d = 0; d < scales.size(); ++d) {
    if (!(scales[d] >= 0) || std::isinf(scales[d]))
      ctx.fail("TSR-2025", fmt::format("scales = [{}]", fmt::join(scales, ", ")), "finite scales from 0");
    if (is_const_int(x.shape[d], 0) && !is_const_int(sizes[d], 0))
      ctx.fail("TSR-2024",
               fmt::format("dimension {} of {} resized to {}", d, describe_operand(ctx, 0), to_string(sizes[d])),
               "a dimension with elements to interpolate");
  }
  return {TensorType{x.dtype, sizes, {}}};
}

// p / q when `scale`, to the precision of an f32, is that ratio with a small q or the ratio of the extents, or when it
// is 0; else null.
std::pair<Expr, Expr> as_ratio(double scale, const Expr& output, const Expr& input) {
  const auto out = as_int(output), in = as_int(input);
  if (scale == 0) {
    const int64_t divisor = out && in ? std::max<int64_t>(std::gcd(*out, *in), 1) : 1;
    return {normalize_size(floordiv(max(output, 1), divisor)), normalize_size(floordiv(max(input, 1), divisor))};
  }
  const auto same = [&](int64_t p, int64_t q) {
    return static_cast<float>(static_cast<double>(p) / static_cast<double>(q)) == static_cast<float>(scale);
  };
  if (scale < 1e6)
    for (int64_t q = 1; q <= 1024; ++q) {
      const int64_t p = std::llround(scale * static_cast<double>(q));
      if (p > 0 && same(p, q)) return {Expr(p), Expr(q)};
    }
  if (in && out && *in > 0 && *out > 0 && same(*out, *in)) {
    const int64_t divisor = std::gcd(*out, *in);
    return {Expr(*out / divisor), Expr(*in / divisor)};
  }
  return {};
}

// A coordinate: floor, the part above it, and its rounding, in whichever arithmetic it has.
class Place {
 public:
  static Place ratio(Expr numerator, Expr denominator) { return Place(std::move(numerator), std::move(denominator)); }
  static Place real(Expr value) { return Place(std::move(value), {}); }

  void be_zero_if(const Expr& condition) { value_ = select(condition, const_of(value_.dtype(), 0), value_); }

  Expr floor() const {
    return denominator_ ? floordiv(value_, denominator_) : to_index(unary(UnaryOp::kFloor, value_));
  }
  Expr fraction(DType dtype) const {
    if (!denominator_) return cast(dtype, value_ - unary(UnaryOp::kFloor, value_));
    return binary(BinaryOp::kDiv, cast(dtype, floormod(value_, denominator_)), cast(dtype, denominator_));
  }
  Expr nearest(Nearest mode) const {
    if (denominator_) {
      const Expr twice = Expr(2) * denominator_;
      switch (mode) {
        case kFloor: return floordiv(value_, denominator_);
        case kCeil: return ceildiv(value_, denominator_);
        case kRoundPreferFloor: return ceildiv(Expr(2) * value_ - denominator_, twice);
        case kRoundPreferCeil: return floordiv(Expr(2) * value_ + denominator_, twice);
      }
    }
    const Expr half = const_float(DType::kF64, 0.5);
    switch (mode) {
      case kFloor: return to_index(unary(UnaryOp::kFloor, value_));
      case kCeil: return to_index(unary(UnaryOp::kCeil, value_));
      case kRoundPreferFloor: return to_index(unary(UnaryOp::kCeil, value_ - half));
      case kRoundPreferCeil: return to_index(unary(UnaryOp::kFloor, value_ + half));
    }
    throw InternalError("unknown nearest mode");
  }

 private:
  Place(Expr value, Expr denominator) : value_(std::move(value)), denominator_(std::move(denominator)) {}
  static Expr to_index(Expr value) { return cast(DType::kI64, std::move(value)); }

  Expr value_;        // i64 numerator, or the f64 coordinate
  Expr denominator_;  // i64, positive; null for an f64 coordinate
};

Place place_of(Coordinate mode, const Expr& o, const Expr& output, const Expr& input, double scale) {
  const bool one = size_at_most(output, 1);
  if (mode == kPytorchHalfPixel) {
    if (one) return Place::ratio(0, 1);
    Place place = place_of(kHalfPixel, o, output, input, scale);
    if (!size_at_most(2, output)) place.be_zero_if(output <= Expr(1));
    return place;
  }
  if (mode == kAlignCorners) {
    if (one) return Place::ratio(0, 1);
    return Place::ratio(o * (input - Expr(1)), normalize_size(max(output - Expr(1), 1)));
  }
  const auto [p, q] = as_ratio(scale, output, input);
  // The middles agree when the scale is the ratio of the extents.
  if (mode == kHalfPixelSymmetric && p && equal_extents(input * p, output * q)) mode = kHalfPixel;
  if (p && mode != kHalfPixelSymmetric) {
    const Expr middle = (Expr(2) * o + Expr(1)) * q;
    switch (mode) {
      case kAsymmetric: return Place::ratio(o * q, p);
      case kTfHalfPixel: return Place::ratio(middle, Expr(2) * p);
      default: return Place::ratio(middle - p, Expr(2) * p);
    }
  }
  const auto real = [](double value) { return const_float(DType::kF64, value); };
  const auto over_scale = [&](Expr value) { return binary(BinaryOp::kDiv, std::move(value), real(scale)); };
  const Expr x = cast(DType::kF64, o);
  switch (mode) {
    case kAsymmetric: return Place::real(over_scale(x));
    case kTfHalfPixel: return Place::real(over_scale(x + real(0.5)));
    case kHalfPixelSymmetric: {
      const Expr extent = cast(DType::kF64, input);
      const Expr size = as_int(output) ? real(static_cast<double>(*as_int(output))) : cast(DType::kF64, output);
      const Expr covered = binary(BinaryOp::kDiv, size, extent * real(scale));
      const Expr offset = extent * real(0.5) * (real(1) - covered);
      return Place::real(offset + over_scale(x + real(0.5)) - real(0.5));
    }
    default: return Place::real(over_scale(x + real(0.5)) - real(0.5));
  }
}

// One input index and its weight; a null weight is 1.
struct Tap {
  Expr index;
  Expr weight;
};

// The weights of the four elements around a place with fraction t, for the cubic with parameter a.
std::array<Expr, 4> cubic_weights(const Expr& t, double a) {
  const DType dtype = t.dtype();
  const auto c = [&](double value) { return const_float(dtype, value); };
  const auto far = [&](const Expr& d) { return ((c(a) * d - c(5 * a)) * d + c(8 * a)) * d - c(4 * a); };
  const auto near = [&](const Expr& d) { return (c(a + 2) * d - c(a + 3)) * d * d + c(1); };
  const Expr rest = c(1) - t;
  return {far(t + c(1)), near(t), near(rest), far(rest + c(1))};
}

std::vector<Tap> taps_of(const OpContext& ctx, size_t d, const Axis& axis, DType dtype) {
  const Mode mode = mode_of(ctx);
  const Coordinate coordinate = coordinate_of(ctx);
  const Expr extent = ctx.inputs[0].shape[d];
  const Expr output = ctx.attrs.get_sizes("sizes")[d];
  const double scale = ctx.attrs.get<std::vector<double>>("scales")[d];
  if (equal_extents(extent, output) && (scale == 1 || scale == 0) && coordinate != kTfHalfPixel)
    return {{axis.var, {}}};
  Bounds bounds;
  if (const auto most = size_range(output).hi) bounds.set(axis.var, 0, *most - 1);
  const auto clamp = [&](const Expr& i) { return simplify(min(max(i, 0), extent - Expr(1)), bounds); };
  const Place place = place_of(coordinate, axis.var, output, extent, scale);
  if (mode == kNearest) return {{clamp(place.nearest(nearest_of(ctx))), {}}};
  const Expr first = place.floor();
  const Expr t = place.fraction(dtype);
  if (mode == kLinear) return {{clamp(first), const_float(dtype, 1) - t}, {clamp(first + Expr(1)), t}};
  std::array<Expr, 4> weights = cubic_weights(t, ctx.attrs.get_or<double>("cubic_coeff", -0.75));
  std::vector<Tap> taps;
  Expr total = const_float(dtype, 0);
  const bool exclude = ctx.attrs.get_or<bool>("exclude_outside", false);
  for (int i = 0; i < 4; ++i) {
    const Expr at = first + Expr(i - 1);
    Expr weight = weights[static_cast<size_t>(i)];
    if (exclude) weight = select(logical_and(Expr(0) <= at, at < extent), weight, const_float(dtype, 0));
    total = total + weight;
    taps.push_back({clamp(at), weight});
  }
  if (exclude)
    for (Tap& tap : taps) tap.weight = binary(BinaryOp::kDiv, tap.weight, total);
  return taps;
}

// The interpolation over dimensions d and later, with the earlier ones' indices chosen.
Expr interpolate(const BufferPtr& x, const std::vector<std::vector<Tap>>& taps, std::vector<Expr>& index, DType dtype) {
  const size_t d = index.size();
  if (d == taps.size()) return cast(dtype, load(x, index));
  Expr sum;
  for (const Tap& tap : taps[d]) {
    index.push_back(tap.index);
    Expr term = interpolate(x, taps, index, dtype);
    index.pop_back();
    if (tap.weight) term = term * tap.weight;
    sum = sum ? sum + term : term;
  }
  return sum;
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const DType stored = ctx.inputs[0].dtype;
  const bool narrow = mode_of(ctx) != kNearest && (stored == DType::kF16 || stored == DType::kBF16);
  const DType dtype = narrow ? DType::kF32 : stored;  // 16-bit data is interpolated in f32
  std::vector<std::vector<Tap>> taps;
  for (size_t d = 0; d < body.axes.size(); ++d) taps.push_back(taps_of(ctx, d, body.axes[d], dtype));
  std::vector<Expr> index;
  body.value = cast(stored, interpolate(body.inputs[0], taps, index, dtype));
  return body;
}

}  // namespace

const OpDef& resize_op() {
  static const OpDef op{
      .name = "resize",
      .doc = "x interpolated to other extents.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"mode", AttrKind::kString, true, "nearest, linear or cubic"},
                {"coordinate", AttrKind::kString, true, "how output indices become input coordinates, see resize.cpp"},
                {"nearest_mode", AttrKind::kString, false,
                 "round_prefer_floor (the default), round_prefer_ceil, floor or ceil"},
                {"scales", AttrKind::kFloats, true,
                 "output extent per input extent, for every dimension; 0: the ratio of the two"},
                {"sizes", AttrKind::kSizes, true, "the result's extents, all of them"},
                {"cubic_coeff", AttrKind::kFloat, false, "the cubic's parameter; default -0.75"},
                {"exclude_outside", AttrKind::kBool, false,
                 "cubic: places outside the input get no weight, instead of the nearest element's; default false"}},
      .infer = infer,
      .body = body,
      .example = R"(
graph @main(%x: f32[1,1,2]) -> (%y: f32[1,1,4]) {
  %y = resize(%x) {coordinate = "half_pixel", mode = "linear", scales = [1.0, 1.0, 2.0], sizes = [1, 1, 4]} : f32[1,1,4]
}
run x = 1 3 -> y = 1 1.5 2.5 3
)",
  };
  return op;
}

}  // namespace tessera::inline ops
