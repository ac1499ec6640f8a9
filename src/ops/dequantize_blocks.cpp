// dequantize_blocks: the numbers of rows of blocks.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/blocked_formats.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 3> kPlainFormats = {{{"u2", 2}, {"u4", 4}, {"u8", 8}}};

// Of numbers whose scales are an operand; 0 for the formats whose blocks have theirs.
int plain_bits(const OpContext& ctx) {
  for (const auto& [name, bits] : kPlainFormats)
    if (ctx.attrs.get<std::string>("format") == name) return bits;
  return 0;
}

bool is_byte(DType dtype) { return dtype == DType::kU8; }

// What numbers are computed in: f64 where scales are.
DType floats_of(DType scales) { return scales == DType::kF64 ? DType::kF64 : DType::kF32; }

// Rows of plain numbers: a scale for each group of a row, and a zero point, as a float or packed as the numbers are.
TensorType infer_plain(const OpContext& ctx, int bits) {
  require_rank(ctx, 0, 2, 2);
  require_rank(ctx, 1, 2, 2);
  require_dtype(ctx, 1, is_real, kRealTypes);
  const Shape& rows = ctx.inputs[0].shape;
  const auto bytes = as_int(rows[1]), groups = as_int(ctx.inputs[1].shape[1]);
  if (!bytes || !groups)
    ctx.fail("TSR-2030", describe_operand(ctx, bytes ? 1 : 0), "rows whose length is known while compiling");
  const int64_t most = *bytes * 8 / bits;
  if (!ctx.attrs.has("group")) ctx.fail("TSR-2027", "no attribute group", "how many numbers share a scale");
  const int64_t group = require_int(ctx, "group", 1, kMaxExtent);
  const int64_t elements = ctx.attrs.has("elements") ? require_int(ctx, "elements", 0, most) : most;
  const int64_t needed = (elements + group - 1) / group;
  if (!equal_extents(ctx.inputs[1].shape[0], rows[0]) || *groups < needed)
    ctx.fail("TSR-2024", describe_operand(ctx, 1), fmt::format("a scale for each of {} groups of a row", needed));
  if (ctx.inputs.size() == 3) {
    require_rank(ctx, 2, 2, 2);
    require_dtype(ctx, 2, [](DType dtype) { return is_byte(dtype) || is_real(dtype); }, "u8, f64, f32, f16, bf16");
    const int64_t least = is_byte(ctx.inputs[2].dtype) ? (needed * bits + 7) / 8 : needed;
    const auto have = as_int(ctx.inputs[2].shape[1]);
    if (!equal_extents(ctx.inputs[2].shape[0], rows[0]) || !have || *have < least)
      ctx.fail("TSR-2024", describe_operand(ctx, 2),
               fmt::format("{} zero points in {} elements of a row", needed, least));
  }
  return {floats_of(ctx.inputs[1].dtype), {rows[0], elements}, {}};
}

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, is_byte, "u8");
  std::vector<std::string_view> words = blocked_format_names();
  for (const auto& format : kPlainFormats) words.push_back(format.first);
  require_word(ctx, "format", ctx.attrs.get<std::string>("format"), words);
  const int bits = plain_bits(ctx);
  if (bits == 0 ? ctx.inputs.size() != 1 : ctx.inputs.size() == 1)
    ctx.fail("TSR-2034", plural(ctx.inputs.size(), "operand", "operands"),
             bits == 0 ? "the bytes alone" : "the bytes, the scales, and zero points if there are any");
  if (bits != 0) return {infer_plain(ctx, bits)};
  require_rank(ctx, 0, 1, std::numeric_limits<int>::max());
  const BlockedFormat& format = *find_blocked_format(ctx.attrs.get<std::string>("format"));
  Shape shape = ctx.inputs[0].shape;
  const auto bytes = as_int(shape.back());
  if (!bytes || *bytes % format.bytes != 0)
    ctx.fail("TSR-2024", describe_operand(ctx, 0),
             fmt::format("rows of whole blocks, which have {} bytes", format.bytes));
  shape.back() = *bytes / format.bytes * format.elements;
  return {TensorType{DType::kF32, std::move(shape), {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const std::vector<Expr> index = body.axis_vars();
  const Expr place = index.back();
  const auto byte_at = [&](size_t operand, const Expr& i) {
    std::vector<Expr> at = index;
    at.back() = i;
    return cast(DType::kI32, load(body.inputs[operand], at));
  };
  if (const int bits = plain_bits(ctx); bits != 0) {
    const int64_t in_byte = 8 / bits;
    const auto number = [&](size_t operand, const Expr& i) {
      const Expr byte = byte_at(operand, floordiv(i, in_byte));
      if (bits == 8) return byte;
      const Expr shift = cast(DType::kI32, floormod(i, in_byte) * Expr(bits));
      return binary(BinaryOp::kAnd, binary(BinaryOp::kShr, byte, shift), const_int(DType::kI32, (1 << bits) - 1));
    };
    const Expr group = floordiv(place, ctx.attrs.get_int("group"));
    const DType floats = floats_of(ctx.inputs[1].dtype);
    const auto as_float = [&](const Expr& e) { return cast(floats, e); };
    Expr zero = const_float(floats, std::ldexp(1, bits - 1));
    if (ctx.inputs.size() == 3)
      zero =
          is_byte(ctx.inputs[2].dtype) ? as_float(number(2, group)) : as_float(load(body.inputs[2], {index[0], group}));
    body.value = (as_float(number(0, place)) - zero) * as_float(load(body.inputs[1], {index[0], group}));
    return body;
  }
  const BlockedFormat& format = *find_blocked_format(ctx.attrs.get<std::string>("format"));
  const Expr block = floordiv(place, format.elements) * Expr(format.bytes);
  body.value = format.element([&](const Expr& i) { return byte_at(0, block + i); }, floormod(place, format.elements));
  return body;
}

// The sum of v [rows, elements] over each group of a row, as many groups as `like` has.
ValueId sum_of_groups(Adjoint& a, ValueId v, int64_t group, ValueId like) {
  const Shape dims = a.type(v).shape, wanted = a.type(like).shape;
  const int64_t groups = *as_int(wanted[1]), rest = groups * group - *as_int(dims[1]);
  // A row may have more scales than its elements need, and a last group that is not whole.
  const auto padded = [&](ValueId x, int64_t more) {
    return more == 0 ? x
                     : a.op("pad", {x, a.scalar(0, x)},
                            {{"low", Shape{0, 0}}, {"high", Shape{0, more}}, {"mode", std::string("constant")}});
  };
  const ValueId whole = padded(v, rest);
  return a.reduce("sum", a.reshape(whole, {dims[0], groups, group}), {2}, false);
}

// y = (number - zero) * scale: of scales, and of zero points that are floats. Bytes have none.
std::vector<ValueId> scales_gradient(Adjoint& a) {
  std::vector<ValueId> gradients(a.num_operands(), Adjoint::kNone);
  if (a.num_operands() == 1) return gradients;
  const int64_t group = a.attrs().get_int("group");
  const ValueId scales = a.in(1);
  if (a.wants(1)) {
    const DType dtype = a.type(a.gradient()).dtype;
    std::vector<ValueId> operands = {a.in(0), a.filled(1, dtype, a.type(scales).shape)};
    if (a.num_operands() == 3) operands.push_back(a.in(2));
    const ValueId numbers = a.op("dequantize_blocks", operands, a.attrs());
    gradients[1] = a.cast(sum_of_groups(a, a.mul(a.gradient(), numbers), group, scales), a.type(scales).dtype);
  }
  if (a.num_operands() == 3 && a.wants(2)) {
    const ValueId total = sum_of_groups(a, a.gradient(), group, scales);
    ValueId each = a.neg(a.mul(total, a.cast(scales, a.type(total).dtype)));
    const Shape zeros = a.type(a.in(2)).shape;
    const int64_t have = *as_int(a.type(each).shape[1]), want = *as_int(zeros[1]);
    if (want < have)
      each = a.op("slice", {each}, {{"starts", Shape{0, 0}}, {"sizes", zeros}, {"steps", std::vector<int64_t>{1, 1}}});
    if (want > have)
      each = a.op("pad", {each, a.scalar(0, each)},
                  {{"low", Shape{0, 0}}, {"high", Shape{0, want - have}}, {"mode", std::string("constant")}});
    gradients[2] = a.cast(each, a.type(a.in(2)).dtype);
  }
  return gradients;
}

}  // namespace

const OpDef& dequantize_blocks_op() {
  static const OpDef op{
      .name = "dequantize_blocks",
      .doc =
          "The numbers of rows of blocks: the last dimension of the first operand is the bytes of a row, that of y its "
          "elements. Formats are GGUF's q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k and q6_k, f16 and bf16, whose blocks "
          "have one element, and u2, u4 and u8: (number - zero point) * scale, the lowest bits of a byte first, with "
          "scales and zero points (the middle of the range without them) for groups of a row as operands.",
      .min_inputs = 1,
      .max_inputs = 3,
      .attrs = {{"format", AttrKind::kString, true, "what the bytes of a block mean"},
                {"group", AttrKind::kInt, false, "u2, u4, u8: numbers that share a scale"},
                {"elements", AttrKind::kInt, false, "u2, u4, u8: of a row; as many as it has room for, otherwise"}},
      .infer = infer,
      .body = body,
      .gradient = scales_gradient,
      .example = R"(
graph @main(%x: u8[1,4], %w: u8[1,2], %s: f32[1,2]) -> (%y: f32[1,2], %z: f32[1,3]) {
  %y = dequantize_blocks(%x) {format = "f16"} : f32[1,2]
  %z = dequantize_blocks(%w, %s) {elements = 3, format = "u4", group = 2} : f32[1,3]
}
run x = 0 60 0 192 ; w = 18 52 ; s = 1 0.5 -> y = 1 -2 ; z = -6 -7 -2
)",
  };
  return op;
}

}  // namespace tessera::inline ops
