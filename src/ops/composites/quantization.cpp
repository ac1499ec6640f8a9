// Integers that stand for real numbers: real = (integer - zero) * scale, with a scale and a zero point for all of a
// tensor (rank 0) or for each entry of one dimension (rank 1, and `axis`).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "graph/adjoint.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

const AttrDef kAxis = {"axis", AttrKind::kInt, false, "the dimension of x whose entries have scales of their own"};

// Operand `i`, a scale or zero point, in a shape that broadcasts to that of x.
ValueId spread(CompositeBody& b, size_t i) {
  const OpContext& ctx = b.context();
  const bool has_axis = ctx.attrs.has("axis");
  require_rank(ctx, i, has_axis ? 1 : 0, has_axis ? 1 : 0);
  if (!has_axis) return b.operand(i);
  const Shape& x = b.type(b.operand(0)).shape;
  const auto axis = static_cast<size_t>(require_int(ctx, "axis", 0, static_cast<int64_t>(x.size()) - 1));
  const Expr& entries = b.type(b.operand(i)).shape[0];
  if (!equal_extents(entries, x[axis]))
    ctx.fail("TSR-2023", describe_operand(ctx, i), fmt::format("one element for each entry of dimension {}", axis));
  Shape along(x.size(), Expr(1));
  along[axis] = entries;
  return b.reshape(b.operand(i), along);
}

bool is_small_integer(DType dtype) { return is_int(dtype) && dtype_bits(dtype) <= 16; }

std::vector<ValueId> quantize(CompositeBody& b) {
  const OpContext& ctx = b.context();
  require_dtype(ctx, 0, is_real, kRealTypes);
  const auto to = ctx.attrs.get<DType>("to");
  if (!is_small_integer(to))
    ctx.fail("TSR-2020", fmt::format("to = {}", dtype_name(to)), "an integer of at most 16 bits");
  const ValueId x = b.operand(0);
  if (b.type(b.operand(1)).dtype != b.dtype()) ctx.fail("TSR-2020", describe_operand(ctx, 1), "a scale of x's type");
  ValueId y = b.cast(b.add("round", {b.add("div", {x, spread(b, 1)})}), DType::kF32);
  if (b.num_operands() == 3) {
    if (b.type(b.operand(2)).dtype != to)
      ctx.fail("TSR-2020", describe_operand(ctx, 2), "a zero point of the result's type");
    y = b.add("add", {y, b.cast(b.cast(spread(b, 2), DType::kI32), DType::kF32)});
  }
  const int bits = dtype_bits(to);
  const double low = is_signed_int(to) ? -std::ldexp(1, bits - 1) : 0;
  y = b.add_scalar("min", b.add_scalar("max", y, low), low + std::ldexp(1, bits) - 1);
  return {b.cast(bits < 8 ? b.cast(y, DType::kI32) : y, to)};
}

std::vector<ValueId> dequantize(CompositeBody& b) {
  const OpContext& ctx = b.context();
  const ValueId x = b.operand(0), scale = b.operand(1);
  if (!is_int(b.dtype()) || dtype_bits(b.dtype()) > 32)
    ctx.fail("TSR-2020", describe_operand(ctx, 0), "an integer of at most 32 bits");
  const DType real = b.type(scale).dtype;
  if (!is_real(real)) ctx.fail("TSR-2020", describe_operand(ctx, 1), "a scale of real type");
  ValueId centred = b.cast(x, DType::kI32);
  if (b.num_operands() == 3) {
    if (b.type(b.operand(2)).dtype != b.dtype())
      ctx.fail("TSR-2020", describe_operand(ctx, 2), "a zero point of x's type");
    centred = b.add("sub", {centred, b.cast(spread(b, 2), DType::kI32)});
  }
  return {b.cast(b.add("mul", {b.cast(centred, DType::kF32), b.cast(spread(b, 1), DType::kF32)}), real)};
}

// As ONNX's DynamicQuantizeLinear: bytes that cover all numbers of this run, and zero.
std::vector<ValueId> dynamic_quantize(CompositeBody& b) {
  const OpContext& ctx = b.context();
  require_dtype(ctx, 0, [](DType dtype) { return dtype == DType::kF32; }, "f32");
  const ValueId x = b.operand(0), none = b.scalar(0);
  std::vector<int64_t> axes(static_cast<size_t>(b.type(x).rank()));
  std::iota(axes.begin(), axes.end(), 0);
  const auto least = [&](const char* kind) { return b.add(kind, {b.reshape(b.reduce(kind, x, axes), {}), none}); };
  const ValueId low = least("min"), high = least("max");
  const ValueId step = b.add_scalar("div", b.add("sub", {high, low}), 255);
  const ValueId scale = b.add("select", {b.add("eq", {step, none}), b.scalar(1), step});
  const auto as_byte = [&](ValueId y) {
    return b.cast(b.add_scalar("min", b.add_scalar("max", y, 0), 255), DType::kU8);
  };
  const ValueId zero = as_byte(b.add("round", {b.add("div", {b.add("neg", {low}), scale})}));
  const ValueId wide = b.cast(b.cast(zero, DType::kI32), DType::kF32);
  return {as_byte(b.add("add", {b.add("round", {b.add("div", {x, scale})}), wide})), scale, zero};
}

// The first two operands in i32, less their zero points.
std::pair<ValueId, ValueId> centred_factors(CompositeBody& b) {
  const OpContext& ctx = b.context();
  std::array<ValueId, 2> centred = {};
  for (size_t i = 0; i < 2; ++i) {
    require_dtype(ctx, i, [](DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }, "u8 or i8");
    centred[i] = b.cast(b.operand(i), DType::kI32);
    if (b.num_operands() <= i + 2) continue;
    require_rank(ctx, i + 2, 0, 0);
    if (b.type(b.operand(i + 2)).dtype != b.type(b.operand(i)).dtype)
      ctx.fail("TSR-2020", describe_operand(ctx, i + 2), "a zero point of its factor's type");
    centred[i] = b.add("sub", {centred[i], b.cast(b.operand(i + 2), DType::kI32)});
  }
  return {centred[0], centred[1]};
}

std::vector<ValueId> matmul_integer(CompositeBody& b) {
  const auto [a, w] = centred_factors(b);
  return {b.add("matmul", {a, w})};
}

std::vector<AttrDef> conv_attrs() {
  std::vector<AttrDef> attrs = window_attrs();
  attrs.push_back({"groups", AttrKind::kInt, true, "channels of x and y are split into so many"});
  return attrs;
}

std::vector<ValueId> conv_integer(CompositeBody& b) {
  const auto [x, w] = centred_factors(b);
  Attrs attrs = b.attrs();
  attrs.set("input_dilations", std::vector<int64_t>(static_cast<size_t>(std::max(0, b.type(x).rank() - 2)), 1));
  return {b.add("conv", {x, w}, std::move(attrs))};
}

// Training sees what integers will do to a number: it is made one and a real number again, while gradients pass as if
// nothing had happened (straight through).

// y and whether x was within what the integers cover, in the operations of quantize and dequantize.
struct Faked {
  ValueId y, inside;
};

Faked faked(CompositeBody& b, ValueId scale, ValueId zero, double low, double high) {
  const ValueId whole = b.add("add", {b.add("round", {b.add("div", {b.operand(0), scale})}), zero});
  const ValueId kept = b.add_scalar("min", b.add_scalar("max", whole, low), high);
  const ValueId centred = b.cast(b.cast(b.add("sub", {kept, zero}), DType::kI32), DType::kF32);
  return {b.add("mul", {centred, scale}), b.add("eq", {whole, kept})};
}

// 1 where the scale is too small for a normal number.
ValueId usable_scale(CompositeBody& b, ValueId scale) {
  const ValueId least = b.scalar(std::numeric_limits<float>::min(), DType::kF32);
  return b.add("select", {b.add("ge", {scale, least}), scale, b.scalar(1, DType::kF32)});
}

void require_f32(CompositeBody& b) {
  require_dtype(b.context(), 0, [](DType dtype) { return dtype == DType::kF32; }, "f32");
  require_same_dtype(b.context());
}

std::vector<ValueId> fake_quantize(CompositeBody& b) {
  require_f32(b);
  for (const size_t i : {1, 2}) require_rank(b.context(), i, 0, 0);
  const auto to = b.attrs().get<DType>("to");
  if (to != DType::kU8 && to != DType::kI8)
    b.context().fail("TSR-2020", fmt::format("to = {}", dtype_name(to)), "u8 or i8");
  // In f64, as quantize/quantize_graph.h computes what is exported.
  const ValueId low = b.add_scalar("min", b.cast(b.operand(1), DType::kF64), 0);
  const ValueId high = b.add_scalar("max", b.cast(b.operand(2), DType::kF64), 0);
  const bool has_sign = to == DType::kI8;
  const ValueId span = has_sign ? b.add("max", {b.add("neg", {low}), high}) : b.add("sub", {high, low});
  const ValueId given = b.cast(b.add_scalar("div", span, has_sign ? 127 : 255), DType::kF32);
  const ValueId scale = usable_scale(b, given);
  ValueId zero = b.scalar(0, DType::kF32);
  if (!has_sign) {
    const ValueId place = b.add("div", {b.add("neg", {low}), b.cast(scale, DType::kF64)});
    const ValueId nearest = b.add("floor", {b.add_scalar("add", place, 0.5)});
    const ValueId kept = b.add_scalar("min", b.add_scalar("max", nearest, 0), 255);
    zero = b.add("select", {b.add("eq", {given, scale}), b.cast(kept, DType::kF32), zero});
  }
  const Faked made = faked(b, scale, zero, has_sign ? -128 : 0, has_sign ? 127 : 255);
  return {made.y, made.inside};
}

std::vector<ValueId> fake_quantize_weights(CompositeBody& b) {
  require_f32(b);
  const OpContext& ctx = b.context();
  const int64_t bits = require_int(ctx, "bits", 2, 8);
  const int rank = b.type(b.operand(0)).rank();
  const int64_t axis = ctx.attrs.has("axis") ? require_int(ctx, "axis", 0, rank - 1) : -1;
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis) axes.push_back(d);
  const double most = std::ldexp(1, static_cast<int>(bits) - 1) - 1;
  ValueId largest = b.add("abs", {b.operand(0)});
  if (!axes.empty()) largest = b.reduce("max", largest, std::move(axes));
  const ValueId scale = usable_scale(b, b.add_scalar("div", largest, most));
  return {faked(b, scale, b.scalar(0, DType::kF32), -most, most).y};
}

// The gradient of the first result, where the second one says that the number was covered.
std::vector<ValueId> straight_through(Adjoint& a) {
  const ValueId g = a.gradient();
  if (g == Adjoint::kNone) return {Adjoint::kNone, Adjoint::kNone, Adjoint::kNone};
  return {a.select(a.out(1), g, a.scalar(0, g)), Adjoint::kNone, Adjoint::kNone};
}

}  // namespace

const std::vector<CompositeDef>& quantization_composites() {
  static const std::vector<CompositeDef> list = {
      {"quantize",
       "round(x / scale) + zero, to the nearest integer, of two the even one, and kept within the range of `to`.",
       2,
       3,
       {{"to", AttrKind::kDType, true, "the integers' type"}, kAxis},
       quantize,
       "quantize(x: f32[4], s: f32[], z: u8[]) {to = u8}\nrun x = -10 0.25 0.75 1000 ; s = 0.5 ; z = 3 -> y = 0 3 5 "
       "255"},
      {"dequantize",
       "(x - zero) * scale.",
       2,
       3,
       {kAxis},
       dequantize,
       "dequantize(x: i8[2,2], s: f32[2], z: i8[2]) {axis = 1}\nrun x = 1 2 -3 4 ; s = 0.5 2 ; z = 1 0 -> y = 0 4 -2 "
       "8"},
      {"dynamic_quantize",
       "x as u8 that cover all its numbers and zero, their scale, and their zero point: real = (integer - zero) * "
       "scale.",
       1,
       1,
       {},
       dynamic_quantize,
       "dynamic_quantize(x: f32[3])\nrun x = 0 127.5 -127.5 -> y0 = 128 255 0 ; y1 = 1 ; y2 = 128"},
      {"matmul_integer",
       "The matrix product of bytes less their zero points, of which either may be left out from the end, in i32.",
       2,
       4,
       {},
       matmul_integer,
       "matmul_integer(a: u8[1,2], b: i8[2,1], za: u8[])\nrun a = 3 5 ; b = 1 -2 ; za = 2 -> y = -5"},
      {"conv_integer",
       "The convolution of bytes less their zero points, of which either may be left out from the end, in i32; padding "
       "is zero.",
       2, 4, conv_attrs(), conv_integer,
       "conv_integer(x: u8[1,1,2], w: i8[1,1,2], zx: u8[]) {strides = [1], pads_begin = [1], pads_end = [0], "
       "dilations = [1], groups = 1}\nrun x = 3 5 ; w = 1 -2 ; zx = 2 -> y = -2 -5"},
      {"fake_quantize",
       "x as integers of type `to` that cover low .. high and zero, made real again; and whether x was covered. The "
       "gradient passes straight through where it was.",
       3,
       3,
       {{"to", AttrKind::kDType, true, "u8, or i8 without a zero point"}},
       fake_quantize,
       "fake_quantize(x: f32[4], low: f32[], high: f32[]) {to = u8}\nrun x = -10 0.25 0.75 1000 ; low = 0 ; high = "
       "127.5 -> y0 = 0 0 1 127.5 ; y1 = 0 1 1 0",
       straight_through},
      {"fake_quantize_weights",
       "x as integers of `bits` bits, the largest magnitude the largest integer, made real again. The gradient passes "
       "straight through.",
       1,
       1,
       {{"bits", AttrKind::kInt, true, "2 to 8, a sign among them"}, kAxis},
       fake_quantize_weights,
       "fake_quantize_weights(x: f32[2,2]) {bits = 2, axis = 0}\nrun x = 1 -4 0.5 0.125 -> y = 0 -4 0.5 0",
       [](Adjoint& a) { return std::vector<ValueId>{a.gradient()}; }},
  };
  return list;
}

}  // namespace tessera::inline ops
