// Integers that stand for real numbers: real = (integer - zero) * scale, with a scale and a zero point for all of a
// tensor (rank 0) or for each entry of one dimension (rank 1, and `axis`).
#include <fmt/format.h>

#include <cmath>

#include "ops/composites/composites.h"
#include "ops/op_util.h"

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
  };
  return list;
}

}  // namespace tessera::inline ops
