// Operators of complex numbers, which are pairs of real values.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "import/common/fourier.h"
#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

// Operands with the chosen part of each complex one.
std::vector<ValueId> operands_of(const HloContext& c, bool imaginary) {
  std::vector<ValueId> result = c.operands();
  for (size_t i = 0; i < result.size(); ++i)
    if (is_complex(result[i])) result[i] = imaginary ? c.parts(i).im : c.parts(i).re;
  return result;
}

// Operators that give for real and imaginary parts what they give for real numbers: moves, sums.
void by_parts(HloContext& c) {
  for (const ValueId operand : c.operands())
    if (!is_complex(operand) && is_float(c.dtype(operand)))
      c.malformed(fmt::format("an operand of type {} beside complex ones", c.type(operand).to_string()), "one type");
  const std::vector<ValueId> re = c.as_real(operands_of(c, false)), im = c.as_real(operands_of(c, true));
  for (size_t i = 0; i < c.num_results(); ++i) c.out(i, c.walk().complex_value({re[i], im[i]}));
}

// Those that say nothing of values, and hand them on.
template <const char* kName>
void as_whole(HloContext& c) {
  find_hlo_operator(kName)->handler(c);
}
constexpr char kCall[] = "func.call", kBarrier[] = "stablehlo.optimization_barrier";

ComplexParts product_of(HloContext& c, const ComplexParts& a, const ComplexParts& b) {
  return {c.sub(c.mul(a.re, b.re), c.mul(a.im, b.im)), c.add(c.mul(a.re, b.im), c.mul(a.im, b.re))};
}

// Products one after another: of scales, which are few numbers.
void reduce_by_products(HloContext& c) {
  constexpr int64_t kMost = 64;
  if (c.num_operands() != 2) c.unsupported("products of several complex operands");
  ComplexParts x = c.parts(0), product = c.parts(1);
  Ints axes = c.axes(c.integers("dimensions"), c.rank(x.re));
  std::sort(axes.rbegin(), axes.rend());
  for (const int64_t axis : axes) {
    const auto at = static_cast<size_t>(axis);
    const int64_t extent = c.dims(x.re)[at];
    if (extent > kMost) c.unsupported(fmt::format("a product of {} complex numbers", extent));
    Shape sizes = c.shape(x.re), rest = sizes;
    sizes[at] = 1;
    rest.erase(rest.begin() + axis);
    const auto element = [&](ValueId part, int64_t i) {
      Shape starts(sizes.size(), 0);
      starts[at] = i;
      return c.reshape(c.slice(part, starts, sizes, Ints(sizes.size(), 1)), rest);
    };
    for (int64_t i = 0; i < extent; ++i) product = product_of(c, product, {element(x.re, i), element(x.im, i)});
    if (extent == 0) product = {c.broadcast(product.re, rest), c.broadcast(product.im, rest)};
    x = product;
    product = {c.scalar_like(x.re, 1), c.scalar_like(x.re, 0)};
  }
  c.out(x);
}

void import_reduce(HloContext& c) {
  const std::string combiner = HloContext::combiner_of(c.region(0));
  if (combiner == "add") return by_parts(c);
  if (combiner != "mul") c.unsupported("a reduction of complex numbers that is neither sum nor product");
  reduce_by_products(c);
}

// Linear in each of two operands: products of numbers and of matrices, convolutions.
void import_product(HloContext& c) {
  const ComplexParts a = c.parts(0), b = c.parts(1);
  const auto product = [&](ValueId x, ValueId y) { return c.as_real({x, y})[0]; };
  c.out(ComplexParts{c.sub(product(a.re, b.re), product(a.im, b.im)), c.add(product(a.re, b.im), product(a.im, b.re))});
}

// By the larger of the divisor's parts first, so that no square is beyond the largest number.
void import_divide(HloContext& c) {
  const ComplexParts a = c.parts(0), b = c.parts(1);
  const ValueId size = c.op("max", {c.op("abs", {b.re}), c.op("abs", {b.im})});
  const ValueId re = c.div(b.re, size), im = c.div(b.im, size);
  const ValueId square = c.mul(c.add(c.mul(re, re), c.mul(im, im)), size);
  c.out(ComplexParts{c.div(c.add(c.mul(a.re, re), c.mul(a.im, im)), square),
                     c.div(c.sub(c.mul(a.im, re), c.mul(a.re, im)), square)});
}

ValueId absolute(HloContext& c, const ComplexParts& x) {
  const ValueId re = c.op("abs", {x.re}), im = c.op("abs", {x.im});
  const ValueId most = c.op("max", {re, im}), least = c.op("min", {re, im});
  const ValueId ratio = c.div(least, most);
  const ValueId length = c.mul(most, c.op("sqrt", {c.add(c.scalar_like(most, 1), c.mul(ratio, ratio))}));
  const ValueId plain =
      c.op("logical_and", {c.op("gt", {most, c.scalar_like(most, 0)}),
                           c.op("lt", {most, c.scalar_like(most, std::numeric_limits<double>::infinity())})});
  return c.op("select", {plain, length, most});
}
void import_abs(HloContext& c) { c.out(absolute(c, c.parts(0))); }

// The root whose real part is not negative. The larger of its parts is a root of a sum, without cancellation; the other
// one follows from their product, half of the imaginary part.
void import_sqrt(HloContext& c) {
  const ComplexParts x = c.parts(0);
  const ValueId zero = c.scalar_like(x.re, 0), half = c.scalar_like(x.re, 0.5);
  const ValueId larger = c.op("sqrt", {c.mul(c.add(absolute(c, x), c.op("abs", {x.re})), half)});
  const ValueId is_zero = c.op("eq", {larger, zero});
  const ValueId smaller = c.op("select", {is_zero, zero, c.div(c.mul(c.op("abs", {x.im}), half), larger)});
  const ValueId right = c.op("ge", {x.re, zero});
  const ValueId im = c.op("select", {right, smaller, larger});
  c.out(ComplexParts{c.op("select", {right, larger, smaller}),
                     c.op("select", {c.op("lt", {x.im, zero}), c.op("neg", {im}), im})});
}

void import_exponential(HloContext& c) {
  const ComplexParts x = c.parts(0);
  const ValueId size = c.op("exp", {x.re});
  c.out(ComplexParts{c.mul(size, c.op("cos", {x.im})), c.mul(size, c.op("sin", {x.im}))});
}

void import_complex(HloContext& c) {
  if (c.num_operands() != 2 || is_complex(c.in(0)) || is_complex(c.in(1)))
    c.malformed("such operands", "two real ones");
  c.out(ComplexParts{c.in(0), c.in(1)});
}
void import_real(HloContext& c) { c.out(c.parts(0).re); }
void import_imag(HloContext& c) { c.out(c.parts(0).im); }

void import_convert(HloContext& c) {
  const auto part = c.result_type().part;
  if (!part) c.unsupported("complex numbers as real ones");
  if (is_complex(c.in(0))) {
    const ComplexParts x = c.parts(0);
    return c.out(ComplexParts{c.cast(x.re, *part), c.cast(x.im, *part)});
  }
  c.out(ComplexParts{c.cast(c.in(0), *part), c.zeros(*part, c.shape(c.in(0)))});
}

void import_constant(HloContext& c) {
  const HloAttr* value = c.attribute("value");
  if (!value || value->kind != HloAttr::Kind::kTensor) c.malformed("no value", "dense<...>");
  if (!value->tensor) c.unsupported(fmt::format("values of type {}", value->type.text));
  const Tensor& pairs = *value->tensor;
  const auto part = [&](int64_t which) {
    Ints dims = pairs.dims();
    dims.pop_back();
    Tensor tensor(pairs.dtype(), dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, pairs.get_double(2 * i + which));
    return c.broadcast(c.constant_value(std::move(tensor)), value->type.dims);
  };
  c.out(ComplexParts{part(0), part(1)});
}

void import_compare(HloContext& c) {
  const ComplexParts a = c.parts(0), b = c.parts(1);
  const std::string direction = c.word("comparison_direction");
  const bool equal = direction == "EQ";
  if (!equal && direction != "NE") c.malformed(fmt::format("comparison_direction = {}", direction), "EQ or NE");
  const char* op = equal ? "eq" : "ne";
  c.out(c.op(equal ? "logical_and" : "logical_or", {c.op(op, {a.re, b.re}), c.op(op, {a.im, b.im})}));
}

// Along the last dimensions, as many as there are lengths; FFT and IFFT of complex numbers, RFFT and IRFFT of or to
// real ones, whose spectrum is its first half in the last dimension.
void import_fft(HloContext& c) {
  const std::string kind = c.word("fft_type");
  const Ints lengths = c.integers("fft_length");
  const bool to_real = kind == "IRFFT", of_real = kind == "RFFT", inverse = to_real || kind == "IFFT";
  if (!inverse && !of_real && kind != "FFT")
    c.malformed(fmt::format("fft_type = {}", kind), "FFT, IFFT, RFFT or IRFFT");
  if (is_complex(c.in(0)) == of_real)
    c.malformed(fmt::format("such an operand of {}", kind), of_real ? "a real one" : "a complex one");
  const ValueId first = of_real ? c.in(0) : c.parts(0).re;
  const auto rank = static_cast<size_t>(c.rank(first));
  if (lengths.empty() || lengths.size() > rank)
    c.malformed(fmt::format("{} lengths for a tensor of rank {}", lengths.size(), rank),
                "one or more, and a dimension for each");
  const auto last = static_cast<int64_t>(rank);
  const auto with_part = [&](ValueId v) {
    Shape dims = c.shape(v);
    dims.push_back(1);
    return c.reshape(v, dims);
  };
  ValueId x = with_part(first);
  if (!of_real) x = c.op("concat", {x, with_part(c.parts(0).im)}, {{"axis", last}});
  const auto along = [&](size_t i, bool onesided) {
    x = FourierTransform{lengths[i], inverse, onesided}.along(c, x, rank - lengths.size() + i);
  };
  if (of_real) along(lengths.size() - 1, true);
  for (size_t i = 0; i < lengths.size() - (of_real || to_real); ++i) along(i, false);
  if (to_real) along(lengths.size() - 1, true);
  const auto part = [&](int64_t which) {
    Shape sizes = c.shape(x);
    Shape starts(rank + 1, 0);
    const Shape dims(sizes.begin(), sizes.end() - 1);
    starts.back() = which;
    sizes.back() = 1;
    return c.reshape(c.slice(x, starts, sizes, Ints(rank + 1, 1)), dims);
  };
  if (to_real) return c.out(part(0));
  c.out(ComplexParts{part(0), part(1)});
}

constexpr HloOperator kOperators[] = {
    {"func.call", as_whole<kCall>},
    {"stablehlo.abs", import_abs},
    {"stablehlo.add", by_parts},
    {"stablehlo.broadcast_in_dim", by_parts},
    {"stablehlo.compare", import_compare},
    {"stablehlo.complex", import_complex},
    {"stablehlo.concatenate", by_parts},
    {"stablehlo.constant", import_constant},
    {"stablehlo.convert", import_convert},
    {"stablehlo.convolution", import_product},
    {"stablehlo.divide", import_divide},
    {"stablehlo.dot_general", import_product},
    {"stablehlo.dynamic_slice", by_parts},
    {"stablehlo.dynamic_update_slice", by_parts},
    {"stablehlo.exponential", import_exponential},
    {"stablehlo.fft", import_fft},
    {"stablehlo.gather", by_parts},
    {"stablehlo.imag", import_imag},
    {"stablehlo.multiply", import_product},
    {"stablehlo.negate", by_parts},
    {"stablehlo.optimization_barrier", as_whole<kBarrier>},
    {"stablehlo.pad", by_parts},
    {"stablehlo.real", import_real},
    {"stablehlo.reduce", import_reduce},
    {"stablehlo.reshape", by_parts},
    {"stablehlo.reverse", by_parts},
    {"stablehlo.select", by_parts},
    {"stablehlo.slice", by_parts},
    {"stablehlo.sqrt", import_sqrt},
    {"stablehlo.subtract", by_parts},
    {"stablehlo.transpose", by_parts},
};

}  // namespace

std::span<const HloOperator> complex_operators() { return kOperators; }

}  // namespace tessera::inline stablehlo
