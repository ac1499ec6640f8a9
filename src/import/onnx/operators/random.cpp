// RandomUniform, RandomNormal, their ...Like forms, Bernoulli, Multinomial.
//
// The numbers are a function of a key and of a counter (Widynski's "Squares", four rounds), so that every element is
// computed on its own and every back end gives the same ones. With k the key and i the counter, all modulo 2^64:
//   y = i * k, z = y + k, x = y; x = turn(x * x + y); x = turn(x * x + z); x = turn(x * x + y); (x * x + z) >> 32
// where turn exchanges the halves. Element e of a result uses the counters n * e to n * e + n - 1, with n draws for
// each. The key comes from the attribute `seed`; without it from the node's name. Every run of a module gives the same
// numbers: there is no state between runs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Steele, Lea and Flood's splitmix64: neighbouring seeds get keys that have nothing in common.
uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t read_key(NodeContext& c) {
  if (c.attrs.has("seed")) return mixed(std::bit_cast<uint32_t>(static_cast<float>(c.attrs.get_float("seed", 0)))) | 1;
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char byte : c.label()) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return mixed(hash) | 1;
}

struct Generator {
  NodeContext& c;
  uint64_t key;
  Ints dims;
  int64_t draws;  // for each element

  ValueId word(uint64_t value) {
    Tensor tensor(DType::kU64, {});
    tensor.set_int(0, static_cast<int64_t>(value));
    return c.constant_value(std::move(tensor));
  }
  // 32 random bits for each element, as u64.
  ValueId bits(int64_t draw) {
    const auto count = checked_num_elements(dims);
    if (!count) c.malformed(fmt::format("a result of shape [{}]", fmt::join(dims, ",")), "at most 2^40 elements");
    ValueId counter = c.reshape(c.iota({*count}, 0, DType::kU64), dims);
    if (draws > 1) counter = c.mul(counter, word(static_cast<uint64_t>(draws)));
    if (draw > 0) counter = c.add(counter, word(static_cast<uint64_t>(draw)));
    const ValueId y = c.mul(counter, word(key)), z = c.add(y, word(key)), half = word(32);
    const auto squared = [&](ValueId x, ValueId more) { return c.add(c.mul(x, x), more); };
    const auto turned = [&](ValueId x) {
      return c.op("bitwise_or", {c.op("shift_right", {x, half}), c.op("shift_left", {x, half})});
    };
    ValueId x = turned(squared(y, y));
    x = turned(squared(x, z));
    x = turned(squared(x, y));
    return c.op("shift_right", {squared(x, z), half});
  }
  // In 0 <= u < 1: 24 bits of one draw in f32, 53 of two in f64.
  ValueId uniform(DType dtype, int64_t draw) {
    if (dtype != DType::kF64) {
      const ValueId top = c.cast(c.op("shift_right", {bits(draw), word(8)}), DType::kF32);
      return c.mul(top, c.scalar(DType::kF32, std::ldexp(1.0, -24)));
    }
    const ValueId high = c.op("shift_left", {c.op("shift_right", {bits(draw), word(5)}), word(26)});
    const ValueId all = c.add(high, c.op("shift_right", {bits(draw + 1), word(6)}));
    return c.mul(c.cast(all, DType::kF64), c.scalar(DType::kF64, std::ldexp(1.0, -53)));
  }
};

int64_t draws_of(DType dtype) { return dtype == DType::kF64 ? 2 : 1; }
ValueId uniform(NodeContext& c, const Ints& dims, DType dtype) {
  return Generator{c, read_key(c), dims, draws_of(dtype)}.uniform(dtype, 0);
}

DType read_dtype(NodeContext& c, DType fallback) {
  if (!c.attrs.has("dtype")) return fallback;
  const int64_t number = c.attrs.get_int("dtype", 0);
  const auto dtype = dtype_of_onnx(number);
  if (!dtype || *dtype == DType::kString) c.unsupported(fmt::format("dtype = {}", onnx_dtype_name(number)));
  return *dtype;
}

struct Result {
  Ints dims;
  DType dtype;
};

// Of the form with an attribute `shape`, or of the form like an operand.
Result read_result(NodeContext& c) {
  Result result;
  if (c.primitive() == "like") {
    c.require_inputs(1, 1);
    result = {c.dims(c.in(0)), read_dtype(c, c.dtype(c.in(0)))};
  } else {
    c.require_inputs(0, 0);
    result = {c.attrs.require_ints("shape"), read_dtype(c, DType::kF32)};
    for (const int64_t d : result.dims)
      if (d < 0 || d > (int64_t{1} << 40)) c.malformed(fmt::format("an extent {}", d), "0 to 2^40");
  }
  if (!is_float(result.dtype))
    c.malformed(fmt::format("dtype = {}", dtype_name(result.dtype)), "a floating point type");
  return result;
}

void import_random_uniform(NodeContext& c) {
  const Result result = read_result(c);
  const double low = c.attrs.get_float("low", 0), high = c.attrs.get_float("high", 1);
  const DType dtype = computing_type(result.dtype);
  const ValueId u = c.mul(uniform(c, result.dims, dtype), c.scalar(dtype, high - low));
  c.out(0, c.cast(c.add(u, c.scalar(dtype, low)), result.dtype));
}

// Box and Muller's transform, one value of each pair.
void import_random_normal(NodeContext& c) {
  const Result result = read_result(c);
  const double mean = c.attrs.get_float("mean", 0), scale = c.attrs.get_float("scale", 1);
  const DType dtype = computing_type(result.dtype);
  const auto number = [&](double value) { return c.scalar(dtype, value); };
  const int64_t draws = draws_of(dtype);
  Generator generator{c, read_key(c), result.dims, 2 * draws};
  // 1 - u is never 0.
  const ValueId log = c.op("log", {c.sub(number(1), generator.uniform(dtype, 0))});
  const ValueId radius = c.op("sqrt", {c.mul(log, number(-2))});
  const ValueId angle = c.mul(generator.uniform(dtype, draws), number(2 * std::numbers::pi));
  const ValueId normal = c.mul(radius, c.op("cos", {angle}));
  c.out(0, c.cast(c.add(c.mul(normal, number(scale)), number(mean)), result.dtype));
}

void import_bernoulli(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId p = c.in(0);
  const DType to = read_dtype(c, c.dtype(p)), dtype = computing_type(c.dtype(p));
  c.out(0, c.cast(c.op("lt", {uniform(c, c.dims(p), dtype), c.cast(p, dtype)}), to));
}

// Classes from logarithms of their weights [batch, classes]: the first whose share of the sum up to it is above u.
void import_multinomial(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int64_t samples = c.attrs.get_int("sample_size", 1);
  const DType to = read_dtype(c, DType::kI32), dtype = computing_type(c.dtype(x));
  if (dims.size() != 2 || dims[1] < 1 || samples < 0 || samples > (1 << 24) || (to != DType::kI32 && to != DType::kI64))
    c.malformed(
        fmt::format("{} samples as {} from an operand of type {}", samples, dtype_name(to), c.type(x).to_string()),
        "[batch, classes], and i32 or i64");
  const ValueId wide = c.cast(x, dtype);
  const ValueId shares = running_sum(c, c.composite("softmax", {wide}, {{"axis", int64_t{1}}}), 1);
  const ValueId u = c.reshape(uniform(c, {dims[0], samples}, dtype), {dims[0], samples, 1});
  const ValueId passed = c.op("le", {c.reshape(shares, {dims[0], 1, dims[1]}), u});
  const ValueId index = c.reduce("sum", c.cast(passed, DType::kI32), {2}, false);
  const ValueId last = c.scalar(DType::kI32, static_cast<double>(dims[1] - 1));
  c.out(0, c.cast(c.op("min", {index, last}), to));
}

}  // namespace

OperatorFamily random_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Bernoulli", 15, import_bernoulli},
      OperatorImporter{"Multinomial", 7, import_multinomial},
      OperatorImporter{"RandomNormal", 7, import_random_normal},
      OperatorImporter{"RandomNormalLike", 7, import_random_normal, "like"},
      OperatorImporter{"RandomUniform", 7, import_random_uniform},
      OperatorImporter{"RandomUniformLike", 7, import_random_uniform, "like"},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
