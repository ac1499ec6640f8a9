// DFT, STFT, MelWeightMatrix. A transform of n values is n log n for lengths with small factors: the length is split
// into factors, each of which is a product with a small matrix; a long prime factor becomes a convolution.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"
#include "import/onnx/read/dtypes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kWhole = 64;                  // up to this length a transform is one matrix
constexpr int64_t kLargestRadix = 32;           // factors are gathered up to this size
constexpr int64_t kLargestPrime = 400;          // longer primes become convolutions
constexpr int64_t kLongestTransform = 1 << 24;  // of a transform
constexpr int64_t kMostFrames = 1 << 26;        // elements of all frames together

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

// An extent as a number, where others of the value may be expressions.
int64_t fixed_extent(NodeContext& c, ValueId x, size_t axis) {
  const auto known = as_int(c.shape(x)[axis]);
  return known ? *known : c.dims(x)[axis];
}

// Values are [batch, parts, n], where the parts are the real one, or the real and the imaginary one. sign is -1 for the
// transform and +1 for its inverse, which is not scaled.
struct Transform {
  NodeContext& c;
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

void check_length(NodeContext& c, int64_t n) {
  if (n < 1 || n > kLongestTransform)
    c.malformed(fmt::format("a transform of {} values", n), fmt::format("1 to {}", kLongestTransform));
}

struct DftPlan {
  int64_t length;  // of the transform
  bool inverse, onesided;

  int64_t read() const { return inverse && onesided ? length / 2 + 1 : length; }
  int64_t kept() const { return !inverse && onesided ? length / 2 + 1 : length; }

  // x [..., 1 or 2] along `axis`.
  ValueId run(NodeContext& c, ValueId x, size_t axis) const {
    check_length(c, length);
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
    const DType dtype = computing_type(c.dtype(x));
    ValueId y = c.reshape(c.transpose(c.cast(x, dtype), perm), {batch, dims.back(), dims[axis]});
    if (dims[axis] < read())
      y = c.op("pad", {y, c.scalar(dtype, 0)},
               {{"low", Ints{0, 0, 0}}, {"high", Ints{0, 0, read() - dims[axis]}}, {"mode", std::string("constant")}});
    else y = c.slice(y, {0, 0, 0}, {batch, dims.back(), read()}, {1, 1, 1});
    if (inverse && onesided) y = with_mirror(c, y);
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

 private:
  // The other half of a spectrum whose signal is real: the conjugates, from the end.
  ValueId with_mirror(NodeContext& c, ValueId x) const {
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
};

void import_dft(NodeContext& c) {
  const bool axis_is_input = c.version() >= 20;
  c.require_inputs(1, axis_is_input ? 3 : 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int rank = c.rank(x);
  if (rank < 2 || dims.back() < 1 || dims.back() > 2)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "[..., 1] or [..., 2]");
  const bool inverse = c.attrs.get_int("inverse", 0) != 0, onesided = c.attrs.get_int("onesided", 0) != 0;
  std::optional<int64_t> axis, length;
  if (!axis_is_input) axis = c.attrs.get_int("axis", 1);
  else if (!c.has(2)) axis = -2;
  else if (const auto known = c.constant(c.in(2)); known && known->num_elements() == 1) axis = known->get_int(0);
  if (c.has(1)) {
    length = c.const_int(1, "dft_length");
    check_length(c, *length);
  }
  const auto plan_of = [&](size_t d) {
    return DftPlan{length ? *length : inverse && onesided ? 2 * (dims[d] - 1) : dims[d], inverse, onesided};
  };
  const auto usable = [&](int64_t raw) {
    const int at = c.axis(raw, rank);
    if (at == rank - 1) c.malformed(fmt::format("axis is {} for a tensor of rank {}", raw, rank), "not the last one");
    return static_cast<size_t>(at);
  };
  if (axis) {
    const size_t at = usable(*axis);
    return c.out(0, plan_of(at).run(c, x, at));
  }
  // An axis that only the run knows: of the results that have the declared shape, the one that it asks for.
  const auto declared = c.declared_dims(0);
  if (!declared || declared->size() != dims.size()) c.const_int(2, "axis");
  const ValueId raw = c.reshape(c.cast(c.in(2), DType::kI64), {});
  std::optional<ValueId> result;
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    const DftPlan plan = plan_of(d);
    Ints shape = dims;
    shape.back() = inverse && onesided ? 1 : 2;
    shape[d] = plan.kept();
    if (shape != *declared || plan.length < 1) continue;
    const ValueId y = plan.run(c, x, d);
    const auto is = [&](int64_t value) { return c.op("eq", {raw, c.integer(value)}); };
    const auto at = static_cast<int64_t>(d);
    result = result ? c.op("select", {c.op("logical_or", {is(at), is(at - rank)}), y, *result}) : y;
  }
  if (!result)
    c.malformed(fmt::format("a result that is declared as [{}]", fmt::join(*declared, ",")),
                "the shape that the transform has along one of the axes");
  c.out(0, *result);
}

// The frame length, which a run knows, of which a one-sided transform has the declared number of values: of the two
// there can be the one that gives the declared number of frames, too.
int64_t declared_frame(NodeContext& c, int64_t extent, bool onesided) {
  const Ints declared = c.require_declared(3, "frame_length");
  const auto step = c.constant(c.in(1));
  Ints fitting;
  if (declared.size() == 4)
    for (const int64_t length : onesided ? Ints{2 * declared[2] - 2, 2 * declared[2] - 1} : Ints{declared[2]}) {
      if (length < 1 || length > extent) continue;
      if (step && (step->num_elements() != 1 || step->get_int(0) < 1 ||
                   (extent - length) / step->get_int(0) + 1 != declared[1]))
        continue;
      fitting.push_back(length);
    }
  if (fitting.size() != 1)
    c.unsupported(
        fmt::format("{} is known only when the model runs, and {} frame lengths give the declared shape of "
                    "'{}'; a window, whose length it is, would tell",
                    c.input_name(3, "frame_length"), fitting.size(), c.output_name(0)));
  return fitting[0];
}

void import_stft(NodeContext& c) {
  c.require_inputs(2, 4);
  const ValueId signal = c.in(0);
  const Shape dims = c.shape(signal);
  const bool onesided = c.attrs.get_int("onesided", 1) != 0;
  const int64_t parts = dims.size() == 3 ? fixed_extent(c, signal, 2) : 0;
  if (dims.size() != 3 || parts < 1 || parts > 2 || (onesided && parts == 2))
    c.malformed(fmt::format("a signal of type {} with onesided = {}", c.type(signal).to_string(), onesided ? 1 : 0),
                "[batch, length, 1], or with 2 parts when both sides are asked for");
  if (c.has(2) && c.rank(c.in(2)) != 1)
    c.malformed(fmt::format("a window of type {}", c.type(c.in(2)).to_string()), "a list");
  int64_t length = c.has(2) ? c.dims(c.in(2))[0] : c.has(3) ? 0 : fixed_extent(c, signal, 1);
  if (c.is_runtime(3)) {
    // The window's, or the one that gives the declared number of values.
    if (!c.has(2)) length = declared_frame(c, fixed_extent(c, signal, 1), onesided);
    require_ints(c, 3, "frame_length", {length});
  } else if (c.has(3)) {
    length = c.const_int(3, "frame_length");
  }
  check_length(c, length);
  if (c.has(2) && c.dims(c.in(2)) != Ints{length})
    c.malformed(fmt::format("a window of type {}", c.type(c.in(2)).to_string()), fmt::format("[{}]", length));
  if (!size_at_most(length, dims[1]))
    c.malformed(fmt::format("frames of {} values of {}", length, to_string(dims[1])), "shorter frames");
  // Where each value of each frame stands in the signal; a step that only the run knows gives as many frames as the
  // result is declared to have.
  Expr frames = 0;
  const auto step = c.constant(c.in(1));
  const auto declared = c.declared_dims(0);
  if (step || !declared || declared->size() != 4) {
    const int64_t known = c.const_int(1, "frame_step");
    if (known < 1) c.malformed(fmt::format("frame_step = {}", known), "1 or more");
    frames = normalize_size(floordiv(dims[1] - Expr(length), known) + Expr(1));
  } else {
    frames = declared->at(1);
  }
  if (!size_at_most(1, frames) || !size_at_most(frames, kMostFrames / length))
    c.unsupported(fmt::format("{} frames of {} values", to_string(frames), length));
  const ValueId starts = c.mul(c.iota({frames, 1}, 0), c.reshape(c.cast(c.in(1), DType::kI64), {}));
  const ValueId places = c.add(starts, c.iota({1, length}, 1));
  const DType dtype = computing_type(c.dtype(signal));
  ValueId x = c.op("gather", {c.transpose(c.cast(signal, dtype), {0, 2, 1}), places}, {{"axis", int64_t{2}}});
  if (c.has(2)) x = c.mul(x, c.cast(c.in(2), dtype));
  x = c.reshape(c.transpose(x, {0, 2, 1, 3}), {dims[0] * frames, parts, length});
  const int64_t kept = onesided ? length / 2 + 1 : length;
  const ValueId y = c.transpose(Transform{c, dtype, -1}.run(x, kept), {0, 2, 1});
  c.out(0, c.cast(c.reshape(y, {dims[0], frames, kept, 2}), c.dtype(signal)));
}

// Triangles between neighbouring centres, which are equally spaced in mels. Computed in f64 from operands that need
// not be known; then the result's declared shape says how many bins there are.
void import_mel_weight_matrix(NodeContext& c) {
  c.require_inputs(5, 5);
  const auto to = c.attrs.get_int("output_datatype", 1);
  const auto dtype = dtype_of_onnx(to);
  if (!dtype || *dtype == DType::kString) c.unsupported(fmt::format("output_datatype = {}", to));
  int64_t bins = 0, lines = 0;
  const auto declared = c.declared_dims(0);
  if ((!c.constant(c.in(0)) || !c.constant(c.in(1))) && declared && declared->size() == 2) {
    lines = declared->at(0);
    bins = declared->at(1);
  } else {
    bins = c.const_int(0, "num_mel_bins");
    lines = c.const_int(1, "dft_length") / 2 + 1;
  }
  if (bins < 1 || lines < 1 || bins > (1 << 20) || lines > (1 << 20))
    c.malformed(fmt::format("{} mel bins of {} lines", bins, lines), "1 to 2^20");
  const auto operand = [&](int i) { return c.cast(c.reshape(c.in(i), {}), DType::kF64); };
  const auto number = [&](double value) { return c.scalar(DType::kF64, value); };
  const double scale = 2595 / std::log(10);
  const auto mel = [&](ValueId hertz) {
    return c.mul(c.op("log", {c.add(c.div(hertz, number(700)), number(1))}), number(scale));
  };
  const ValueId low = mel(operand(3)), high = mel(operand(4));
  const ValueId step = c.div(c.sub(high, low), number(static_cast<double>(bins + 2)));
  const ValueId mels = c.add(c.mul(c.iota({bins + 2}, 0, DType::kF64), step), low);
  const ValueId hertz = c.mul(c.sub(c.op("exp", {c.div(mels, number(scale))}), number(1)), number(700));
  const ValueId edges = c.op("floor", {c.div(c.mul(hertz, c.add(operand(1), number(1))), operand(2))});
  const auto edge = [&](int64_t i) { return c.slice(edges, {i}, {bins}, {1}); };
  const ValueId left = edge(0), centre = edge(1), right = edge(2), line = c.iota({lines, 1}, 0, DType::kF64);
  const auto both = [&](ValueId a, ValueId b) { return c.op("logical_and", {a, b}); };
  const ValueId width = c.sub(centre, left), right_width = c.sub(right, centre);
  const ValueId zero = number(0);
  const ValueId rising = c.op("select", {both(c.op("ge", {line, left}), c.op("le", {line, centre})),
                                         c.div(c.sub(line, left), c.op("max", {width, number(1)})), zero});
  const ValueId peak = c.op("select", {c.op("eq", {line, centre}), number(1), zero});
  const ValueId up = c.op("select", {c.op("eq", {width, zero}), peak, rising});
  const ValueId falling =
      both(c.op("gt", {right_width, zero}), both(c.op("ge", {line, centre}), c.op("lt", {line, right})));
  const ValueId down = c.div(c.sub(right, line), c.op("max", {right_width, number(1)}));
  c.out(0, c.cast(c.op("select", {falling, down, up}), *dtype));
}

}  // namespace

OperatorFamily fourier_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"DFT", 17, import_dft},
      OperatorImporter{"MelWeightMatrix", 17, import_mel_weight_matrix},
      OperatorImporter{"STFT", 17, import_stft},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
