// Linear algebra of square matrices: their steps, one for each row, are written out. Matrices that have no inverse give
// infinities or NaN, where PyTorch raises an error.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostRows = 32;  // each is a step of its own

// Matrices x [B, m, n], with the other dimensions as one.
class Matrices {
 public:
  Matrices(AtenContext& c, ValueId x, const char* what) : c_(c) {
    const Ints dims = c.dims(x);
    if (dims.size() < 2) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), what);
    batch_.assign(dims.begin(), dims.end() - 2);
    rows_ = dims[dims.size() - 2];
    columns_ = dims.back();
    x_ = c.reshape(x, {size_of_batch(), rows_, columns_});
  }

  ValueId value() const { return x_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t size_of_batch() const {
    return std::accumulate(batch_.begin(), batch_.end(), int64_t{1}, std::multiplies<>());
  }
  // A result [B, ...] with the batch's own dimensions.
  ValueId with_batch(ValueId y) const {
    Ints dims = batch_;
    const Ints own = c_.dims(y);
    dims.insert(dims.end(), own.begin() + 1, own.end());
    return c_.reshape(y, dims);
  }

 private:
  AtenContext& c_;
  ValueId x_ = -1;
  Ints batch_;
  int64_t rows_ = 0, columns_ = 0;
};

// Matrices of up to so many rows, all of them square.
Matrices square(AtenContext& c, ValueId x) {
  Matrices m(c, x, "square matrices");
  if (m.rows() != m.columns()) c.malformed(fmt::format("matrices of {} x {}", m.rows(), m.columns()), "square ones");
  if (m.rows() > kMostRows) c.unsupported(fmt::format("a factorisation of more than {} rows", kMostRows));
  return m;
}

ValueId turned(AtenContext& c, ValueId x) {
  Ints order(static_cast<size_t>(c.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return c.transpose(x, order);
}

ValueId part(AtenContext& c, ValueId x, int64_t axis, int64_t at) {
  Ints starts(static_cast<size_t>(c.rank(x)), 0), sizes = c.dims(x);
  starts[static_cast<size_t>(axis)] = at;
  sizes[static_cast<size_t>(axis)] = 1;
  return c.slice(x, starts, sizes, Ints(starts.size(), 1));
}
ValueId row_of(AtenContext& c, ValueId x, int64_t at) { return part(c, x, 1, at); }
ValueId column_of(AtenContext& c, ValueId x, int64_t at) { return part(c, x, 2, at); }

// Where the number of a row [1, rows, 1], or of a column, compares with another one.
ValueId rows_that(AtenContext& c, const char* comparison, int64_t rows, int64_t number) {
  return c.op(comparison, {c.iota({1, rows, 1}, 1), c.integer(number)});
}
ValueId columns_that(AtenContext& c, const char* comparison, int64_t columns, int64_t number) {
  return c.op(comparison, {c.iota({1, 1, columns}, 2), c.integer(number)});
}

ValueId where(AtenContext& c, ValueId condition, ValueId x) {
  return c.op("select", {condition, x, c.scalar_like(x, 0)});
}

ValueId identity(AtenContext& c, DType dtype, int64_t batch, int64_t n) {
  const ValueId diagonal = c.op("eq", {c.iota({1, n, 1}, 1), c.iota({1, 1, n}, 2)});
  return c.broadcast(c.cast(diagonal, dtype), Ints{batch, n, n});
}

ValueId diagonal_of(AtenContext& c, ValueId x) {
  const Ints dims = c.dims(x);
  const int64_t n = std::min(dims[1], dims[2]);
  Tensor places(DType::kI64, {n});
  for (int64_t i = 0; i < n; ++i) places.set_int(i, i * dims[2] + i);
  return c.op("gather", {c.reshape(x, {dims[0], dims[1] * dims[2]}), c.constant_value(std::move(places))},
              {{"axis", int64_t{1}}});
}

// x with its rows in another order, order [B, m, 1].
ValueId reordered(AtenContext& c, ValueId x, ValueId order) {
  return c.op("gather_elements", {x, c.broadcast(order, c.shape(x))}, {{"axis", int64_t{1}}});
}

// Rows k and `place` [B, 1, 1] changing places, as an order [B, m, 1].
ValueId exchange(AtenContext& c, int64_t rows, int64_t k, ValueId place) {
  const ValueId numbers = c.iota({1, rows, 1}, 1);
  const ValueId other = c.op("select", {c.op("eq", {numbers, place}), c.integer(k), numbers});
  return c.op("select", {rows_that(c, "eq", rows, k), place, other});
}

struct Lu {
  ValueId factors;  // [B, m, n]: below the diagonal the unit lower triangle's, else the upper one's
  ValueId order;    // [B, m, 1]: which rows of the matrix they are of
  ValueId pivots;   // [B, k]: with which row each changed places, from 0
  ValueId sign;     // [B]: of the order
  ValueId info;     // [B]: the number of the first pivot that is 0, from 1; 0 when there is none
};

// Row by row, with the largest element of a column as its pivot.
Lu lu_of(AtenContext& c, const Matrices& given) {
  const int64_t batch = given.size_of_batch(), m = given.rows(), n = given.columns();
  ValueId a = given.value(), order = c.broadcast(c.iota({1, m, 1}, 1), Ints{batch, m, 1});
  const DType dtype = c.dtype(a);
  ValueId sign = c.broadcast(c.scalar(dtype, 1), Ints{batch}), info = c.broadcast(c.integer(0), Ints{batch});
  std::vector<ValueId> pivots;
  const int64_t steps = std::min(m, n);
  for (int64_t k = 0; k < steps; ++k) {
    const ValueId magnitude = c.op("abs", {column_of(c, a, k)});
    const ValueId candidates = c.op("select", {rows_that(c, "ge", m, k), magnitude, c.scalar(dtype, -1)});
    const ValueId is_most = c.op("eq", {candidates, c.reduce("max", candidates, {1}, true)});
    const ValueId first = c.op("select", {is_most, c.iota({1, m, 1}, 1), c.integer(m - 1)});
    const ValueId place = c.op("max", {c.reduce("min", first, {1}, true), c.integer(k)});
    const ValueId swap = exchange(c, m, k, place);
    a = reordered(c, a, swap);
    order = reordered(c, order, swap);
    const ValueId flat = c.reshape(place, {batch});
    sign = c.op("select", {c.op("eq", {flat, c.integer(k)}), sign, c.op("neg", {sign})});
    pivots.push_back(c.reshape(place, {batch, 1}));
    const ValueId row = row_of(c, a, k), pivot = column_of(c, row, k);
    const ValueId is_zero = c.op("eq", {pivot, c.scalar(dtype, 0)});
    const ValueId singular = c.op("logical_and", {c.reshape(is_zero, {batch}), c.op("eq", {info, c.integer(0)})});
    info = c.op("select", {singular, c.integer(k + 1), info});
    const ValueId below = rows_that(c, "gt", m, k);
    const ValueId divisor = c.op("select", {is_zero, c.scalar(dtype, 1), pivot});
    const ValueId factor = where(c, below, c.div(column_of(c, a, k), divisor));
    const ValueId rest = c.sub(a, c.mul(factor, where(c, columns_that(c, "gt", n, k), row)));
    const ValueId is_factor = c.op("logical_and", {below, columns_that(c, "eq", n, k)});
    a = c.op("select", {is_factor, factor, rest});
  }
  const ValueId all = pivots.empty()       ? c.zeros(DType::kI64, Ints{batch, 0})
                      : pivots.size() == 1 ? pivots[0]
                                           : c.op("concat", pivots, {{"axis", int64_t{1}}});
  return {a, order, all, sign, info};
}

// x of T x = b, b [B, n, r], of which nothing is read but one triangle.
ValueId triangle_solved(AtenContext& c, ValueId t, ValueId b, bool upper, bool unit) {
  const int64_t n = c.dims(t)[1];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = upper ? n - 1 - i : i;
    const ValueId column = column_of(c, t, k), own = row_of(c, b, k);
    const ValueId x = unit ? own : c.div(own, row_of(c, column, k));
    const ValueId factor = where(c, rows_that(c, upper ? "lt" : "gt", n, k), column);
    b = c.op("select", {rows_that(c, "eq", n, k), x, c.sub(b, c.mul(factor, x))});
  }
  return b;
}

ValueId lu_solved(AtenContext& c, const Lu& lu, ValueId b) {
  return triangle_solved(c, lu.factors, triangle_solved(c, lu.factors, reordered(c, b, lu.order), false, true), true,
                         false);
}

// Both with the dimensions in front that they are broadcast to.
struct Pair {
  ValueId a, b;
};
Pair with_one_batch(AtenContext& c, ValueId a, ValueId b) {
  const Ints of_a = c.dims(a), of_b = c.dims(b);
  Ints batch(std::max(of_a.size(), of_b.size()) - 2, 1);
  for (const Ints& dims : {of_a, of_b})
    for (size_t d = 0; d + 2 < dims.size(); ++d) {
      int64_t& extent = batch[batch.size() - (dims.size() - 2) + d];
      if (dims[d] != 1) extent = dims[d];
    }
  const auto wide = [&](ValueId x, const Ints& dims) {
    Ints sizes = batch;
    sizes.insert(sizes.end(), dims.end() - 2, dims.end());
    return c.broadcast(x, sizes);
  };
  return {wide(a, of_a), wide(b, of_b)};
}

ValueId as_info(AtenContext& c, const Matrices& of, ValueId info) { return of.with_batch(c.cast(info, DType::kI32)); }
ValueId as_pivots(AtenContext& c, const Matrices& of, ValueId pivots) {
  return of.with_batch(c.cast(c.add(pivots, c.integer(1)), DType::kI32));
}

void import_inv(AtenContext& c) {
  const Matrices a = square(c, c.tensor(c.has("A") ? "A" : "self"));
  const Lu lu = lu_of(c, a);
  c.out(0, a.with_batch(lu_solved(c, lu, identity(c, c.dtype(a.value()), a.size_of_batch(), a.rows()))));
  if (c.num_results() > 1) c.out(1, as_info(c, a, lu.info));
}

// The inverse where the first `ind` dimensions are rows and the others columns.
void import_tensorinv(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const auto rows = static_cast<ptrdiff_t>(c.whole("ind", 2));
  const Ints dims = c.dims(given);
  if (rows < 1 || rows >= std::ssize(dims)) c.malformed(fmt::format("{} dimensions of rows", rows), "some, not all");
  Ints sizes(dims.begin() + rows, dims.end());
  const int64_t n = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  sizes.insert(sizes.end(), dims.begin(), dims.begin() + rows);
  const Matrices a = square(c, c.reshape(given, {n, n}));
  c.out(c.reshape(lu_solved(c, lu_of(c, a), identity(c, c.dtype(given), 1, n)), sizes));
}

// A X = B, or X A = B.
void import_solve(AtenContext& c) {
  const ValueId a = c.tensor("A"), b = c.tensor("B");
  const bool left = c.truth("left", true);
  Ints without_last = c.dims(a);
  without_last.pop_back();
  const bool is_vector = c.rank(b) == 1 || c.dims(b) == without_last;
  ValueId columns = b;
  if (is_vector) {
    Shape sizes = c.shape(b);
    sizes.push_back(1);
    columns = c.reshape(b, sizes);
  }
  const bool other_side = !left && !is_vector;
  const Pair p = with_one_batch(c, other_side ? turned(c, a) : a, other_side ? turned(c, columns) : columns);
  const Matrices m = square(c, p.a), rhs(c, p.b, "matrices");
  const Lu lu = lu_of(c, m);
  ValueId x = rhs.with_batch(lu_solved(c, lu, rhs.value()));
  if (other_side) x = turned(c, x);
  if (is_vector) {
    Shape sizes = c.shape(x);
    sizes.pop_back();
    x = c.reshape(x, sizes);
  }
  c.out(0, x);
  if (c.num_results() == 2) return c.out(1, as_info(c, m, lu.info));
  if (c.num_results() < 4) return;
  c.out(1, m.with_batch(lu.factors));
  c.out(2, as_pivots(c, m, lu.pivots));
  c.out(3, as_info(c, m, lu.info));
}

void import_det(AtenContext& c) {
  const Matrices a = square(c, c.tensor(c.has("A") ? "A" : "self"));
  const Lu lu = lu_of(c, a);
  const ValueId product = c.reduce("prod", diagonal_of(c, lu.factors), {1}, false);
  c.out(0, a.with_batch(c.mul(lu.sign, product)));
  if (c.num_results() < 3) return;
  c.out(1, a.with_batch(lu.factors));
  c.out(2, as_pivots(c, a, lu.pivots));
}

void import_slogdet(AtenContext& c) {
  const Matrices a = square(c, c.tensor(c.has("A") ? "A" : "self"));
  const Lu lu = lu_of(c, a);
  const ValueId diagonal = diagonal_of(c, lu.factors);
  c.out(0, a.with_batch(c.mul(lu.sign, c.reduce("prod", c.op("sign", {diagonal}), {1}, false))));
  c.out(1, a.with_batch(c.reduce("sum", c.op("log", {c.op("abs", {diagonal})}), {1}, false)));
  if (c.num_results() < 4) return;
  c.out(2, a.with_batch(lu.factors));
  c.out(3, as_pivots(c, a, lu.pivots));
}

// The logarithm of a positive determinant.
void import_logdet(AtenContext& c) {
  const Matrices a = square(c, c.tensor("self"));
  const Lu lu = lu_of(c, a);
  const ValueId product = c.reduce("prod", diagonal_of(c, lu.factors), {1}, false);
  const ValueId diagonal = diagonal_of(c, lu.factors);
  const ValueId logarithm = c.reduce("sum", c.op("log", {c.op("abs", {diagonal})}), {1}, false);
  const ValueId sign = c.mul(lu.sign, c.reduce("prod", c.op("sign", {diagonal}), {1}, false));
  const ValueId is_negative = c.op("lt", {sign, c.scalar_like(product, 0)});
  c.out(a.with_batch(
      c.op("select", {is_negative, c.scalar_like(product, std::numeric_limits<double>::quiet_NaN()), logarithm})));
}

Matrices any_matrices(AtenContext& c, const char* name) {
  Matrices a(c, c.tensor(name), "matrices");
  if (std::min(a.rows(), a.columns()) > kMostRows)
    c.unsupported(fmt::format("a factorisation of more than {} rows", kMostRows));
  if (!c.truth("pivot", true)) c.unsupported("a factorisation without pivots");
  return a;
}

void import_lu_factor(AtenContext& c) {
  const Matrices a = any_matrices(c, "A");
  const Lu lu = lu_of(c, a);
  c.out(0, a.with_batch(lu.factors));
  c.out(1, as_pivots(c, a, lu.pivots));
  if (c.num_results() > 2) c.out(2, as_info(c, a, lu.info));
}

// P, L and U: the matrix is P L U.
void unpack(AtenContext& c, const Matrices& of, ValueId factors, ValueId order, bool data, bool permutation) {
  const int64_t m = of.rows(), n = of.columns(), k = std::min(m, n), batch = of.size_of_batch();
  const DType dtype = c.dtype(factors);
  if (permutation) {
    // Column i has its one in the row that stands there now.
    const ValueId is_one = c.op("eq", {c.iota({1, m, 1}, 1), c.reshape(order, {batch, 1, m})});
    c.out(0, of.with_batch(c.cast(is_one, dtype)));
  } else {
    c.out(0, c.zeros(dtype, {0}));
  }
  if (!data) {
    c.out(1, c.zeros(dtype, {0}));
    return c.out(2, c.zeros(dtype, {0}));
  }
  const auto cut = [&](int64_t rows, int64_t columns) {
    return c.slice(factors, Ints{0, 0, 0}, Ints{batch, rows, columns}, Ints{1, 1, 1});
  };
  const ValueId rows = c.iota({1, m, 1}, 1), columns = c.iota({1, 1, k}, 2);
  const ValueId lower = where(c, c.op("gt", {rows, columns}), cut(m, k));
  c.out(1, of.with_batch(c.op("select", {c.op("eq", {rows, columns}), c.scalar(dtype, 1), lower})));
  c.out(2, of.with_batch(where(c, c.op("le", {c.iota({1, k, 1}, 1), c.iota({1, 1, n}, 2)}), cut(k, n))));
}

void import_lu(AtenContext& c) {
  const Matrices a = any_matrices(c, "A");
  const Lu lu = lu_of(c, a);
  unpack(c, a, lu.factors, lu.order, true, true);
}

// The order of rows after the exchanges of pivots [..., k] from 1.
ValueId order_of(AtenContext& c, const Matrices& of, ValueId pivots) {
  const int64_t batch = of.size_of_batch(), m = of.rows(), k = c.dims(pivots).back();
  const ValueId places = c.sub(c.cast(c.reshape(pivots, {batch, 1, k}), DType::kI64), c.integer(1));
  ValueId order = c.broadcast(c.iota({1, m, 1}, 1), Ints{batch, m, 1});
  for (int64_t i = 0; i < k; ++i) order = reordered(c, order, exchange(c, m, i, column_of(c, places, i)));
  return order;
}

void import_lu_unpack(AtenContext& c) {
  const Matrices lu = any_matrices(c, "LU_data");
  const bool permutation = c.truth("unpack_pivots", true);
  const ValueId order = permutation ? order_of(c, lu, c.tensor("LU_pivots")) : -1;
  unpack(c, lu, lu.value(), order, c.truth("unpack_data", true), permutation);
}

// A X = B or A' X = B, or X on the left of the matrix, by its factors.
void import_lu_solve(AtenContext& c) {
  const bool left = c.truth("left", true), adjoint = c.truth("adjoint", false) == left;
  const ValueId b = c.tensor("B");
  const Pair p = with_one_batch(c, c.tensor("LU"), left ? b : turned(c, b));
  const Matrices lu = square(c, p.a), rhs(c, p.b, "matrices");
  Ints sizes = c.dims(p.a);
  sizes.pop_back();
  const ValueId order = order_of(c, lu, c.broadcast(c.tensor("pivots"), sizes));
  ValueId x = rhs.value();
  if (!adjoint) {
    x = triangle_solved(c, lu.value(), reordered(c, x, order), false, true);
    x = triangle_solved(c, lu.value(), x, true, false);
  } else {
    const ValueId across = turned(c, lu.value());
    x = triangle_solved(c, across, triangle_solved(c, across, x, false, false), true, true);
    const ValueId is_one = c.op("eq", {c.iota({1, lu.rows(), 1}, 1), turned(c, order)});
    x = c.op("matmul", {c.cast(is_one, c.dtype(x)), x});
  }
  x = rhs.with_batch(x);
  c.out(left ? x : turned(c, x));
}

void import_triangular(AtenContext& c) {
  const bool modern = c.op_type().find("linalg") != std::string::npos;
  ValueId a = c.tensor(modern ? "self" : "A"), b = c.tensor(modern ? "B" : "self");
  bool upper = c.truth("upper", true);
  const bool left = c.truth("left", true), transposed = c.truth("transpose", false);
  if (transposed || !left) {
    a = turned(c, a);
    upper = !upper;
  }
  if (!left) b = turned(c, b);
  const Pair p = with_one_batch(c, a, b);
  const Matrices t = square(c, p.a), rhs(c, p.b, "matrices");
  const ValueId x = rhs.with_batch(triangle_solved(c, t.value(), rhs.value(), upper, c.truth("unitriangular", false)));
  c.out(0, left ? x : turned(c, x));
  if (!modern) c.out(1, transposed ? turned(c, p.a) : p.a);
}

// The lower triangle's factor; the matrix is read as if it were symmetric, and its gradient is.
ValueId cholesky_of(AtenContext& c, const Matrices& given, bool upper, ValueId* info) {
  const int64_t n = given.rows(), batch = given.size_of_batch();
  const ValueId x = upper ? turned(c, given.value()) : given.value();
  const DType dtype = c.dtype(x);
  const ValueId half = scaled(c, c.add(x, turned(c, x)), 0.5);
  const ValueId is_lower = c.op("ge", {c.iota({1, n, 1}, 1), c.iota({1, 1, n}, 2)});
  const ValueId read = c.op("select", {is_lower, x, turned(c, x)});
  ValueId a = c.add(half, c.composite("stop_gradient", {c.sub(read, half)}));
  std::vector<ValueId> columns;
  *info = c.broadcast(c.integer(0), Ints{batch});
  for (int64_t k = 0; k < n; ++k) {
    const ValueId square_root = c.op("sqrt", {row_of(c, column_of(c, a, k), k)});
    const ValueId is_bad = c.op("logical_not", {c.op("gt", {square_root, c.scalar(dtype, 0)})});
    const ValueId first = c.op("logical_and", {c.reshape(is_bad, {batch}), c.op("eq", {*info, c.integer(0)})});
    *info = c.op("select", {first, c.integer(k + 1), *info});
    const ValueId column = where(c, rows_that(c, "ge", n, k), c.div(column_of(c, a, k), square_root));
    columns.push_back(column);
    if (k + 1 < n) a = c.sub(a, c.mul(column, turned(c, column)));
  }
  const ValueId factor = columns.empty()       ? c.zeros(dtype, Ints{batch, 0, 0})
                         : columns.size() == 1 ? columns[0]
                                               : c.op("concat", columns, {{"axis", int64_t{2}}});
  return upper ? turned(c, factor) : factor;
}

void import_cholesky(AtenContext& c) {
  const Matrices a = square(c, c.tensor("self"));
  ValueId info = -1;
  c.out(0, a.with_batch(cholesky_of(c, a, c.truth("upper", false), &info)));
  if (c.num_results() > 1) c.out(1, as_info(c, a, info));
}

// x of L L' x = b.
ValueId cholesky_solved(AtenContext& c, ValueId factor, ValueId b, bool upper) {
  const ValueId lower = upper ? turned(c, factor) : factor;
  return triangle_solved(c, turned(c, lower), triangle_solved(c, lower, b, false, false), true, false);
}

void import_cholesky_solve(AtenContext& c) {
  const Pair p = with_one_batch(c, c.tensor("input2"), c.tensor("self"));
  const Matrices factor = square(c, p.a), b(c, p.b, "matrices");
  c.out(b.with_batch(cholesky_solved(c, factor.value(), b.value(), c.truth("upper", false))));
}

void import_cholesky_inverse(AtenContext& c) {
  const Matrices factor = square(c, c.tensor("self"));
  const ValueId one = identity(c, c.dtype(factor.value()), factor.size_of_batch(), factor.rows());
  c.out(factor.with_batch(cholesky_solved(c, factor.value(), one, c.truth("upper", false))));
}

// The series for a 2^10th of the matrix, and its square ten times, in f64.
void import_matrix_exp(AtenContext& c) {
  constexpr int kSquarings = 10, kTerms = 14;
  const Matrices a(c, c.tensor("self"), "square matrices");
  if (a.rows() != a.columns()) c.malformed(fmt::format("matrices of {} x {}", a.rows(), a.columns()), "square ones");
  const DType dtype = c.dtype(a.value());
  const ValueId x = scaled(c, c.cast(a.value(), DType::kF64), 1.0 / (1 << kSquarings));
  const ValueId one = identity(c, DType::kF64, a.size_of_batch(), a.rows());
  ValueId y = one;
  for (int k = kTerms; k >= 1; --k) y = c.add(one, scaled(c, c.op("matmul", {x, y}), 1.0 / k));
  for (int k = 0; k < kSquarings; ++k) y = c.op("matmul", {y, y});
  c.out(a.with_batch(c.cast(y, dtype)));
}

}  // namespace

std::span<const AtenOperator> factorisation_operators() {
  static constexpr AtenOperator table[] = {
      {"_linalg_det", import_det},
      {"_linalg_slogdet", import_slogdet},
      {"_linalg_solve_ex", import_solve},
      {"cholesky", import_cholesky},
      {"cholesky_inverse", import_cholesky_inverse},
      {"cholesky_solve", import_cholesky_solve},
      {"det", import_det},
      {"inverse", import_inv},
      {"linalg_cholesky", import_cholesky},
      {"linalg_cholesky_ex", import_cholesky},
      {"linalg_det", import_det},
      {"linalg_inv", import_inv},
      {"linalg_inv_ex", import_inv},
      {"linalg_lu", import_lu},
      {"linalg_lu_factor", import_lu_factor},
      {"linalg_lu_factor_ex", import_lu_factor},
      {"linalg_lu_solve", import_lu_solve},
      {"linalg_matrix_exp", import_matrix_exp},
      {"linalg_slogdet", import_slogdet},
      {"linalg_solve", import_solve},
      {"linalg_solve_ex", import_solve},
      {"linalg_solve_triangular", import_triangular},
      {"linalg_tensorinv", import_tensorinv},
      {"logdet", import_logdet},
      {"lu_unpack", import_lu_unpack},
      {"slogdet", import_slogdet},
      {"triangular_solve", import_triangular},
  };
  return table;
}

}  // namespace tessera::inline aten
