#include "ops/resize_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/simplify.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

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

Expr f64(double value) { return const_float(DType::kF64, value); }
Expr to_index(Expr value) { return cast(DType::kI64, std::move(value)); }

std::vector<int64_t> operand_axes(const OpContext& ctx) {
  const int rank = static_cast<int>(ctx.inputs[0].shape.size());
  if (ctx.attrs.has("axes")) return require_axes(ctx, "axes", rank);
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// With a scale, and a region, that only a run knows.
ResizePlace place_when_run(ResizeCoordinate mode, const Expr& o, const ResizedAxis& axis) {
  const Expr scale = axis.run_scale, x = cast(DType::kF64, o), extent = cast(DType::kF64, axis.input);
  const Expr last = extent - f64(1), width = scale * extent;  // of the output, before it was rounded
  const auto over = [](Expr a, Expr b) { return binary(BinaryOp::kDiv, std::move(a), std::move(b)); };
  const Expr middle = over(x + f64(0.5), scale);
  const Expr is_one = axis.output <= Expr(1);
  switch (mode) {
    case ResizeCoordinate::kAsymmetric: return ResizePlace::real(over(x, scale));
    case ResizeCoordinate::kAlignCorners: return ResizePlace::real(select(is_one, x, over(x * last, width - f64(1))));
    case ResizeCoordinate::kCrop:
      return ResizePlace::real(select(is_one, x + (axis.begin + axis.end) * last * f64(0.5),
                                      x * over((axis.end - axis.begin) * last, width - f64(1)) + axis.begin * last));
    case ResizeCoordinate::kTfHalfPixel: return ResizePlace::real(middle);
    case ResizeCoordinate::kPytorchHalfPixel: return ResizePlace::real(select(is_one, x, middle - f64(0.5)));
    case ResizeCoordinate::kHalfPixel: return ResizePlace::real(middle - f64(0.5));
    case ResizeCoordinate::kHalfPixelSymmetric: {
      // The middles of both agree, whatever was rounded off.
      const Expr covered = over(cast(DType::kF64, axis.output), width);
      return ResizePlace::real(extent * f64(0.5) * (f64(1) - covered) + middle - f64(0.5));
    }
  }
  throw InternalError("unknown coordinate of resize");
}

}  // namespace

ResizeCoordinate resize_coordinate(const OpContext& ctx) {
  return static_cast<ResizeCoordinate>(require_word(ctx, "coordinate", ctx.attrs.get<std::string>("coordinate"),
                                                    {"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric",
                                                     "asymmetric", "align_corners", "tf_half_pixel_for_nn", "crop"}));
}

ResizeRounding resize_rounding(const OpContext& ctx) {
  return static_cast<ResizeRounding>(require_word(ctx, "nearest_mode",
                                                  ctx.attrs.get_or<std::string>("nearest_mode", "round_prefer_floor"),
                                                  {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
}

Expr ResizePlace::floor() const {
  return denominator_ ? floordiv(value_, denominator_) : to_index(unary(UnaryOp::kFloor, value_));
}

Expr ResizePlace::fraction(DType dtype) const {
  if (!denominator_) return cast(dtype, value_ - unary(UnaryOp::kFloor, value_));
  return binary(BinaryOp::kDiv, cast(dtype, floormod(value_, denominator_)), cast(dtype, denominator_));
}

Expr ResizePlace::nearest(ResizeRounding mode) const {
  if (denominator_) {
    const Expr twice = Expr(2) * denominator_;
    switch (mode) {
      case ResizeRounding::kFloor: return floordiv(value_, denominator_);
      case ResizeRounding::kCeil: return ceildiv(value_, denominator_);
      case ResizeRounding::kRoundPreferFloor: return ceildiv(Expr(2) * value_ - denominator_, twice);
      case ResizeRounding::kRoundPreferCeil: return floordiv(Expr(2) * value_ + denominator_, twice);
    }
  }
  const Expr half = f64(0.5);
  switch (mode) {
    case ResizeRounding::kFloor: return to_index(unary(UnaryOp::kFloor, value_));
    case ResizeRounding::kCeil: return to_index(unary(UnaryOp::kCeil, value_));
    case ResizeRounding::kRoundPreferFloor: return to_index(unary(UnaryOp::kCeil, value_ - half));
    case ResizeRounding::kRoundPreferCeil: return to_index(unary(UnaryOp::kFloor, value_ + half));
  }
  throw InternalError("unknown rounding of resize");
}

ResizePlace ResizePlace::rounded_to_single() const {
  return denominator_ ? *this : real(cast(DType::kF64, cast(DType::kF32, value_)));
}

Expr ResizePlace::real_value() const {
  if (!denominator_) return value_;
  return binary(BinaryOp::kDiv, cast(DType::kF64, value_), cast(DType::kF64, denominator_));
}

ResizePlace place_of(ResizeCoordinate mode, const Expr& o, const ResizedAxis& axis) {
  if (axis.run_scale) return place_when_run(mode, o, axis);
  const auto& [output, input, scale, run_scale, begin, end] = axis;
  const bool one = size_at_most(output, 1);
  if (mode == ResizeCoordinate::kPytorchHalfPixel) {
    if (one) return ResizePlace::ratio(0, 1);
    ResizePlace place = place_of(ResizeCoordinate::kHalfPixel, o, axis);
    if (!size_at_most(2, output)) place.be_zero_if(output <= Expr(1));
    return place;
  }
  if (mode == ResizeCoordinate::kAlignCorners) {
    if (one) return ResizePlace::ratio(0, 1);
    return ResizePlace::ratio(o * (input - Expr(1)), normalize_size(max(output - Expr(1), 1)));
  }
  const auto [p, q] = as_ratio(scale, output, input);
  // The middles agree when the scale is the ratio of the extents.
  if (mode == ResizeCoordinate::kHalfPixelSymmetric && p && equal_extents(input * p, output * q))
    mode = ResizeCoordinate::kHalfPixel;
  if (p && mode != ResizeCoordinate::kHalfPixelSymmetric) {
    const Expr middle = (Expr(2) * o + Expr(1)) * q;
    switch (mode) {
      case ResizeCoordinate::kAsymmetric: return ResizePlace::ratio(o * q, p);
      case ResizeCoordinate::kTfHalfPixel: return ResizePlace::ratio(middle, Expr(2) * p);
      default: return ResizePlace::ratio(middle - p, Expr(2) * p);
    }
  }
  const auto over_scale = [scale = scale](Expr value) { return binary(BinaryOp::kDiv, std::move(value), f64(scale)); };
  const Expr x = cast(DType::kF64, o);
  switch (mode) {
    case ResizeCoordinate::kAsymmetric: return ResizePlace::real(over_scale(x));
    case ResizeCoordinate::kTfHalfPixel: return ResizePlace::real(over_scale(x + f64(0.5)));
    case ResizeCoordinate::kHalfPixelSymmetric: {
      const Expr extent = cast(DType::kF64, input);
      const Expr size = as_int(output) ? f64(static_cast<double>(*as_int(output))) : cast(DType::kF64, output);
      const Expr covered = binary(BinaryOp::kDiv, size, extent * f64(scale));
      const Expr offset = extent * f64(0.5) * (f64(1) - covered);
      return ResizePlace::real(offset + over_scale(x + f64(0.5)) - f64(0.5));
    }
    default: return ResizePlace::real(over_scale(x + f64(0.5)) - f64(0.5));
  }
}

std::vector<ResizedAxis> resized_axes(const OpContext& ctx, const std::vector<BufferPtr>& operands) {
  const Shape& from = ctx.inputs[0].shape;
  const Shape sizes = ctx.attrs.get_sizes("sizes");
  std::vector<ResizedAxis> result;
  for (size_t d = 0; d < from.size(); ++d) result.push_back({sizes[d], from[d], 1, {}, {}, {}});
  if (ctx.inputs.size() == 1) {
    const auto& scales = ctx.attrs.get<std::vector<double>>("scales");
    for (size_t d = 0; d < from.size(); ++d) result[d].scale = scales[d];
    return result;
  }
  const std::vector<int64_t> axes = operand_axes(ctx);
  const auto count = std::ssize(axes);
  for (int64_t k = 0; k < count; ++k) {
    ResizedAxis& axis = result[static_cast<size_t>(axes[static_cast<size_t>(k)])];
    axis.run_scale = load(operands[1], {Expr(k)});
    if (operands.size() < 3) continue;
    axis.begin = load(operands[2], {Expr(k)});
    axis.end = load(operands[2], {Expr(k + count)});
  }
  return result;
}

Shape require_resize(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  const ResizeCoordinate coordinate = resize_coordinate(ctx);
  resize_rounding(ctx);
  const Shape sizes = require_sizes(ctx, "sizes", x.shape.size(), 0, kMaxExtent);
  const auto axes = std::ssize(operand_axes(ctx));
  if (ctx.attrs.has("scales") != (ctx.inputs.size() == 1))
    ctx.fail("TSR-2034",
             fmt::format("{} and {}", plural(ctx.inputs.size(), "operand", "operands"),
                         ctx.attrs.has("scales") ? "the attribute 'scales'" : "no attribute 'scales'"),
             "scales either as an attribute or as operand 2");
  if ((coordinate == ResizeCoordinate::kCrop) != (ctx.inputs.size() == 3))
    ctx.fail("TSR-2034",
             fmt::format("{} for coordinate = \"{}\"", plural(ctx.inputs.size(), "operand", "operands"),
                         ctx.attrs.get<std::string>("coordinate")),
             "the region as operand 3 for crop, and for it alone");
  for (size_t i = 1; i < ctx.inputs.size(); ++i) {
    require_dtype(ctx, i, [](DType dtype) { return dtype == DType::kF64; }, "f64");
    require_rank(ctx, i, 1, 1);
    const int64_t wanted = axes * static_cast<int64_t>(i);
    if (!is_const_int(ctx.inputs[i].shape[0], wanted))
      ctx.fail("TSR-2024", describe_operand(ctx, i), fmt::format("f64[{}], for {} axes", wanted, axes));
  }
  const std::vector<double> scales =
      ctx.attrs.get_or<std::vector<double>>("scales", std::vector<double>(x.shape.size(), 1));
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
  return sizes;
}

}  // namespace tessera::inline ops
