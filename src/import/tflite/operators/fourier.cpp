// Fourier's transform of images of real numbers, and what is made of complex numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// cos and sin of 2 pi i k / n, [n,count].
struct Waves {
  ValueId cosine = -1, sine = -1;
};
Waves waves(OperatorContext& c, int64_t n, int64_t count) {
  constexpr int64_t kMost = 1 << 24;
  if (n > kMost / count) c.unsupported(fmt::format("a transform of {} numbers", n));
  Tensor cosine(DType::kF32, {n, count}), sine(DType::kF32, {n, count});
  const auto cosines = cosine.as_mutable<float>(), sines = sine.as_mutable<float>();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < count; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i * k % n) / static_cast<double>(n);
      cosines[static_cast<size_t>(i * count + k)] = static_cast<float>(std::cos(angle));
      sines[static_cast<size_t>(i * count + k)] = static_cast<float>(std::sin(angle));
    }
  return {c.constant_value(std::move(cosine)), c.constant_value(std::move(sine))};
}

// Zeros behind, or the first `wanted` only.
ValueId fitted(OperatorContext& c, ValueId x, int axis, int64_t wanted) {
  Ints dims = c.dims(x), zeros(dims.size(), 0), high = zeros;
  const auto a = static_cast<size_t>(axis);
  if (dims[a] >= wanted) {
    if (dims[a] == wanted) return x;
    dims[a] = wanted;
    return c.slice(x, zeros, dims, Ints(dims.size(), 1));
  }
  high[a] = wanted - dims[a];
  return c.op("pad", {x, c.scalar_like(x, 0)}, {{"low", zeros}, {"high", high}, {"mode", std::string("constant")}});
}

// Sums over all places: by products with matrices of waves, the last dimension first.
void import_rfft2d(OperatorContext& c) {
  c.require_inputs(2, 2);
  ValueId x = c.in(0);
  const Ints sizes = c.const_ints(1, "the length of the transform");
  const int rank = c.rank(x);
  if (rank < 2 || c.dtype(x) != DType::kF32 || sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1)
    c.malformed(fmt::format("{} lengths for {}", sizes.size(), c.type(x).to_string()), "f32 images, and two lengths");
  x = fitted(c, fitted(c, x, rank - 2, sizes[0]), rank - 1, sizes[1]);
  Ints dims = c.dims(x), shape = dims;
  const int64_t count = sizes[1] / 2 + 1;
  shape.back() = count;
  const int64_t rows = c.num_elements(x) / sizes[1];
  const Waves along = waves(c, sizes[1], count);
  const ValueId flat = c.reshape(x, {rows, sizes[1]});
  ValueId real = c.op("matmul", {flat, along.cosine});
  ValueId imaginary = c.op("neg", {c.op("matmul", {flat, along.sine})});
  if (sizes[0] > 1) {
    const Waves down = waves(c, sizes[0], sizes[0]);
    const Ints images = {rows / sizes[0], sizes[0], count};
    real = c.reshape(real, images);
    imaginary = c.reshape(imaginary, images);
    const auto times = [&](ValueId wave, ValueId v) { return c.matrix_product(wave, v); };
    const ValueId sum = c.add(times(down.cosine, real), times(down.sine, imaginary));
    imaginary = c.sub(times(down.cosine, imaginary), times(down.sine, real));
    real = sum;
  }
  c.out_complex(0, {c.reshape(real, shape), c.reshape(imaginary, shape)});
}

void import_part(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ComplexValue x = c.complex(0);
  const ValueId part = c.code() == tflite::BuiltinOperator::REAL ? x.real : x.imaginary;
  c.out(0, c.op("reshape", {part}, {{"shape", c.shape(part)}}));
}

void import_size(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ComplexValue x = c.complex(0);
  c.out(0, c.op("sqrt", {c.add(c.mul(x.real, x.real), c.mul(x.imaginary, x.imaginary))}));
}

}  // namespace

std::span<const TfliteOperator> fourier_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {COMPLEX_ABS, import_size}, {IMAG, import_part}, {REAL, import_part}, {RFFT2D, import_rfft2d}};
  return operators;
}

}  // namespace tessera::inline tflite_import
