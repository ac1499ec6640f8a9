#include "import/common/fourier.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

namespace tessera::inline import_common {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kWhole = 64;          // up to this length a transform is one matrix
constexpr int64_t kLargestRadix = 32;   // factors are gathered up to this size
constexpr int64_t kLargestPrime = 400;  // longer primes become convolutions

struct Complex {
  double re, im;
};

// exp(2 pi i k / n), exact at the multiples of a quarter turn.
Complex root_of_unity(int64_t k, int64_t n) {
  k = ((k % n) + n) % n;
  if (4 * k % n == 0) {
    static constexpr Complex kQuarters[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    return kQuarters[4 * k / n];
  }
  const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

// The largest factor of n up to kLargestRadix, or its smallest prime factor when that is larger.
int64_t radix_of(int64_t n) {
  for (int64_t r = kLargestRadix; r > 1; --r)
    if (n % r == 0) return r;
  for (int64_t p = kLargestRadix + 1; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

// Values are [batch, parts, n], where the parts are the real one, or the real and the imaginary one. sign is -1 for the
// transform and +1 for its inverse, which is not scaled.
struct Transform {
  Emitter& c;
  DType dtype;
  int sign;

  ValueId filled(const Ints& dims, const std::function<double(int64_t)>& value) {
    Tensor tensor(dtype, dims);
    const int64_t count = tensor.num_elements();
    for (int64_t i = 0; i < count; ++i) tensor.set_double(i, value(i));
    return c.constant_value(std::move(tensor));
  }
  // x [batch, 2, n] times n complex constants, by element.
  ValueId times(ValueId x, int64_t n, const std::function<Complex(int64_t)>& factor) {
    const Expr batch = c.shape(x)[0];
    const ValueId re = filled({1, 1, n}, [&](int64_t i) { return factor(i).re; });
    const ValueId im = filled({1, 2, n}, [&](int64_t i) { return i < n ? -factor(i).im : factor(i - n).im; });
    const auto part = [&](int64_t i) { return c.slice(x, {0, i, 0}, {batch, 1, n}, {1, 1, 1}); };
    const ValueId swapped = c.op("concat", {part(1), part(0)}, {{"axis", int64_t{1}}});
    return c.add(c.mul(x, re), c.mul(swapped, im));
  }
  // The matrix of a transform of length n from `parts` parts to the first `kept` values: [parts * n, 2 * kept].
  ValueId matrix(int64_t n, int64_t parts, int64_t kept) {
    return filled({parts * n, 2 * kept}, [&](int64_t i) {
      const int64_t row = i / (2 * kept), column = i % (2 * kept);
      const Complex w = root_of_unity(sign * (row % n) * (column % kept), n);
      const bool from_im = row >= n, to_im = column >= kept;
      return from_im == to_im ? w.re : to_im ? w.im : -w.im;
    });
  }

  // The first `kept` values of the transform: [batch, 2, kept].
  ValueId run(ValueId x, int64_t kept) {
    const Expr batch = c.shape(x)[0];
    const int64_t parts = fixed_extent(c, x, 1), n = fixed_extent(c, x, 2);
    const int64_t radix = radix_of(n);
    if (n <= kWhole * (parts == 1 ? 2 : 1) || (radix == n && n <= kLargestPrime)) {
      const ValueId product = c.op("matmul", {c.reshape(x, {batch, parts * n}), matrix(n, parts, kept)});
      return c.reshape(product, {batch, 2, kept});
    }
    if (radix > kLargestPrime) return first(convolved(both_parts(x)), kept);
    // Place j = j1 * rest + j2 and value k = k1 + radix * k2: transforms over j1, factors that turn by j2 * k1,
    // transforms over j2.
    const int64_t rest = n / radix;
    ValueId y = c.reshape(x, {batch, parts * radix, rest});
    y = c.op("matmul", {c.transpose(matrix(radix, parts, radix), {1, 0}), y});  // [batch, 2 * radix, rest]
    y = times(c.reshape(y, {batch, 2, n}), n,
              [&](int64_t i) { return root_of_unity(sign * (i / rest) * (i % rest), n); });
    y = c.transpose(c.reshape(y, {batch, 2, radix, rest}), {0, 2, 1, 3});
    const int64_t kept_rest = (kept + radix - 1) / radix;
    y = run(c.reshape(y, {batch * Expr(radix), 2, rest}), kept_rest);
    y = c.transpose(c.reshape(y, {batch, radix, 2, kept_rest}), {0, 2, 3, 1});
    return first(c.reshape(y, {batch, 2, kept_rest * radix}), kept);
  }

 private:
  ValueId first(ValueId x, int64_t kept) {
    const Shape dims = c.shape(x);
    return c.slice(x, {0, 0, 0}, {dims[0], dims[1], kept}, {1, 1, 1});
  }
  ValueId both_parts(ValueId x) {
    if (fixed_extent(c, x, 1) == 2) return x;
    return c.op("pad", {x, c.scalar(dtype, 0)},
                {{"low", Ints{0, 0, 0}}, {"high", Ints{0, 1, 0}}, {"mode", std::string("constant")}});
  }
  // j k = (j^2 + k^2 - (k - j)^2) / 2 makes a transform of any length a convolution with turns by squares, which is a
  // product between two transforms of a length that is a power of two.
  ValueId convolved(ValueId x) {
    const int64_t n = fixed_extent(c, x, 2);
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    const auto chirp = [&](int64_t j) { return root_of_unity(sign * (j * j % (2 * n)), 2 * n); };
    ValueId y = times(x, n, chirp);
    y = c.op("pad", {y, c.scalar(dtype, 0)},
             {{"low", Ints{0, 0, 0}}, {"high", Ints{0, 0, m - n}}, {"mode", std::string("constant")}});
    // The transform of the turns, computed here in double.
    std::vector<Complex> kernel(static_cast<size_t>(m), {0, 0});
    for (int64_t j = 0; j < n; ++j) {
      const Complex w = chirp(j);
      kernel[static_cast<size_t>(j)] = kernel[static_cast<size_t>((m - j) % m)] = {w.re, -w.im};
    }
    fft(kernel);
    y = Transform{c, dtype, -1}.run(y, m);
    y = times(y, m, [&](int64_t k) {
      const Complex w = kernel[static_cast<size_t>(k)];
      return Complex{w.re / static_cast<double>(m), w.im / static_cast<double>(m)};
    });
    return times(first(Transform{c, dtype, 1}.run(y, m), n), n, chirp);
  }
  // In place; the length is a power of two.
  static void fft(std::vector<Complex>& x) {
    const auto n = static_cast<int64_t>(x.size());
    for (int64_t i = 1, j = 0; i < n; ++i) {
      int64_t bit = n >> 1;
      for (; j & bit; bit >>= 1) j ^= bit;
      j ^= bit;
      if (i < j) std::swap(x[static_cast<size_t>(i)], x[static_cast<size_t>(j)]);
    }
    for (int64_t length = 2; length <= n; length *= 2)
      for (int64_t start = 0; start < n; start += length)
        for (int64_t k = 0; k < length / 2; ++k) {
          const Complex w = root_of_unity(-k, length);
          Complex& a = x[static_cast<size_t>(start + k)];
          Complex& b = x[static_cast<size_t>(start + k + length / 2)];
          const Complex t = {b.re * w.re - b.im * w.im, b.re * w.im + b.im * w.re};
          b = {a.re - t.re, a.im - t.im};
          a = {a.re + t.re, a.im + t.im};
        }
  }
};

// The other half of a spectrum whose signal is real: the conjugates, from the end.
ValueId with_mirror(Emitter& c, ValueId x, int64_t length) {
  const Ints dims = c.dims(x);
  const int64_t more = length - dims[2];
  if (more == 0) return x;
  ValueId mirror = c.slice(x, {0, 0, more}, {dims[0], dims[1], more}, {1, 1, -1});
  if (dims[1] == 2) {
    Tensor signs(c.dtype(x), {1, 2, 1});
    signs.set_double(0, 1);
    signs.set_double(1, -1);
    mirror = c.mul(mirror, c.constant_value(std::move(signs)));
  }
  return c.op("concat", {x, mirror}, {{"axis", int64_t{2}}});
}

}  // namespace

int64_t fixed_extent(Emitter& c, ValueId x, size_t axis) {
  const auto known = as_int(c.shape(x)[axis]);
  return known ? *known : c.dims(x)[axis];
}

ValueId FourierTransform::along(Emitter& c, ValueId x, size_t axis) const {
  if (length < 1 || length > kLongestTransform) c.unsupported(fmt::format("a transform of {} values", length));
  // [batch, parts, values], of the values those that are read.
  Ints perm, outer;
  const Ints dims = c.dims(x);
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    if (d == axis) continue;
    perm.push_back(static_cast<int64_t>(d));
    outer.push_back(dims[d]);
  }
  perm.push_back(static_cast<int64_t>(dims.size()) - 1);
  perm.push_back(static_cast<int64_t>(axis));
  const int64_t batch = std::accumulate(outer.begin(), outer.end(), int64_t{1}, std::multiplies<>());
  const DType dtype = c.dtype(x) == DType::kF64 ? DType::kF64 : DType::kF32;
  ValueId y = c.reshape(c.transpose(c.cast(x, dtype), perm), {batch, dims.back(), dims[axis]});
  if (dims[axis] < read())
    y = c.op("pad", {y, c.scalar(dtype, 0)},
             {{"low", Ints{0, 0, 0}}, {"high", Ints{0, 0, read() - dims[axis]}}, {"mode", std::string("constant")}});
  else y = c.slice(y, {0, 0, 0}, {batch, dims.back(), read()}, {1, 1, 1});
  if (inverse && onesided) y = with_mirror(c, y, length);
  y = Transform{c, dtype, inverse ? 1 : -1}.run(y, kept());
  if (inverse) y = c.mul(y, c.scalar(dtype, 1 / static_cast<double>(length)));
  if (inverse && onesided) y = c.slice(y, {0, 0, 0}, {batch, 1, kept()}, {1, 1, 1});
  // Back to the order of the operand.
  Ints split = outer;
  split.push_back(c.dims(y)[1]);
  split.push_back(kept());
  Ints back(perm.size());
  for (size_t d = 0; d < perm.size(); ++d) back[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
  return c.cast(c.transpose(c.reshape(y, split), back), c.dtype(x));
}

ValueId fourier_transform(Emitter& c, ValueId x, int64_t kept) { return Transform{c, c.dtype(x), -1}.run(x, kept); }

}  // namespace tessera::inline import_common
