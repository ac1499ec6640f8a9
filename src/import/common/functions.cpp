#include "import/common/functions.h"

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"

#include <numbers>

namespace tessera::inline import_common {

ValueId angle_of(Emitter& c, ValueId y, ValueId x) {
  const ValueId zero = c.scalar_like(y, 0), one = c.scalar_like(y, 1), pi = c.scalar_like(y, std::numbers::pi);
  const auto both = [&](ValueId of_y, ValueId of_x) { return c.op("logical_and", {of_y, of_x}); };
  const auto is_negative = [&](ValueId v) {
    return c.op("logical_or", {c.op("lt", {v, zero}), c.op("lt", {c.div(one, v), zero})});
  };
  const ValueId diagonal = c.mul(c.op("sign", {y}), c.op("sign", {x}));
  const ValueId finite = c.op("select", {both(c.op("is_inf", {y}), c.op("is_inf", {x})), diagonal, c.div(y, x)});
  const ValueId slope = c.op("select", {both(c.op("eq", {y, zero}), c.op("eq", {x, zero})), y, finite});
  const ValueId angle = c.op("atan", {slope});
  const ValueId turned = c.op("select", {is_negative(y), c.sub(angle, pi), c.add(angle, pi)});
  return c.op("select", {is_negative(x), turned, angle});
}

// 2 / (1 / tanh(x / 2) - 1), which loses nothing near 0; 0 itself, and what is large, by the definition.
ValueId exp_minus_one(Emitter& c, ValueId x) {
  const ValueId one = c.scalar_like(x, 1);
  const ValueId t = c.op("tanh", {c.mul(x, c.scalar_like(x, 0.5))});
  const ValueId near_zero = c.div(c.mul(t, c.scalar_like(x, 2)), c.sub(one, t));
  const ValueId is_near = c.op("lt", {c.op("abs", {x}), one});
  return c.op("select", {is_near, near_zero, c.sub(c.op("exp", {x}), one)});
}

// x log(u) / (u - 1) for u = 1 + x as it is rounded, and x where that is 1.
ValueId log_one_plus(Emitter& c, ValueId x) {
  const ValueId one = c.scalar_like(x, 1);
  const ValueId u = c.add(x, one);
  const ValueId d = c.sub(u, one);
  const ValueId log = c.op("log", {u});
  const ValueId infinite = c.op("is_inf", {u});
  const ValueId corrected = c.op("select", {infinite, log, c.mul(log, c.div(x, d))});
  return c.op("select", {c.op("eq", {d, c.scalar_like(x, 0)}), x, corrected});
}

std::vector<int64_t> axis_last(int rank, int64_t axis) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<size_t>(axis)], order.back());
  return order;
}

ValueId without(Emitter& c, ValueId x, int64_t axis) {
  Shape sizes = c.shape(x);
  sizes.erase(sizes.begin() + axis);
  return c.reshape(x, sizes);
}

ValueId comparable(Emitter& c, ValueId x) { return c.dtype(x) == DType::kBool ? c.cast(x, DType::kU8) : x; }

ValueId place_of_extremum(Emitter& c, ValueId x, ValueId extremum, int64_t axis) {
  ValueId is_it = c.op("eq", {x, extremum});
  if (is_float(c.dtype(x))) {
    const ValueId nan = c.op("is_nan", {x});
    is_it = c.op("logical_or", {is_it, nan});
  }
  const Expr extent = c.shape(x)[static_cast<size_t>(axis)];
  Shape along(static_cast<size_t>(c.rank(x)), 1);
  along[static_cast<size_t>(axis)] = extent;
  const ValueId places = c.op("select", {is_it, c.iota(along, axis), c.integer(extent)});
  return c.reduce("min", places, {axis}, true);
}

ValueId first_places(Emitter& c, ValueId x, int64_t axis, int64_t count, bool descending) {
  const std::vector<int64_t> order = axis_last(c.rank(x), axis);
  const ValueId turned = c.transpose(x, order);
  Shape result = c.shape(turned);
  const Expr extent = result.back();
  result.back() = count;
  const ValueId lines = c.reshape(turned, {c.count(Shape(result.begin(), result.end() - 1)), extent, 1});
  const ValueId first = c.op("order", {lines}, {{"count", count}, {"descending", descending}});
  return c.transpose(c.reshape(first, result), order);
}

ValueId scattered(Emitter& c, ValueId x, ValueId places, ValueId updates, const std::string& join) {
  const Shape dims = c.shape(x);
  const size_t rank = dims.size();
  const Expr rows = Emitter::count(Shape(dims.begin(), dims.end() - 2));
  const Expr n = dims[rank - 2], inner = dims[rank - 1], m = c.shape(updates)[rank - 2];
  if (is_const_int(m, 0)) return x;
  const DType dtype = c.dtype(x);
  const DType joined = dtype == DType::kBool && join != "none" ? DType::kU8 : dtype;  // an order for bool, too
  const auto as_joined = [&](ValueId v, const Shape& to) { return c.reshape(c.cast(v, joined), to); };
  const ValueId y = c.op(
      "scatter", {as_joined(x, {rows, n, inner}), c.reshape(places, {rows, m}), as_joined(updates, {rows, m, inner})},
      {{"join", join}});
  return c.cast(c.reshape(y, dims), dtype);
}

}  // namespace tessera::inline import_common
