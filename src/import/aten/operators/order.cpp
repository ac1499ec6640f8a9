// Running totals and extrema, and what depends on the order of elements along a dimension.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

using Ints = std::vector<int64_t>;

constexpr char kSum[] = "sum", kProd[] = "prod";

template <const char* kKind>
void as_running(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = c.cast(given, c.result_dtype(c.dtype(given)));
  if (c.rank(x) == 0) return c.out(x);
  c.out(c.op("cumulate", {x},
             {{"axis", c.dimension("dim", c.rank(x))},
              {"kind", std::string(kKind)},
              {"exclusive", false},
              {"reverse", false}}));
}

// Moved by `distance` along the axis; what comes in is `fill`.
ValueId moved_along(AtenContext& c, ValueId x, int64_t axis, int64_t distance, ValueId fill) {
  Shape low(static_cast<size_t>(c.rank(x)), 0), none = low, sizes = c.shape(x);
  low[static_cast<size_t>(axis)] = distance;
  const ValueId wide = c.op("pad", {x, fill}, {{"low", low}, {"high", none}, {"mode", std::string("constant")}});
  return c.slice(wide, none, sizes, Ints(sizes.size(), 1));
}

// The extrema so far, and the last places that have them: in each of log2(n) steps, of twice as many elements. A NaN
// stays until the next one.
template <const char* kComparison>
void as_running_extremum(AtenContext& c) {
  const ValueId given = c.tensor("self");
  if (c.rank(given) == 0) {
    c.out(0, given);
    return c.out(1, c.integer(0));
  }
  const int64_t axis = c.dimension("dim", c.rank(given)), extent = c.dims(given)[static_cast<size_t>(axis)];
  const ValueId x = comparable(c, given);
  ValueId places = c.broadcast(c.iota(
                                   [&] {
                                     Shape along(static_cast<size_t>(c.rank(x)), 1);
                                     along[static_cast<size_t>(axis)] = extent;
                                     return along;
                                   }(),
                                   axis),
                               c.shape(x));
  ValueId most = x;
  for (int64_t distance = 1; distance < extent; distance *= 2) {
    const ValueId before = moved_along(c, most, axis, distance, c.scalar_like(most, 0));
    const ValueId place = moved_along(c, places, axis, distance, c.integer(-1));
    ValueId stays = c.op(kComparison, {most, before});
    if (is_float(c.dtype(x))) stays = c.op("logical_or", {stays, c.op("is_nan", {most})});
    stays = c.op("logical_or", {stays, c.op("lt", {place, c.integer(0)})});
    most = c.op("select", {stays, most, before});
    places = c.op("select", {stays, places, place});
  }
  c.out(0, c.op("gather_elements", {given, places}, {{"axis", axis}}));
  c.out(1, places);
}
constexpr char kGe[] = "ge", kLe[] = "le";

// log(sum of exp) so far, in log2(n) steps.
void import_logcumsumexp(AtenContext& c) {
  const ValueId given = c.tensor("self");
  if (c.rank(given) == 0) return c.out(given);
  const int64_t axis = c.dimension("dim", c.rank(given)), extent = c.dims(given)[static_cast<size_t>(axis)];
  ValueId sum = in_wide_float(c, given);
  const ValueId nothing = c.scalar_like(sum, -std::numeric_limits<double>::infinity());
  for (int64_t distance = 1; distance < extent; distance *= 2) {
    const ValueId before = moved_along(c, sum, axis, distance, nothing);
    const ValueId most = c.op("max", {sum, before}), least = c.op("min", {sum, before});
    const ValueId together = c.add(most, c.composite("softplus", {c.sub(least, most)}));
    // Equal infinities have no difference, and what is -inf adds nothing.
    const ValueId alone = c.op("logical_or", {c.op("is_inf", {most}), c.op("eq", {least, nothing})});
    sum = c.op("select", {alone, most, together});
  }
  c.out(c.cast(sum, c.dtype(given)));
}

// ---- order ----

void ordered(AtenContext& c, int64_t count, bool descending, bool values) {
  const ValueId given = c.tensor("self");
  if (c.rank(given) == 0) {
    c.out(0, values ? given : c.integer(0));
    return c.out(1, c.integer(0));
  }
  const ValueId x = comparable(c, given);
  const int64_t axis = c.dimension("dim", c.rank(x), -1);
  if (count < 0) count = c.dims(x)[static_cast<size_t>(axis)];
  const ValueId places = first_places(c, x, axis, count, descending);
  if (!values) return c.out(places);
  c.out(0, c.op("gather_elements", {given, places}, {{"axis", axis}}));
  c.out(1, places);
}

void import_topk(AtenContext& c) { ordered(c, c.whole("k"), c.truth("largest", true), true); }
void import_sort(AtenContext& c) { ordered(c, -1, c.truth("descending", false), true); }
void import_argsort(AtenContext& c) { ordered(c, -1, c.truth("descending", false), false); }

// The results: the element of each line that is at `place`, and the place.
void chosen(AtenContext& c, ValueId lines, ValueId place, int64_t axis) {
  const bool keepdims = c.truth("keepdim", false);
  const auto result = [&](ValueId v) { return keepdims ? v : without(c, v, axis); };
  c.out(0, result(c.op("gather_elements", {lines, place}, {{"axis", axis}})));
  c.out(1, result(place));
}

// One of the elements of each line in order, and its place.
void at_rank(AtenContext& c, ValueId given, int64_t axis, int64_t number, bool nan_wins) {
  const ValueId x = comparable(c, given);
  const int64_t extent = c.dims(x)[static_cast<size_t>(axis)];
  const ValueId order = first_places(c, x, axis, extent, false);
  const auto place_at = [&](int64_t n) {
    Ints starts(static_cast<size_t>(c.rank(x)), 0), sizes = c.dims(x);
    starts[static_cast<size_t>(axis)] = n;
    sizes[static_cast<size_t>(axis)] = 1;
    return c.slice(order, starts, sizes, Ints(starts.size(), 1));
  };
  ValueId place = place_at(number);
  if (nan_wins && is_float(c.dtype(x))) {
    // NaNs are the last ones in order.
    const ValueId is_nan = c.op("is_nan", {c.op("gather_elements", {given, place_at(extent - 1)}, {{"axis", axis}})});
    const ValueId nans = c.op("select", {c.op("is_nan", {x}), c.iota(c.shape(x), axis), c.integer(extent)});
    place = c.op("select", {is_nan, c.reduce("min", nans, {axis}, true), place});
  }
  chosen(c, given, place, axis);
}

void import_kthvalue(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.rank(x) == 0) {
    c.out(0, x);
    return c.out(1, c.integer(0));
  }
  const int64_t axis = c.dimension("dim", c.rank(x), -1);
  at_rank(c, x, axis, c.whole("k") - 1, false);
}

// The number of the place before the middle one of what is no NaN, which stands in front; 0 for nothing.
ValueId middle_of_numbers(AtenContext& c, ValueId x, int64_t axis) {
  const ValueId numbers = c.cast(c.op("logical_not", {c.op("is_nan", {x})}), DType::kI64);
  const ValueId count = c.reduce("sum", numbers, {axis}, true);
  return c.op("max", {c.div(c.sub(count, c.integer(1)), c.integer(2)), c.integer(0)});
}

// The lower of the two in the middle, of what is a number.
void import_nanmedian(AtenContext& c) {
  const ValueId given = c.tensor("self");
  if (c.rank(given) == 0) {
    c.out(0, given);
    return c.out(1, c.integer(0));
  }
  const bool all = !c.has("dim");
  const ValueId x = all ? c.reshape(given, {c.count(given)}) : given;
  const int64_t axis = all ? 0 : c.dimension("dim", c.rank(x)), extent = c.dims(x)[static_cast<size_t>(axis)];
  if (extent == 0) c.unsupported("the median of nothing");
  const ValueId order = first_places(c, comparable(c, x), axis, extent, false);
  const ValueId middle = is_float(c.dtype(x)) ? middle_of_numbers(c, x, axis) : c.integer((extent - 1) / 2);
  Shape sizes = c.shape(x);
  sizes[static_cast<size_t>(axis)] = 1;
  const ValueId place = c.op("gather_elements", {order, c.broadcast(middle, sizes)}, {{"axis", axis}});
  chosen(c, x, place, axis);
}

// The lower of the two in the middle.
void import_median(AtenContext& c) {
  const ValueId given = c.tensor("self");
  if (c.rank(given) == 0) {
    c.out(0, given);
    if (c.has("dim")) c.out(1, c.integer(0));
    return;
  }
  const bool all = !c.has("dim");
  const ValueId x = all ? c.reshape(given, {c.count(given)}) : given;
  const int64_t axis = all ? 0 : c.dimension("dim", c.rank(x)), extent = c.dims(x)[static_cast<size_t>(axis)];
  if (extent == 0) {
    if (!all || !is_float(c.dtype(x))) c.unsupported("the median of nothing");
    return c.out(c.scalar_like(x, std::numeric_limits<double>::quiet_NaN()));
  }
  at_rank(c, x, axis, (extent - 1) / 2, true);
}

// The least of the most frequent elements of each line, and the last of its places.
void import_mode(AtenContext& c) {
  const ValueId given = c.tensor("self");
  if (c.rank(given) == 0) {
    c.out(0, given);
    return c.out(1, c.integer(0));
  }
  const int64_t axis = c.dimension("dim", c.rank(given), -1), last = c.rank(given) - 1;
  const Ints order = axis_last(c.rank(given), axis);
  const ValueId x = c.transpose(comparable(c, given), order);
  const int64_t extent = c.dims(x).back();
  if (extent == 0) c.unsupported("the most frequent of nothing");
  Shape rows = c.shape(x), columns = rows;
  rows.push_back(1);
  columns.insert(columns.end() - 1, 1);
  const ValueId equal = c.op("eq", {c.reshape(x, rows), c.reshape(x, columns)});
  const ValueId counts = c.reduce("sum", c.cast(equal, DType::kI64), {last + 1}, false);
  const ValueId is_most = c.op("eq", {counts, c.reduce("max", counts, {last}, true)});
  // Those of the elements in order whose counts are greatest: the first of them is the least.
  const ValueId sorted = first_places(c, x, last, extent, false);
  const ValueId is_it = c.op("gather_elements", {c.cast(is_most, DType::kU8), sorted}, {{"axis", last}});
  const ValueId numbers =
      c.op("select", {c.cast(is_it, DType::kBool), c.iota(c.shape(x), last), c.integer(extent - 1)});
  const ValueId first = c.op("gather_elements", {sorted, c.reduce("min", numbers, {last}, true)}, {{"axis", last}});
  const ValueId least = c.op("gather_elements", {x, first}, {{"axis", last}});
  const ValueId here = c.op("select", {c.op("eq", {x, least}), c.iota(c.shape(x), last), c.integer(0)});
  const ValueId place = c.transpose(c.op("max", {c.reduce("max", here, {last}, true), first}), order);
  chosen(c, given, place, axis);
}

// The number of elements of each sorted line that are less than each value, or not greater on the right.
void import_searchsorted(AtenContext& c) {
  ValueId line = c.tensor("sorted_sequence");
  const DType dtype = AtenContext::promoted({c.operand("sorted_sequence"), c.operand("self")});
  const bool right = c.truth("right", false) || c.text("side", "left") == "right";
  const bool is_number = c.argument("self")->kind != ArgumentKind::kTensor;
  if (const auto sorter = c.maybe_tensor("sorter"))
    line = c.op("gather_elements", {line, c.cast(*sorter, DType::kI64)}, {{"axis", int64_t{c.rank(line) - 1}}});
  Shape lines = c.shape(line), values = is_number ? Shape{} : c.shape(c.tensor("self"));
  if (lines.size() > 1) lines.insert(lines.end() - 1, 1);
  values.push_back(1);
  const ValueId x = c.reshape(c.cast(c.as("self", dtype), dtype), values);
  // No element is at or above a NaN, which so comes behind all of them.
  const ValueId below = c.op("logical_not", {c.op(right ? "gt" : "ge", {c.reshape(c.cast(line, dtype), lines), x})});
  const ValueId count = c.reduce("sum", c.cast(below, DType::kI64), {c.rank(below) - 1}, false);
  c.out(c.cast(count, c.result_dtype(DType::kI64)));
}

}  // namespace

std::span<const AtenOperator> order_operators() {
  static constexpr AtenOperator table[] = {
      {"argsort", import_argsort},
      {"cummax", as_running_extremum<kGe>},
      {"cummin", as_running_extremum<kLe>},
      {"cumprod", as_running<kProd>},
      {"cumsum", as_running<kSum>},
      {"kthvalue", import_kthvalue},
      {"logcumsumexp", import_logcumsumexp},
      {"median", import_median},
      {"mode", import_mode},
      {"nanmedian", import_nanmedian},
      {"searchsorted", import_searchsorted},
      {"sort", import_sort},
      {"topk", import_topk},
  };
  return table;
}

}  // namespace tessera::inline aten
