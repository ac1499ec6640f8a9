// Values that arrive at places which other values name.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

using Ints = std::vector<int64_t>;

// x with updates at places along an axis, element by element: places and updates have the rank of x.
ValueId with_elements(AtenContext& c, ValueId x, size_t axis, ValueId index, ValueId updates, const std::string& join) {
  const Shape dims = c.shape(x), shape = c.shape(index);
  if (shape.size() != dims.size() || c.shape(updates).size() != dims.size())
    c.malformed("an index of another rank", "one rank");
  updates = c.cast(c.slice(updates, Shape(shape.size(), 0), shape, Ints(shape.size(), 1)), c.dtype(x));
  ValueId places = counted_from_front(c, index, dims[axis]);
  Shape low(dims.size(), 0), high(dims.size(), 0);
  for (size_t d = 0; d < dims.size(); ++d)
    if (d != axis) high[d] = normalize_size(dims[d] - shape[d]);
  // Rows without updates get some that arrive nowhere.
  if (std::any_of(high.begin(), high.end(), [](const Expr& more) { return !is_const_int(more, 0); })) {
    const Attrs pads = {{"low", low}, {"high", high}, {"mode", std::string("constant")}};
    places = c.op("pad", {places, c.integer(-1)}, pads);
    updates = c.op("pad", {updates, c.scalar_like(updates, 0)}, pads);
  }
  const Ints order = axis_last(c.rank(x), static_cast<int64_t>(axis));
  const auto turned = [&](ValueId v) {
    const ValueId t = c.transpose(v, order);
    Shape with_inner = c.shape(t);
    with_inner.push_back(1);
    return c.reshape(t, with_inner);
  };
  const ValueId y = scattered(c, turned(x), c.transpose(places, order), turned(updates), join);
  Shape flat = c.shape(y);
  flat.pop_back();
  return c.transpose(c.reshape(y, flat), order);
}

// The operands of such an operator; a number counts as a list of one.
struct Elements {
  ValueId x, index, updates;
  size_t axis;
  bool is_number;
};

Elements elements_of(AtenContext& c, ValueId updates) {
  const ValueId given = c.tensor("self");
  ValueId index = c.tensor("index");
  require_indices(c, index);
  const bool is_number = c.rank(given) == 0;
  const ValueId x = is_number ? c.reshape(given, {1}) : given;
  if (c.rank(index) == 0) index = c.reshape(index, {1});
  if (c.rank(updates) == 0) updates = c.broadcast(updates, c.shape(index));
  return {x, index, updates, static_cast<size_t>(c.dimension("dim", c.rank(x))), is_number};
}

void put_elements(AtenContext& c, ValueId updates, const std::string& join) {
  const Elements e = elements_of(c, updates);
  const ValueId y = with_elements(c, e.x, e.axis, e.index, e.updates, join);
  c.out(e.is_number ? c.reshape(y, {}) : y);
}

void import_scatter(AtenContext& c) {
  const std::string word = c.text("reduce", "");
  const std::string join = word == "add" ? "add" : word == "multiply" ? "mul" : "none";
  put_elements(c, c.has("src") ? c.tensor("src") : c.as("value", c.dtype(c.tensor("self"))), join);
}

void import_scatter_add(AtenContext& c) { put_elements(c, c.tensor("src"), "add"); }

// The extreme values of a type, as a constant.
ValueId bound_of(AtenContext& c, DType dtype, bool most) {
  if (is_float(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return c.scalar(dtype, most ? infinity : -infinity);
  }
  const int bits = dtype_bits(dtype);
  const bool is_signed = is_signed_int(dtype);
  Tensor value(dtype, {});
  if (most) value.set_int(0, bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - is_signed)) - 1);
  else
    value.set_int(0, !is_signed ? 0 : bits == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (bits - 1)));
  return c.constant_value(std::move(value));
}

// Sums, products, means, extrema of the updates of each place, with what was there before or without it. What gets no
// update stays.
ValueId reduced_elements(AtenContext& c, const Elements& e) {
  const std::string word = c.text("reduce");
  const bool is_mean = word == "mean", with_self = c.truth("include_self", true);
  const std::string join = word == "sum" || is_mean ? "add" : word == "prod" ? "mul" : word == "amax" ? "max" : "min";
  if (join == "min" && word != "amin") c.unsupported(fmt::format("the reduction '{}'", word));
  const auto counted = [&](ValueId from) {
    const ValueId ones = c.broadcast(c.integer(1), c.shape(e.index));
    return with_elements(c, from, e.axis, e.index, ones, "add");
  };
  ValueId x = e.x;
  const DType dtype = c.dtype(x);
  if (!with_self) {
    const ValueId identity = join == "add"   ? c.scalar(dtype, 0)
                             : join == "mul" ? c.scalar(dtype, 1)
                                             : bound_of(c, dtype, join == "min");
    const ValueId count = counted(c.zeros(DType::kI64, c.shape(x)));
    x = c.op("select", {c.op("gt", {count, c.integer(0)}), identity, x});
  }
  const ValueId y = with_elements(c, x, e.axis, e.index, e.updates, join);
  if (!is_mean) return y;
  const ValueId before = c.broadcast(c.integer(with_self ? 1 : 0), c.shape(x));
  const ValueId count = c.cast(c.op("max", {counted(before), c.integer(1)}), dtype);
  return is_float(dtype) ? c.div(y, count) : floor_quotient(c, y, count);
}

void import_scatter_reduce(AtenContext& c) {
  const Elements e = elements_of(c, c.tensor("src"));
  const ValueId y = reduced_elements(c, e);
  c.out(e.is_number ? c.reshape(y, {}) : y);
}

// One index for whole slices.
void import_index_reduce(AtenContext& c) {
  Elements e = elements_of(c, c.tensor("source"));
  if (e.is_number) e.updates = c.reshape(e.updates, {1});
  Shape along(static_cast<size_t>(c.rank(e.x)), 1);
  along[e.axis] = c.shape(e.index)[0];
  e.index = c.broadcast(c.reshape(e.index, along), c.shape(e.updates));
  const ValueId y = reduced_elements(c, e);
  c.out(e.is_number ? c.reshape(y, {}) : y);
}

// Places among all elements.
void import_put(AtenContext& c) {
  const ValueId x = c.tensor("self"), index = c.tensor("index");
  require_indices(c, index);
  const Expr count = c.count(x), updates = c.count(index);
  const ValueId places = counted_from_front(c, c.reshape(index, {updates}), count);
  const ValueId y = scattered(c, c.reshape(x, {count, 1}), places, c.reshape(c.tensor("source"), {updates, 1}),
                              c.truth("accumulate", false) ? "add" : "none");
  c.out(c.reshape(y, c.shape(x)));
}

// The elements that a mask chooses, one after the other, are those of the source in order.
void import_masked_scatter(AtenContext& c) {
  const ValueId given = c.tensor("self"), source = c.tensor("source");
  const Shape shape = c.result_shape().value_or(c.shape(given));
  const ValueId x = c.broadcast(given, shape), mask = c.broadcast(c.cast(c.tensor("mask"), DType::kBool), shape);
  const Expr count = c.count(x), extent = c.count(source);
  if (is_const_int(count, 0) || is_const_int(extent, 0)) return c.out(x);
  const ValueId numbers = c.op("cumulate", {c.reshape(c.cast(mask, DType::kI64), {count})},
                               {{"axis", int64_t{0}}, {"kind", std::string("sum")}});
  const ValueId last = c.sub(c.integer(extent), c.integer(1));
  const ValueId place = c.op("min", {c.op("max", {c.sub(numbers, c.integer(1)), c.integer(0)}), last});
  const ValueId taken = c.op("gather", {c.reshape(source, {extent}), place}, {{"axis", int64_t{0}}});
  c.out(c.op("select", {mask, c.reshape(taken, c.shape(x)), x}));
}

// x with another diagonal.
void import_diagonal_scatter(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const int64_t first = c.dimension("dim1", c.rank(x), 0), second = c.dimension("dim2", c.rank(x), 1);
  const int64_t offset = c.whole("offset", 0), count = c.dims(c.tensor("src")).back();
  if (count == 0) return c.out(x);
  Ints order, back(static_cast<size_t>(c.rank(x)));
  for (int d = 0; d < c.rank(x); ++d)
    if (d != first && d != second) order.push_back(d);
  order.insert(order.end(), {first, second});
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const ValueId turned = c.transpose(x, order);
  const Ints dims = c.dims(turned);
  const int64_t rows = dims[dims.size() - 2], columns = dims.back();
  // Along rows, or along columns of a diagonal that begins further down, in which the place on the diagonal counts.
  const bool by_rows = offset >= 0;
  const int64_t lines = by_rows ? rows : columns;
  Tensor places(DType::kI64, {lines});
  for (int64_t i = 0; i < lines; ++i) places.set_int(i, std::min(i, count - 1));
  const ValueId spread = c.op("gather", {c.cast(c.tensor("src"), c.dtype(x)), c.constant_value(std::move(places))},
                              {{"axis", int64_t{c.rank(x) - 2}}});
  Shape sizes = c.shape(spread);
  sizes.insert(by_rows ? sizes.end() : sizes.end() - 1, 1);
  const ValueId row = c.add(c.iota({rows, 1}, 0), c.integer(offset));
  const ValueId is_diagonal = c.op("eq", {row, c.iota({1, columns}, 1)});
  c.out(c.transpose(c.op("select", {is_diagonal, c.reshape(spread, sizes), turned}), back));
}

// Rows of a table, joined for each bag of indices.
void import_embedding_bag(AtenContext& c) {
  const ValueId table = c.tensor("weight"), indices = c.cast(c.tensor("indices"), DType::kI64);
  ValueId offsets = c.cast(c.tensor("offsets"), DType::kI64);
  if (c.truth("include_last_offset", false)) offsets = c.slice(offsets, {0}, {c.dims(offsets)[0] - 1}, {1});
  const int64_t bags = c.dims(offsets)[0], count = c.dims(indices)[0], mode = c.whole("mode", 0);
  const int64_t padding = c.whole("padding_idx", -1), depth = c.dims(table)[1];
  const DType dtype = c.dtype(table);
  if (bags == 0 || count == 0) return c.out(c.zeros(dtype, {bags, depth}));
  // The bags that begin at or before an index, less one.
  const ValueId begun = c.op("le", {c.reshape(offsets, {1, bags}), c.iota({count, 1}, 0)});
  ValueId bag = c.sub(c.reduce("sum", c.cast(begun, DType::kI64), {1}, false), c.integer(1));
  if (padding >= 0) bag = c.op("select", {c.op("eq", {indices, c.integer(padding)}), c.integer(-1), bag});
  ValueId rows = c.op("gather", {table, indices}, {{"axis", int64_t{0}}});
  if (const auto weights = c.maybe_tensor("per_sample_weights")) rows = c.mul(rows, c.reshape(*weights, {count, 1}));
  const auto joined = [&](ValueId start, ValueId updates, const char* join) {
    return scattered(c, start, bag, updates, join);
  };
  const ValueId sizes = joined(c.zeros(DType::kI64, {bags, 1}), c.broadcast(c.integer(1), Ints{count, 1}), "add");
  const ValueId zeros = c.zeros(dtype, {bags, depth});
  if (mode != 2) {
    const ValueId sum = joined(zeros, rows, "add");
    return c.out(mode == 0 ? sum : c.div(sum, c.cast(c.op("max", {sizes, c.integer(1)}), dtype)));
  }
  const ValueId most = joined(c.broadcast(bound_of(c, dtype, false), c.shape(zeros)), rows, "max");
  c.out(c.op("select", {c.op("gt", {sizes, c.integer(0)}), most, zeros}));
}

// How many elements are in each of some parts, of one width, of a range.
void import_histc(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const DType dtype = c.dtype(given);
  const int64_t bins = c.whole("bins", 100);
  const Expr count = c.count(given);
  const double low = c.number("min", 0), high = c.number("max", 0);
  if (is_const_int(count, 0)) return c.out(c.zeros(dtype, {bins}));
  const ValueId x = c.reshape(given, {count, 1});
  ValueId least = c.scalar_like(x, low), most = c.scalar_like(x, high);
  if (low == high) {
    least = c.reshape(c.reduce("min", x, {0, 1}, false), {});
    most = c.reshape(c.reduce("max", x, {0, 1}, false), {});
    const ValueId one = c.scalar_like(x, 1), equal = c.op("eq", {least, most});
    const ValueId lower = c.op("select", {equal, c.sub(least, one), least});
    most = c.op("select", {equal, c.add(most, one), most});
    least = lower;
  }
  const ValueId place = c.div(c.mul(c.sub(x, least), c.scalar_like(x, static_cast<double>(bins))), c.sub(most, least));
  const ValueId bin = c.op("min", {c.cast(place, DType::kI64), c.integer(bins - 1)});
  const ValueId inside = c.op("logical_and", {c.op("ge", {x, least}), c.op("le", {x, most})});
  const ValueId places = c.reshape(c.op("select", {inside, bin, c.integer(-1)}), {count});
  const ValueId ones = c.broadcast(c.scalar_like(x, 1), c.shape(x));
  c.out(c.reshape(scattered(c, c.zeros(dtype, {bins, 1}), places, ones, "add"), {bins}));
}

}  // namespace

std::span<const AtenOperator> scattering_operators() {
  static constexpr AtenOperator table[] = {
      {"_embedding_bag", import_embedding_bag},
      {"_embedding_bag_forward_only", import_embedding_bag},
      {"diagonal_scatter", import_diagonal_scatter},
      {"histc", import_histc},
      {"index_reduce", import_index_reduce},
      {"masked_scatter", import_masked_scatter},
      {"put", import_put},
      {"scatter", import_scatter},
      {"scatter_add", import_scatter_add},
      {"scatter_reduce", import_scatter_reduce},
  };
  return table;
}

}  // namespace tessera::inline aten
