// Operators whose number of results depends on values: Compress, NonZero, Unique, NonMaxSuppression. What decides it
// may be constant; otherwise the model has to declare the number, and a run that finds another one is refused.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/runtime_parameter.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostLooks = int64_t{1} << 30;  // pairs that are compared
constexpr int64_t kMostSteps = 1024;              // boxes that are chosen one after the other

ValueId number(NodeContext& c, int64_t value) { return c.scalar(DType::kI64, static_cast<double>(value)); }

int64_t product(const Ints& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }

void check_looks(NodeContext& c, int64_t a, int64_t b) {
  if (a > 0 && b > kMostLooks / a) c.unsupported(fmt::format("{} results of {} elements", b, a));
}

// The number of results that the model declares along dimension `axis` of result `i`.
int64_t declared_count(NodeContext& c, int i, size_t rank, size_t axis, const char* what) {
  const auto dims = c.declared_dims(i);
  if (!dims || dims->size() != rank)
    c.unsupported(
        fmt::format("how many elements it gives depends on {}, and the model does not declare the number", what));
  return (*dims)[axis];
}

struct Found {
  ValueId places;  // i64 [count]
  ValueId there;   // bool [count]
};

// The `count` places at which `mask` [n] is true: dimension `axis` of result 0.
Found find_true(NodeContext& c, ValueId mask, int64_t count, int axis) {
  const int64_t n = c.dims(mask)[0];
  check_looks(c, n, count);
  require_count(c, 0, axis, c.reduce("sum", c.cast(mask, DType::kI64), {0}, false), count);
  if (n == 0 || count == 0)
    return {c.constant_value(Tensor(DType::kI64, {count})), c.constant_value(Tensor(DType::kBool, {count}))};
  const ValueId before = running_sum(c, c.cast(mask, DType::kI64), 0);
  const ValueId skipped = c.op("le", {c.reshape(before, {1, n}), c.iota({count, 1}, 0)});
  const ValueId place = c.reduce("sum", c.cast(skipped, DType::kI64), {1}, false);
  return {c.op("min", {place, number(c, n - 1)}), c.op("lt", {place, number(c, n)})};
}

// x gathered along `axis`; zeros where there is nothing.
ValueId gathered(NodeContext& c, ValueId x, const Found& found, int64_t axis) {
  const Ints dims = c.dims(x);
  Ints along(dims.size(), 1), result = dims;
  along[static_cast<size_t>(axis)] = result[static_cast<size_t>(axis)] = c.dims(found.places)[0];
  if (product(result) == 0) return c.constant_value(Tensor(c.dtype(x), result));
  if (product(dims) == 0) c.unsupported("a choice among no elements");
  const ValueId y = c.op("gather", {x, found.places}, {{"axis", axis}});
  return c.op("select", {c.reshape(found.there, along), y, c.scalar_like(y, 0)});
}

Found known_places(NodeContext& c, const Ints& places) {
  return {c.ints(places), c.broadcast(c.scalar(DType::kBool, 1), {std::ssize(places)})};
}

Ints places_of_true(const Tensor& mask, int64_t limit) {
  Ints places;
  for (int64_t i = 0; i < std::min(mask.num_elements(), limit); ++i)
    if (mask.get_double(i) != 0) places.push_back(i);
  return places;
}

}  // namespace

void import_compress(NodeContext& c) {
  c.require_inputs(2, 2);
  ValueId x = c.in(0);
  const ValueId condition = c.in(1);
  if (c.rank(condition) != 1 || c.dtype(condition) != DType::kBool)
    c.malformed(fmt::format("a condition of type {}", c.type(condition).to_string()), "a list of bool");
  int64_t axis = 0;
  if (c.attrs.has("axis")) axis = c.axis(c.attrs.get_int("axis", 0), c.rank(x));
  else x = c.reshape(x, {product(c.dims(x))});
  const int64_t extent = c.dims(x)[static_cast<size_t>(axis)];
  if (const auto known = c.constant(condition))
    return c.out(0, gathered(c, x, known_places(c, places_of_true(*known, extent)), axis));
  const int64_t count =
      declared_count(c, 0, c.dims(x).size(), static_cast<size_t>(axis), "a condition that is not constant");
  const int64_t length = std::min(extent, c.dims(condition)[0]);
  c.out(0, gathered(c, x, find_true(c, c.slice(condition, {0}, {length}, {1}), count, static_cast<int>(axis)), axis));
}

// The index of each element other than 0, a dimension in each row.
void import_non_zero(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int64_t n = product(dims), rank = std::ssize(dims);
  Found found;
  if (const auto known = c.constant(x)) {
    found = known_places(c, places_of_true(*known, n));
  } else {
    const int64_t count = declared_count(c, 0, 2, 1, "the operand");
    const ValueId flat = c.reshape(x, {n});
    found = find_true(c, c.dtype(x) == DType::kBool ? flat : c.op("ne", {flat, c.scalar_like(x, 0)}), count, 1);
  }
  const int64_t count = c.dims(found.places)[0];
  if (rank == 0 || count == 0) return c.out(0, c.constant_value(Tensor(DType::kI64, {rank, count})));
  std::vector<ValueId> rows;
  int64_t stride = n;
  for (const int64_t extent : dims) {
    stride /= std::max<int64_t>(1, extent);
    const ValueId index = c.op(
        "rem", {c.div(found.places, number(c, std::max<int64_t>(1, stride))), number(c, std::max<int64_t>(1, extent))});
    rows.push_back(c.reshape(c.op("select", {found.there, index, number(c, 0)}), {1, count}));
  }
  c.out(0, rows.size() == 1 ? rows[0] : c.op("concat", rows, {{"axis", int64_t{0}}}));
}

// Elements, or slices along an axis, are compared with each other. NaN counts as equal to itself and as the largest.
void import_unique(NodeContext& c) {
  c.require_inputs(1, 1);
  ValueId x = c.in(0);
  const bool sorted = c.attrs.get_int("sorted", 1) != 0;
  int64_t axis = 0;
  if (c.attrs.has("axis")) axis = c.axis(c.attrs.get_int("axis", 0), c.rank(x));
  else x = c.reshape(x, {product(c.dims(x))});
  const Ints dims = c.dims(x);
  const int64_t n = dims[static_cast<size_t>(axis)], width = n == 0 ? 0 : product(dims) / n;
  if (n == 0 || width == 0) c.unsupported("an operand without elements");
  check_looks(c, n * width, n);
  // [n, width], an order for bool too.
  Ints perm(dims.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + axis, perm.begin() + axis + 1);
  ValueId rows = c.reshape(c.transpose(x, perm), {n, width});
  if (c.dtype(rows) == DType::kBool) rows = c.cast(rows, DType::kI32);
  const ValueId a = c.reshape(rows, {n, 1, width}), b = c.reshape(rows, {1, n, width});
  ValueId same = c.op("eq", {a, b}), less = c.op("lt", {a, b});
  if (is_float(c.dtype(rows))) {
    const ValueId a_nan = c.op("ne", {a, a}), b_nan = c.op("ne", {b, b});
    same = c.op("logical_or", {same, c.op("logical_and", {a_nan, b_nan})});
    less = c.op("logical_or", {less, c.op("logical_and", {c.op("logical_not", {a_nan}), b_nan})});
  }
  // The first element in which two slices differ decides.
  const ValueId at = c.iota({1, 1, width}, 2);
  const ValueId differ = c.reduce("min", c.op("select", {same, number(c, width), at}), {2}, true);
  const auto any = [&](ValueId v, int64_t dim) { return c.reduce("max", v, {dim}, false); };
  const ValueId smaller = any(c.op("logical_and", {c.op("eq", {at, differ}), less}), 2);  // [n, n]
  const ValueId equal = c.reshape(c.op("eq", {differ, number(c, width)}), {n, n});
  const ValueId other = c.iota({1, n}, 1);
  // Of each element the first one that equals it, and whether it is that itself.
  const ValueId first = c.reduce("min", c.op("select", {equal, other, number(c, n)}), {1}, false);
  const ValueId leads = c.op("eq", {first, c.iota({n}, 0)});
  // How many different elements come before it: smaller ones, or those seen earlier.
  const ValueId leads_column = c.reshape(leads, {n, 1}), leads_row = c.reshape(leads, {1, n});
  const auto count_true = [&](ValueId v, int64_t dim) { return c.reduce("sum", c.cast(v, DType::kI64), {dim}, false); };
  ValueId order;  // [n]
  if (sorted) order = count_true(c.op("logical_and", {leads_column, smaller}), 0);
  else order = count_true(c.op("logical_and", {leads_row, c.op("lt", {other, c.reshape(first, {n, 1})})}), 1);
  int64_t count = 0;
  if (const auto known = c.constant(leads)) {
    for (int64_t i = 0; i < n; ++i) count += known->get_int(i);
  } else if (n == 1) {
    count = 1;
  } else {
    std::optional<int64_t> found;
    for (const int i : {0, 1, 3})
      if (const auto declared = c.declared_dims(i);
          declared && declared->size() == (i == 0 ? dims.size() : 1) && !found && n > 0)
        found = (*declared)[i == 0 ? static_cast<size_t>(axis) : 0];
    // A number that cannot be right is one that nobody wrote.
    if (!found || *found < 1 || *found > n)
      c.unsupported("how many elements it gives depends on the operand, and the model does not declare the number");
    count = *found;
    const int first = c.wants(0) ? 0 : c.wants(1) ? 1 : 3;
    require_count(c, first, first == 0 ? static_cast<int>(axis) : 0, count_true(leads, 0), count);
  }
  const ValueId which = c.op("eq", {c.reshape(order, {1, n}), c.iota({count, 1}, 0)});  // [count, n]
  const ValueId counts = count_true(which, 1);
  const ValueId there = c.op("gt", {counts, number(c, 0)});
  const ValueId found = c.reduce("min", c.op("select", {which, other, number(c, n - 1)}), {1}, false);
  const ValueId places = c.op("select", {there, found, number(c, 0)});
  c.out(0, gathered(c, x, {places, there}, axis));
  c.out(1, places);
  c.out(2, order);
  c.out(3, counts);
}

namespace {

struct Box {
  ValueId low_y, low_x, high_y, high_x, area;  // [B, 1, N] each
};

ValueId overlap_area(NodeContext& c, const Box& a, const Box& b) {
  const auto length = [&](ValueId low_a, ValueId high_a, ValueId low_b, ValueId high_b) {
    const ValueId span = c.sub(c.op("min", {high_a, high_b}), c.op("max", {low_a, low_b}));
    return c.op("max", {span, c.scalar_like(span, 0)});
  };
  return c.mul(length(a.low_y, a.high_y, b.low_y, b.high_y), length(a.low_x, a.high_x, b.low_x, b.high_x));
}

}  // namespace

// For each class of each image, one box after the other: the one with the highest score, which takes out those that
// overlap it too much.
void import_non_max_suppression(NodeContext& c) {
  c.require_inputs(2, 5);
  const ValueId boxes = c.in(0), scores = c.in(1);
  const Ints box_dims = c.dims(boxes), dims = c.dims(scores);
  if (box_dims.size() != 3 || dims.size() != 3 || box_dims[2] != 4 || box_dims[0] != dims[0] || box_dims[1] != dims[2])
    c.malformed(
        fmt::format("boxes of type {} and scores of type {}", c.type(boxes).to_string(), c.type(scores).to_string()),
        "[images, boxes, 4] and [images, classes, boxes]");
  const int64_t images = dims[0], classes = dims[1], n = dims[2];
  const bool centres = c.attrs.get_int("center_point_box", 0) != 0;
  const auto scalar = [&](int i) {
    const ValueId v = c.in(i);
    if (c.type(v).num_elements() != 1)
      c.malformed(fmt::format("input {} of type {}", i, c.type(v).to_string()), "one element");
    return c.reshape(v, {});
  };
  int64_t most = n;  // for each class
  std::optional<ValueId> limit;
  if (!c.has(2)) most = 0;
  else if (const auto known = c.constant(c.in(2))) most = std::clamp<int64_t>(known->get_int(0), 0, n);
  else limit = scalar(2);
  if (most == 0 || product(dims) == 0) return c.out(0, c.constant_value(Tensor(DType::kI64, {0, 3})));
  const int64_t count = declared_count(c, 0, 2, 0, "boxes and scores");
  most = std::min(most, count + 1);  // one more, to see that there are no further ones
  if (most > kMostSteps) c.unsupported(fmt::format("more than {} boxes of a class", kMostSteps));

  const auto coordinate = [&](int64_t i) {
    return c.reshape(c.slice(boxes, {0, 0, i}, {images, n, 1}, {1, 1, 1}), {images, 1, n});
  };
  Box all;
  if (centres) {
    const auto half = [&](int64_t i) { return c.mul(coordinate(i), c.scalar_like(boxes, 0.5)); };
    all = {c.sub(coordinate(1), half(3)), c.sub(coordinate(0), half(2)), c.add(coordinate(1), half(3)),
           c.add(coordinate(0), half(2)), 0};
  } else {
    const auto ordered = [&](const char* op, int64_t i) { return c.op(op, {coordinate(i), coordinate(i + 2)}); };
    all = {ordered("min", 0), ordered("min", 1), ordered("max", 0), ordered("max", 1), 0};
  }
  all.area = c.mul(c.sub(all.high_y, all.low_y), c.sub(all.high_x, all.low_x));
  const ValueId threshold = c.has(3) ? c.cast(scalar(3), c.dtype(boxes)) : c.scalar_like(boxes, 0);
  const Ints full = {images, classes, n}, one = {images, classes, 1};
  const ValueId index = c.iota({1, 1, n}, 2);
  ValueId active = c.op("eq", {scores, scores});  // not NaN
  if (c.has(4)) active = c.op("gt", {scores, c.cast(scalar(4), c.dtype(scores))});
  std::vector<ValueId> chosen, valid;
  for (int64_t step = 0; step < most; ++step) {
    const ValueId lowest = c.scalar_like(scores, -std::numeric_limits<double>::infinity());
    const ValueId top = c.reduce("max", c.op("select", {active, scores, lowest}), {2}, true);
    const ValueId leads = c.op("logical_and", {active, c.op("eq", {scores, top})});
    const ValueId best = c.reduce("min", c.op("select", {leads, index, number(c, n)}), {2}, true);  // [B, C, 1]
    ValueId there = c.op("lt", {best, number(c, n)});
    if (limit) there = c.op("logical_and", {there, c.op("gt", {c.cast(*limit, DType::kI64), number(c, step)})});
    const ValueId place = c.op("min", {best, number(c, n - 1)});
    chosen.push_back(place);
    valid.push_back(there);
    if (step + 1 == most) break;
    const auto of_best = [&](ValueId v) {
      return c.op("gather_elements", {c.broadcast(v, full), place}, {{"axis", int64_t{2}}});
    };
    const Box box = {of_best(all.low_y), of_best(all.low_x), of_best(all.high_y), of_best(all.high_x),
                     of_best(all.area)};
    const ValueId shared = overlap_area(c, box, all);
    const ValueId both = c.sub(c.add(box.area, all.area), shared);
    const ValueId zero = c.scalar_like(both, 0);
    // Boxes without an area overlap nothing.
    const ValueId ratio = c.op("select", {c.op("gt", {both, zero}), c.div(shared, both), zero});
    const ValueId out = c.op("logical_or", {c.op("gt", {ratio, threshold}), c.op("eq", {index, place})});
    active = c.op("logical_and", {active, c.op("logical_not", {out})});
  }
  const auto joined = [&](const std::vector<ValueId>& parts) {
    return c.reshape(parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", int64_t{2}}}),
                     {images * classes * most});
  };
  const Found found = find_true(c, joined(valid), count, 0);
  if (count == 0) return c.out(0, c.constant_value(Tensor(DType::kI64, {0, 3})));
  const auto column = [&](ValueId v) { return c.reshape(c.op("select", {found.there, v, number(c, 0)}), {count, 1}); };
  const ValueId group = c.div(found.places, number(c, most));
  const ValueId box = c.op("gather", {joined(chosen), found.places}, {{"axis", int64_t{0}}});
  c.out(0,
        c.op("concat",
             {column(c.div(group, number(c, classes))), column(c.op("rem", {group, number(c, classes)})), column(box)},
             {{"axis", int64_t{1}}}));
}

}  // namespace tessera
