// Reductions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {

using Ints = std::vector<int64_t>;

namespace {

// Of one dimension or a list of them, under "dim".
Ints reduced_axes(AtenContext& c, ValueId x) { return c.dimensions("dim", c.rank(x)); }

ValueId reduced(AtenContext& c, const std::string& kind, ValueId x, const Ints& axes, bool keepdims) {
  return axes.empty() ? x : c.reduce(kind, x, axes, keepdims);
}

template <const char* kKind>
void as_reduction(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = c.cast(given, c.result_dtype(c.dtype(given)));
  c.out(reduced(c, kKind, x, reduced_axes(c, x), c.truth("keepdim", false)));
}
constexpr char kSum[] = "sum", kProd[] = "prod", kMax[] = "max", kMin[] = "min";

void import_mean(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = c.cast(given, c.result_dtype(c.dtype(given)));
  c.out(c.cast(mean(c, in_wide_float(c, x), reduced_axes(c, x), c.truth("keepdim", false)), c.dtype(x)));
}

// Truths as 0 and 1. Unlike sums, a list of no dimensions is one here.
template <const char* kKind>
void as_quantifier(AtenContext& c) {
  const ValueId x = c.cast(c.cast(c.tensor("self"), DType::kBool), DType::kU8);
  const bool none = c.overload() == "dims" && c.has("dim") && c.integers("dim").empty();
  const ValueId y = none ? x : reduced(c, kKind, x, reduced_axes(c, x), c.truth("keepdim", false));
  c.out(c.cast(y, c.result_dtype(DType::kBool)));
}

void import_count_nonzero(AtenContext& c) {
  const ValueId x = c.cast(c.cast(c.tensor("self"), DType::kBool), DType::kI64);
  c.out(reduced(c, "sum", x, reduced_axes(c, x), false));
}

// max and min: of all elements, of one dimension with the places, or of two operands.
template <const char* kKind>
void as_extremum(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = comparable(c, given);
  if (c.overload() == "other") {
    const DType dtype = c.result_dtype(c.dtype(given)), compared = dtype == DType::kBool ? DType::kU8 : dtype;
    return c.out(c.cast(c.op(kKind, {c.cast(given, compared), c.as("other", compared)}), dtype));
  }
  if (!c.has("dim")) return c.out(c.cast(reduced(c, kKind, x, reduced_axes(c, x), false), c.dtype(given)));
  const bool keepdims = c.truth("keepdim", false);
  if (c.rank(x) == 0) {
    c.out(0, given);
    return c.out(1, c.integer(0));
  }
  const int64_t axis = c.dimension("dim", c.rank(x));
  const ValueId most = c.reduce(kKind, x, {axis}, true);
  const auto result = [&](ValueId v) { return keepdims ? v : without(c, v, axis); };
  c.out(0, c.cast(result(most), c.dtype(given)));
  if (c.wants(1)) c.out(1, result(place_of_extremum(c, x, most, axis)));
}

template <const char* kKind>
void as_place(AtenContext& c) {
  const ValueId given = comparable(c, c.tensor("self"));
  const bool all = !c.has("dim") || c.rank(given) == 0;
  const ValueId x = all ? c.reshape(given, {c.count(given)}) : given;
  const int64_t axis = all ? 0 : c.dimension("dim", c.rank(x));
  const ValueId place = place_of_extremum(c, x, c.reduce(kKind, x, {axis}, true), axis);
  if (all && c.truth("keepdim", false)) return c.out(c.reshape(place, Shape(static_cast<size_t>(c.rank(given)), 1)));
  c.out(!all && c.truth("keepdim", false) ? place : without(c, place, axis));
}

// ---- spread ----

struct Spread {
  ValueId variance, mean;
  DType dtype;  // of the results
};
// The squares of distances from the mean, summed and divided by the count less the correction.
Spread spread(AtenContext& c) {
  const DType dtype = c.dtype(c.tensor("self"));
  const ValueId x = in_wide_float(c, c.tensor("self"));
  const Ints axes = reduced_axes(c, x);
  const double correction = c.has("correction") ? c.number("correction") : c.truth("unbiased", true) ? 1.0 : 0.0;
  Expr count = 1;
  for (const int64_t axis : axes) count = count * c.shape(x)[static_cast<size_t>(axis)];
  const ValueId centre = mean(c, x, axes);
  const ValueId distance = c.sub(x, centre);
  const ValueId sum = reduced(c, "sum", c.mul(distance, distance), axes, true);
  const ValueId less = c.sub(c.cast(c.integer(normalize_size(count)), c.dtype(x)), c.scalar_like(x, correction));
  const ValueId variance = c.div(sum, c.op("max", {less, c.scalar_like(x, 0)}));
  if (c.truth("keepdim", false)) return {variance, centre, dtype};
  Shape sizes;
  for (int d = 0; d < c.rank(x); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) sizes.push_back(c.shape(x)[static_cast<size_t>(d)]);
  return {c.reshape(variance, sizes), c.reshape(centre, sizes), dtype};
}
void import_var(AtenContext& c) {
  const Spread s = spread(c);
  c.out(c.cast(s.variance, s.dtype));
}
void import_std(AtenContext& c) {
  const Spread s = spread(c);
  c.out(c.cast(c.op("sqrt", {s.variance}), s.dtype));
}
void import_var_mean(AtenContext& c) {
  const Spread s = spread(c);
  c.out(0, c.cast(s.variance, s.dtype));
  c.out(1, c.cast(s.mean, s.dtype));
}
void import_std_mean(AtenContext& c) {
  const Spread s = spread(c);
  c.out(0, c.cast(c.op("sqrt", {s.variance}), s.dtype));
  c.out(1, c.cast(s.mean, s.dtype));
}

void import_logsumexp(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const DType dtype = c.result_dtype(c.dtype(given));
  const ValueId x = in_wide_float(c, c.cast(given, dtype));
  const Ints axes = reduced_axes(c, x);
  const bool keepdims = c.truth("keepdim", false);
  const ValueId most = reduced(c, "max", x, axes, true);
  const ValueId infinite = c.op("is_inf", {most});
  const ValueId moved = c.op("select", {infinite, c.scalar_like(x, 0), most});
  const ValueId sum = reduced(c, "sum", c.op("exp", {c.sub(x, moved)}), axes, true);
  const ValueId y = c.cast(c.add(c.op("log", {sum}), moved), dtype);
  if (keepdims) return c.out(y);
  Shape sizes;
  for (int d = 0; d < c.rank(x); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) sizes.push_back(c.shape(x)[static_cast<size_t>(d)]);
  c.out(c.reshape(y, sizes));
}

// (sum |x|^p)^(1/p), and its limits.
ValueId vector_norm(AtenContext& c, ValueId x, double p, const Ints& axes, bool keepdims) {
  const ValueId magnitude = c.op("abs", {x});
  // Of zeros the norm is zero, and so is its gradient.
  const auto root = [&](ValueId sum, const auto& of) {
    if (p < 0) return of(sum);
    const ValueId zero = c.scalar_like(x, 0);
    return c.op("select", {c.op("eq", {sum, zero}), zero, of(sum)});
  };
  const auto norm = [&]() -> ValueId {
    if (std::isinf(p)) return reduced(c, p > 0 ? "max" : "min", magnitude, axes, keepdims);
    if (p == 2)
      return root(reduced(c, "sum", c.mul(x, x), axes, keepdims), [&](ValueId v) { return c.op("sqrt", {v}); });
    if (p == 1) return reduced(c, "sum", magnitude, axes, keepdims);
    if (p == 0) {
      const ValueId counts = c.cast(c.op("ne", {x, c.scalar_like(x, 0)}), c.dtype(x));
      return reduced(c, "sum", counts, axes, keepdims);
    }
    const ValueId sum = reduced(c, "sum", c.op("pow", {magnitude, c.scalar_like(x, p)}), axes, keepdims);
    return root(sum, [&](ValueId v) { return c.op("pow", {v, c.scalar_like(x, 1 / p)}); });
  };
  return norm();
}

void import_vector_norm(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const DType dtype = c.result_dtype(c.dtype(given));
  const ValueId x = in_wide_float(c, c.cast(given, dtype));
  const char* name = c.argument("ord") ? "ord" : "p";
  c.out(c.cast(vector_norm(c, x, c.number(name, 2), reduced_axes(c, x), c.truth("keepdim", false)), dtype));
}

// Between all rows of two matrices.
void import_cdist(AtenContext& c) {
  const ValueId a = c.tensor("x1"), b = c.tensor("x2");
  Shape rows = c.shape(a), columns = c.shape(b);
  rows.insert(rows.end() - 1, 1);
  columns.insert(columns.end() - 2, 1);
  const ValueId difference = c.sub(c.reshape(a, rows), c.reshape(b, columns));
  c.out(vector_norm(c, difference, c.number("p", 2), {c.rank(difference) - 1}, false));
}

// Between the rows of one matrix, each pair once.
void import_pdist(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const int64_t rows = c.dims(x)[0], pairs = rows * (rows - 1) / 2;
  if (rows < 2) return c.out(c.zeros(c.dtype(x), {0}));
  Tensor first(DType::kI64, {pairs}), second(DType::kI64, {pairs});
  int64_t n = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i + 1; j < rows; ++j, ++n) {
      first.set_int(n, i);
      second.set_int(n, j);
    }
  const auto taken = [&](Tensor places) {
    return c.op("gather", {x, c.constant_value(std::move(places))}, {{"axis", int64_t{0}}});
  };
  const ValueId difference = c.sub(taken(std::move(first)), taken(std::move(second)));
  c.out(vector_norm(c, difference, c.number("p", 2), {1}, false));
}

}  // namespace

std::span<const AtenOperator> reduction_operators() {
  static constexpr AtenOperator table[] = {
      {"_cdist_forward", import_cdist},
      {"_pdist_forward", import_pdist},
      {"all", as_quantifier<kMin>},
      {"amax", as_reduction<kMax>},
      {"amin", as_reduction<kMin>},
      {"any", as_quantifier<kMax>},
      {"argmax", as_place<kMax>},
      {"argmin", as_place<kMin>},
      {"count_nonzero", import_count_nonzero},
      {"linalg_vector_norm", import_vector_norm},
      {"logsumexp", import_logsumexp},
      {"max", as_extremum<kMax>},
      {"mean", import_mean},
      {"min", as_extremum<kMin>},
      {"norm", import_vector_norm},
      {"prod", as_reduction<kProd>},
      {"std", import_std},
      {"std_mean", import_std_mean},
      {"sum", as_reduction<kSum>},
      {"var", import_var},
      {"var_mean", import_var_mean},
  };
  return table;
}

}  // namespace tessera::inline aten
