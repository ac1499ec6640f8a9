// Quantised tensors: real value = (stored value - zero point) * scale.
#include <fmt/format.h>

#include <cmath>

#include "arith/simplify.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/dtypes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// A scale or zero point as an operand that broadcasts to x: one value, one per entry of `axis`, or one per block of
// `block` entries along it.
ValueId spread(NodeContext& c, ValueId parameter, ValueId x, int64_t block) {
  if (c.num_elements(parameter) == 1 && block == 0) return c.reshape(parameter, {});
  const int axis = c.axis(c.attrs.get_int("axis", 1), c.rank(x));
  const auto a = static_cast<size_t>(axis);
  Ints shape = c.dims(parameter);
  if (block == 0) {
    const Expr extent = c.shape(x)[a];
    if (shape.size() != 1 || !equal_sizes(shape[0], extent))
      c.malformed(fmt::format("a scale or zero point of type {} for an operand of type {}",
                              c.type(parameter).to_string(), c.type(x).to_string()),
                  fmt::format("{} elements, one for each entry of dimension {}", to_string(extent), axis));
    Ints along(static_cast<size_t>(c.rank(x)), 1);
    along[a] = shape[0];
    return c.reshape(parameter, along);
  }
  const Ints dims = c.dims(x);
  int64_t covered;
  bool fits = block > 0 && shape.size() == dims.size() && !__builtin_mul_overflow(shape[a], block, &covered) &&
              covered >= dims[a];
  for (size_t d = 0; fits && d < dims.size(); ++d) fits = d == a || shape[d] == dims[d];
  if (!fits)
    c.malformed(fmt::format("a scale or zero point of type {} with block_size = {} for an operand of type {}",
                            c.type(parameter).to_string(), block, c.type(x).to_string()),
                "one element for each block");
  Ints apart = shape, wide, whole = shape;
  apart.insert(apart.begin() + axis + 1, 1);
  wide = apart;
  wide[a + 1] = block;
  whole[a] *= block;
  const ValueId repeated = c.reshape(c.broadcast(c.reshape(parameter, apart), wide), whole);
  return c.slice(repeated, Ints(dims.size(), 0), dims, Ints(dims.size(), 1));
}

// The zero point of the node; integers in i32, as ONNX moves none of 4 bits.
ValueId spread_zero(NodeContext& c, ValueId x, int64_t block) {
  const ValueId zero = c.in(2);
  return spread(c, is_float(c.dtype(zero)) ? zero : c.cast(zero, DType::kI32), x, block);
}

bool is_small_float(DType dtype) { return is_float(dtype) && dtype_bits(dtype) <= 8; }

// value / scale, rounded to even, moved by the zero point, and kept within the type. The zero point is in any type.
ValueId to_integer(NodeContext& c, ValueId quotient, std::optional<ValueId> zero, DType dtype) {
  ValueId y = c.cast(c.op("round", {quotient}), DType::kF32);
  if (zero) y = c.add(y, c.cast(c.cast(*zero, DType::kI32), DType::kF32));
  const int bits = dtype_bits(dtype);
  const bool has_sign = is_signed_int(dtype);
  const double low = has_sign ? -std::ldexp(1, bits - 1) : 0, high = std::ldexp(1, has_sign ? bits - 1 : bits) - 1;
  y = c.op("min", {c.op("max", {y, c.scalar_like(y, low)}), c.scalar_like(y, high)});
  return c.cast(bits < 8 ? c.cast(y, DType::kI32) : y, dtype);
}

DType output_type(NodeContext& c, DType otherwise) {
  const int64_t number = c.attrs.get_int("output_dtype", 0);
  if (number == 0) return otherwise;
  const auto dtype = dtype_of_onnx(number);
  if (!dtype) c.unsupported(fmt::format("results of the data type {}", onnx_dtype_name(number)));
  return *dtype;
}

}  // namespace

ValueId quantized(NodeContext& c, ValueId x, ValueId scale, ValueId zero) {
  return to_integer(c, c.div(x, scale), zero, c.dtype(zero));
}

namespace {

// The node as the composite `name`, where it is one: scales of x's type, or of real type, for all of x or for the
// entries of one dimension, and zero points like them.
std::optional<ValueId> as_composite(NodeContext& c, const char* name, DType integers, std::optional<DType> to) {
  const ValueId x = c.in(0), scale = c.in(1);
  const bool fits = is_int(integers) && dtype_bits(integers) <= (to ? 16 : 32) &&
                    c.attrs.get_int("block_size", 0) == 0 && is_float(c.dtype(scale)) &&
                    !is_small_float(c.dtype(scale)) && (!to || c.dtype(scale) == c.dtype(x)) &&
                    (!c.has(2) || (c.dtype(c.in(2)) == integers && c.num_elements(c.in(2)) == c.num_elements(scale)));
  if (!fits) return std::nullopt;
  Attrs attrs;
  if (to) attrs.set("to", *to);
  std::vector<ValueId> operands = {x, scale};
  if (c.has(2)) operands.push_back(c.in(2));
  const bool one = c.num_elements(scale) == 1;
  if (!one) {
    const int axis = c.axis(c.attrs.get_int("axis", 1), c.rank(x));
    if (c.rank(scale) != 1 || !equal_sizes(c.dims(scale)[0], c.shape(x)[static_cast<size_t>(axis)]))
      return std::nullopt;
    attrs.set("axis", static_cast<int64_t>(axis));
  }
  for (size_t i = 1; i < operands.size(); ++i)
    operands[i] = c.reshape(operands[i], one ? Ints{} : Ints{c.num_elements(scale)});
  return c.composite(name, std::move(operands), std::move(attrs));
}

}  // namespace

namespace {

void import_quantize_linear(NodeContext& c) {
  c.require_inputs(2, 3);
  const ValueId x = c.in(0);
  const int64_t block = c.attrs.get_int("block_size", 0);
  c.attrs.ignore("axis");
  const DType stored = output_type(c, c.has(2) ? c.dtype(c.in(2)) : DType::kU8);
  if (c.attrs.get_int("precision", 0) == 0 && c.attrs.get_int("saturate", 1) != 0)
    if (const auto y = as_composite(c, "quantize", stored, stored)) return c.out(0, *y);
  const ValueId scale = spread(c, c.in(1), x, block);
  std::optional<ValueId> zero;
  if (c.has(2)) zero = spread_zero(c, x, block);
  const auto precision = dtype_of_onnx(c.attrs.get_int("precision", 0));
  DType compute = is_float(c.dtype(x)) && !is_small_float(c.dtype(x)) ? c.dtype(x) : DType::kF32;
  if (dtype_bits(c.dtype(scale)) > dtype_bits(compute)) compute = c.dtype(scale);
  if (precision) compute = *precision;
  const ValueId quotient = c.div(c.cast(x, compute), c.cast(scale, compute));
  const bool saturate = c.attrs.get_int("saturate", 1) != 0;
  if (is_float(stored)) return c.out(0, cast_to(c, quotient, stored, saturate));
  c.out(0, to_integer(c, quotient, zero, stored));
}

void import_dequantize_linear(NodeContext& c) {
  c.require_inputs(2, 3);
  const ValueId x = c.in(0);
  const int64_t block = c.attrs.get_int("block_size", 0);
  c.attrs.ignore("axis");
  const ValueId scale = spread(c, c.in(1), x, block);
  const DType dtype = output_type(c, c.dtype(scale));
  if (dtype == c.dtype(scale))
    if (const auto y = as_composite(c, "dequantize", c.dtype(x), std::nullopt)) return c.out(0, *y);
  ValueId centred = x;
  if (is_float(c.dtype(x))) {
    centred = c.cast(x, DType::kF32);
    if (c.has(2)) centred = c.sub(centred, c.cast(spread(c, c.in(2), x, block), DType::kF32));
  } else {
    centred = c.cast(x, DType::kI32);
    if (c.has(2)) centred = c.sub(centred, spread_zero(c, x, block));
    centred = c.cast(centred, DType::kF32);
  }
  c.out(0, c.cast(c.mul(centred, c.cast(scale, DType::kF32)), dtype));
}

}  // namespace

DynamicRange dynamic_range(NodeContext& c, ValueId x) {
  Ints axes;
  for (int d = 0; d < c.rank(x); ++d) axes.push_back(d);
  const ValueId zero = c.scalar_like(x, 0);
  const ValueId low = c.op("min", {c.reduce("min", x, axes, false), zero});
  const ValueId high = c.op("max", {c.reduce("max", x, axes, false), zero});
  const ValueId range = c.div(c.sub(high, low), c.scalar_like(x, 255));
  const ValueId scale = c.op("select", {c.op("eq", {range, zero}), c.scalar_like(x, 1), range});
  const ValueId zero_point = to_integer(c, c.div(c.op("neg", {low}), scale), std::nullopt, DType::kU8);
  return {quantized(c, x, scale, zero_point), scale, zero_point};
}

namespace {

void import_dynamic_quantize_linear(NodeContext& c) {
  c.require_inputs(1, 1);
  const std::vector<ValueId> results = c.composite_results("dynamic_quantize", {c.in(0)});
  for (int i = 0; i < 3; ++i) c.out(i, results[static_cast<size_t>(i)]);
}

}  // namespace

OperatorFamily quantization_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"DequantizeLinear", 10, import_dequantize_linear},
      OperatorImporter{"DynamicQuantizeLinear", 11, import_dynamic_quantize_linear},
      OperatorImporter{"QuantizeLinear", 10, import_quantize_linear},
  };
  static constexpr OperatorImporter contrib[] = {
      OperatorImporter{"DequantizeLinear", 1, import_dequantize_linear},
      OperatorImporter{"QuantizeLinear", 1, import_quantize_linear},
  };
  return {{"", standard}, {kContribDomain, contrib}};
}

}  // namespace tessera::inline onnx_import
