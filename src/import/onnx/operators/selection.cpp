// Operators whose number of results depends on values: Compress, NonZero, Unique, NonMaxSuppression. What decides it
// may be constant. Otherwise a run that finds another number than the model declares is refused; without a declaration
// there is place for as many as there can be, and a step of the run cuts off what is not there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/data_size.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"
#include "import/onnx/operators/structures.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// The number of results that the model declares along dimension `axis` of result `i`; none when it leaves that to the
// run.
std::optional<int64_t> declared_count(NodeContext& c, int i, size_t rank, size_t axis) {
  const auto dims = c.declared_dims(i);
  if (!dims || dims->size() != rank || !checked_num_elements(*dims)) return std::nullopt;
  return (*dims)[axis];
}

struct Found {
  ValueId places;                      // i64 [count]
  std::optional<ValueId> there = {};   // bool [count]; none: all are
  std::optional<ValueId> number = {};  // i64: how many are there, when only a run knows, and a step cuts off the others
};

// `value` where something is there, `nothing` elsewhere; [count].
ValueId if_there(NodeContext& c, const Found& found, ValueId value, ValueId nothing) {
  return found.there ? c.op("select", {*found.there, value, nothing}) : value;
}

// Result `i` is `value`, without what is not there along `axis`.
void give(NodeContext& c, int i, ValueId value, const Found& found, int64_t axis) {
  if (!found.number) return c.out(i, value);
  if (c.wants(i)) give_first(c, i, value, axis, c.slot(Binding(c.reshape(*found.number, {1}))));
}

// The places at which `mask` [n] is true, as many as there are: a size that data decide.
Found bind_true(NodeContext& c, ValueId mask) {
  const Expr n = c.shape(mask)[0];
  if (is_const_int(n, 0)) return {c.zeros(DType::kI64, {0})};
  const ValueId wide = c.cast(mask, DType::kI64);
  const Expr count = bind_size(c, c.reduce("sum", wide, {0}, false), n);
  // Number i that is true goes to the place that as many true ones precede.
  const ValueId before = c.sub(running_sum(c, wide, 0), c.integer(1));
  const ValueId to = c.op("select", {mask, before, c.integer(-1)});
  return {first_slices(c, scattered(c, c.broadcast(c.integer(0), {n}), to, c.iota({n}, 0)), 0, count)};
}

// The places at which `mask` [n] is true: dimension `axis` of result 0, which has `declared` of them.
Found find_true(NodeContext& c, ValueId mask, std::optional<int64_t> declared, int axis) {
  if (!declared && may_bind_sizes(c)) return bind_true(c, mask);
  const int64_t n = c.dims(mask)[0];
  const int64_t count = declared.value_or(n);
  const ValueId sum = c.reduce("sum", c.cast(mask, DType::kI64), {0}, false);
  std::optional<ValueId> open;
  if (declared) require_count(c, 0, axis, sum, count);
  else open = sum;
  if (n == 0 || count == 0) return {c.zeros(DType::kI64, {count}), c.zeros(DType::kBool, {count}), open};
  // Number i that is true goes to the place that as many true ones precede.
  const ValueId before = c.sub(running_sum(c, c.cast(mask, DType::kI64), 0), c.integer(1));
  const ValueId to = c.op("select", {mask, before, c.integer(-1)});
  const ValueId place = scattered(c, c.broadcast(c.integer(n), {count}), to, c.iota({n}, 0));
  return {c.op("min", {place, c.integer(n - 1)}), c.op("lt", {place, c.integer(n)}), open};
}

// x gathered along `axis`; zeros where there is nothing.
ValueId gathered(NodeContext& c, ValueId x, const Found& found, int64_t axis) {
  if (!found.there) return c.op("gather", {x, found.places}, {{"axis", axis}});
  const Ints dims = c.dims(x);
  Ints along(dims.size(), 1), result = dims;
  along[static_cast<size_t>(axis)] = result[static_cast<size_t>(axis)] = c.dims(found.places)[0];
  if (checked_num_elements(result) == 0) return c.zeros(c.dtype(x), result);
  if (element_count(dims) == 0) c.unsupported("a choice among no elements");
  const ValueId y = c.op("gather", {x, found.places}, {{"axis", axis}});
  return c.op("select", {c.reshape(*found.there, along), y, c.scalar_like(y, 0)});
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

void give_first(NodeContext& c, int i, ValueId value, int64_t axis, SlotId count) {
  if (!c.wants(i)) return;
  FlowType type = c.flow_type(value);
  type.most = *type.dims;
  (*type.dims)[static_cast<size_t>(axis)] = -1;
  c.out(i, c.step(FlowOp::kSlice,
                  {c.slot(Binding(value)), c.slot(Binding(c.ints({0}))), count, c.slot(Binding(c.ints({axis}))), -1},
                  type, false, {1}));
}

namespace {

void import_compress(NodeContext& c) {
  c.require_inputs(2, 2);
  ValueId x = c.in(0);
  const ValueId condition = c.in(1);
  if (c.rank(condition) != 1 || c.dtype(condition) != DType::kBool)
    c.malformed(fmt::format("a condition of type {}", c.type(condition).to_string()), "a list of bool");
  int64_t axis = 0;
  if (c.attrs.has("axis")) axis = c.axis(c.attrs.get_int("axis", 0), c.rank(x));
  else x = c.reshape(x, {c.count(x)});
  const Expr extent = c.shape(x)[static_cast<size_t>(axis)];
  if (const auto known = as_int(extent) ? c.constant(condition) : std::nullopt)
    return c.out(0, gathered(c, x, known_places(c, places_of_true(*known, *as_int(extent))), axis));
  const auto count = declared_count(c, 0, static_cast<size_t>(c.rank(x)), static_cast<size_t>(axis));
  const Expr length = normalize_size(min(extent, c.shape(condition)[0]));
  const Found found = find_true(c, first_slices(c, condition, 0, length), count, static_cast<int>(axis));
  give(c, 0, gathered(c, x, found, axis), found, axis);
}

// The index of each element other than 0, a dimension in each row.
void import_non_zero(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const Expr n = c.count(x);
  const int64_t rank = std::ssize(dims);
  Found found;
  if (const auto known = c.constant(x)) {
    found = known_places(c, places_of_true(*known, known->num_elements()));
  } else {
    const auto count = declared_count(c, 0, 2, 1);
    const ValueId flat = c.reshape(x, {n});
    found = find_true(c, c.dtype(x) == DType::kBool ? flat : c.op("ne", {flat, c.scalar_like(x, 0)}), count, 1);
  }
  const Expr count = c.shape(found.places)[0];
  if (rank == 0) return c.out(0, c.zeros(DType::kI64, {0, count}));
  if (is_const_int(count, 0)) return give(c, 0, c.zeros(DType::kI64, {rank, 0}), found, 1);
  std::vector<ValueId> rows;
  for (size_t d = 0; d < dims.size(); ++d) {
    const Expr stride = Emitter::count(Shape(dims.begin() + static_cast<ptrdiff_t>(d) + 1, dims.end()));
    const ValueId index = c.op("rem", {c.div(found.places, c.integer(max(stride, 1))), c.integer(max(dims[d], 1))});
    rows.push_back(c.reshape(if_there(c, found, index, c.integer(0)), {1, count}));
  }
  give(c, 0, rows.size() == 1 ? rows[0] : c.op("concat", rows, {{"axis", int64_t{0}}}), found, 1);
}

// The elements, or the slices along an axis, in order; those that equal the one before them are no new ones. NaN counts
// as equal to itself and as the largest.
void import_unique(NodeContext& c) {
  c.require_inputs(1, 1);
  ValueId x = c.in(0);
  const bool sorted = c.attrs.get_int("sorted", 1) != 0;
  int64_t axis = 0;
  if (c.attrs.has("axis")) axis = c.axis(c.attrs.get_int("axis", 0), c.rank(x));
  else x = c.reshape(x, {element_count(c.dims(x))});
  const Ints dims = c.dims(x);
  const int64_t n = dims[static_cast<size_t>(axis)], width = n == 0 ? 0 : element_count(dims) / n;
  if (n == 0 || width == 0) c.unsupported("an operand without elements");
  Ints perm(dims.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + axis, perm.begin() + axis + 1);
  const ValueId rows = c.reshape(c.transpose(x, perm), {n, width});
  const auto chosen = [&](ValueId v, ValueId which) { return c.op("gather", {v, which}, {{"axis", int64_t{0}}}); };
  const auto both = [&](const char* op, ValueId a, ValueId b) { return c.op(op, {a, b}); };
  // Where each element stands in the order, and whether it begins a group of equal ones. [n]
  const ValueId order = c.reshape(c.op("order", {c.reshape(rows, {1, n, width})}, {{"count", n}}), {n});
  const auto part = [&](int64_t first) { return c.slice(order, {first}, {n - 1}, {1}); };
  ValueId begins = c.constant_value([] {
    Tensor yes(DType::kBool, {1});
    yes.set_int(0, 1);
    return yes;
  }());
  if (n > 1) {
    const ValueId a = chosen(rows, part(0)), b = chosen(rows, part(1));
    ValueId differ = c.op("ne", {a, b});
    if (is_float(c.dtype(rows))) {
      const ValueId nan = both("logical_and", c.op("ne", {a, a}), c.op("ne", {b, b}));
      differ = both("logical_and", differ, c.op("logical_not", {nan}));
    }
    begins = c.op("concat", {begins, c.reduce("max", differ, {1}, false)}, {{"axis", int64_t{0}}});
  }
  const ValueId group = c.sub(running_sum(c, c.cast(begins, DType::kI64), 0), c.integer(1));
  const ValueId groups = c.reduce("sum", c.cast(begins, DType::kI64), {0}, false);
  int64_t count = 0;
  std::optional<ValueId> open;
  std::optional<Expr> bound;
  if (const auto known = c.constant(begins)) {
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
    if (!found || *found < 1 || *found > n) {
      count = n;
      if (may_bind_sizes(c)) bound = bind_size(c, groups, n);
      else open = groups;
    } else {
      count = *found;
      const int first = c.wants(0) ? 0 : c.wants(1) ? 1 : 3;
      require_count(c, first, first == 0 ? static_cast<int>(axis) : 0, groups, count);
    }
  }
  // Of each group the first element, which the order, being stable, has at its begin; of each element its group. What
  // the declared number has no place for is left out.
  const auto to_places = [&](int64_t length, int64_t fill, ValueId at, ValueId values) {
    return scattered(c, c.broadcast(c.integer(fill), {length}), at, values);
  };
  ValueId first = to_places(count, 0, c.op("select", {begins, group, c.integer(-1)}), order);
  ValueId group_of = to_places(n, 0, order, group);
  if (!sorted) {
    // Groups in the order of their first elements: of those, the ones that come earlier are counted.
    const ValueId leads =
        to_places(n, 0, c.op("select", {begins, order, c.integer(-1)}), c.broadcast(c.integer(1), {n}));
    const ValueId rank = c.sub(running_sum(c, leads, 0), c.integer(1));
    const ValueId firsts = to_places(n, 0, c.op("select", {begins, group, c.integer(-1)}), order);
    group_of = chosen(rank, chosen(firsts, group_of));
    first =
        to_places(count, 0, c.op("select", {c.op("eq", {leads, c.integer(1)}), rank, c.integer(-1)}), c.iota({n}, 0));
  }
  const ValueId counts = c.reshape(c.op("scatter",
                                        {c.broadcast(c.integer(0), {1, count, 1}), c.reshape(group_of, {1, n}),
                                         c.broadcast(c.integer(1), {1, n, 1})},
                                        {{"join", std::string("add")}}),
                                   {count});
  if (bound) {
    c.out(0, gathered(c, x, {first_slices(c, first, 0, *bound)}, axis));
    c.out(1, first_slices(c, first, 0, *bound));
    c.out(2, group_of);
    return c.out(3, first_slices(c, counts, 0, *bound));
  }
  const ValueId there = c.op("gt", {counts, c.integer(0)});
  const Found found{first, there, open};
  give(c, 0, gathered(c, x, found, axis), found, axis);
  give(c, 1, first, found, 0);
  c.out(2, group_of);
  give(c, 3, counts, found, 0);
}

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
    if (c.num_elements(v) != 1)
      c.malformed(fmt::format("input {} of type {}", i, c.type(v).to_string()), "one element");
    return c.reshape(v, {});
  };
  int64_t most = n;  // for each class
  std::optional<ValueId> limit;
  if (!c.has(2)) most = 0;
  else if (const ValueId given = scalar(2); const auto known = c.constant(given))
    most = std::clamp<int64_t>(known->get_int(0), 0, n);
  else limit = given;
  if (most == 0 || element_count(dims) == 0) return c.out(0, c.constant_value(Tensor(DType::kI64, {0, 3})));
  const auto declared = declared_count(c, 0, 2, 0);
  if (declared) most = std::min(most, *declared + 1);  // one more, to see that there are no further ones
  std::vector<ValueId> operands = {boxes, scores, limit ? c.cast(*limit, DType::kI64) : c.integer(most)};
  operands.push_back(c.has(3) ? c.cast(scalar(3), c.dtype(boxes)) : c.scalar_like(boxes, 0));
  if (c.has(4)) operands.push_back(c.cast(scalar(4), c.dtype(scores)));
  const ValueId chosen =
      c.reshape(c.op("suppress", operands, {{"most", most}, {"centres", centres}}), {images * classes * most});
  const Found found = find_true(c, c.op("ge", {chosen, c.integer(0)}), declared, 0);
  const Expr count = c.shape(found.places)[0];
  if (is_const_int(count, 0)) return c.out(0, c.constant_value(Tensor(DType::kI64, {0, 3})));
  const auto column = [&](ValueId v) { return c.reshape(if_there(c, found, v, c.integer(0)), {count, 1}); };
  const ValueId group = c.div(found.places, c.integer(most));
  const ValueId box = c.op("gather", {chosen, found.places}, {{"axis", int64_t{0}}});
  const ValueId rows =
      c.op("concat",
           {column(c.div(group, c.integer(classes))), column(c.op("rem", {group, c.integer(classes)})), column(box)},
           {{"axis", int64_t{1}}});
  give(c, 0, rows, found, 0);
}

}  // namespace

OperatorFamily selection_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Compress", 9, import_compress},
      OperatorImporter{"NonMaxSuppression", 10, import_non_max_suppression},
      OperatorImporter{"NonZero", 9, import_non_zero},
      OperatorImporter{"Unique", 11, import_unique},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
