// Elements that are taken, placed, counted or ordered by other values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "import/common/limits.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

int64_t product_of(const Ints& dims, size_t first, size_t last) {
  int64_t product = 1;
  for (size_t d = first; d < last; ++d) product *= dims[d];
  return product;
}

void require_ints(OperatorContext& c, ValueId v, const std::string& what) {
  if (c.dtype(v) != DType::kI32 && c.dtype(v) != DType::kI64)
    c.malformed(fmt::format("{} of type {}", what, c.type(v).to_string()), "i32 or i64");
}

void import_gather(OperatorContext& c) {
  c.require_inputs(2, 2);
  const auto& options = c.options<tflite::GatherOptions>();
  const ValueId x = c.in(0), given = c.in(1);
  if (!is_int(c.dtype(given))) c.malformed(fmt::format("indices of type {}", c.type(given).to_string()), "integers");
  const ValueId indices = c.cast(given, dtype_bits(c.dtype(given)) < 32 ? DType::kI32 : c.dtype(given));
  const int axis = c.axis(options.axis(), c.rank(x));
  int64_t batch = options.batch_dims();
  if (batch < 0) batch += c.rank(indices);
  if (batch == 0) return c.out(0, c.op("gather", {x, indices}, {{"axis", int64_t{axis}}}));
  const Ints dims = c.dims(x), places = c.dims(indices);
  const auto b = static_cast<size_t>(batch), a = static_cast<size_t>(axis);
  if (batch < 0 || batch > axis || b > places.size() ||
      !std::equal(dims.begin(), dims.begin() + batch, places.begin(), places.begin() + batch))
    c.malformed(
        fmt::format("{} batch dimensions of {} and {}", batch, c.type(x).to_string(), c.type(indices).to_string()),
        "as many in front of the axis, equal ones");
  // One list of indices for each entry of the batch: [batch, outer, axis, inner] at [batch, places].
  const int64_t entries = product_of(dims, 0, b), outer = product_of(dims, b, a), extent = dims[a];
  const int64_t inner = product_of(dims, a + 1, dims.size()), count = product_of(places, b, places.size());
  const ValueId in_range = c.op(
      "min", {c.op("max", {c.cast(indices, DType::kI64), c.integer(0)}), c.integer(std::max<int64_t>(extent - 1, 0))});
  const ValueId from = c.mul(c.iota(Ints{entries * outer, 1}, 0), c.integer(extent));
  const ValueId list = c.reshape(c.broadcast(c.reshape(in_range, {entries, 1, count}), Ints{entries, outer, count}),
                                 {entries * outer, count});
  const ValueId found =
      c.op("gather", {c.reshape(x, {entries * outer * extent, inner}), c.add(list, from)}, {{"axis", int64_t{0}}});
  Ints shape(dims.begin(), dims.begin() + axis);
  shape.insert(shape.end(), places.begin() + batch, places.end());
  shape.insert(shape.end(), dims.begin() + axis + 1, dims.end());
  c.out(0, c.op("reshape", {found}, {{"shape", shape}}));
}

// Rows of indices [rows, n] as places among the elements of the first n dimensions; -1 for one that is not there.
ValueId flat_places(OperatorContext& c, ValueId indices, const Ints& extents) {
  const Expr rows = c.shape(indices)[0];
  ValueId place = -1, inside = -1;
  for (size_t k = 0; k < extents.size(); ++k) {
    const ValueId index = c.reshape(c.slice(indices, Ints{0, static_cast<int64_t>(k)}, {rows, 1}, {1, 1}), {rows});
    const ValueId there =
        c.op("logical_and", {c.op("ge", {index, c.integer(0)}), c.op("lt", {index, c.integer(extents[k])})});
    inside = inside < 0 ? there : c.op("logical_and", {inside, there});
    place = place < 0 ? index : c.add(c.mul(place, c.integer(extents[k])), index);
  }
  return c.op("select", {inside, place, c.integer(-1)});
}

// Indices [..., n] as rows.
struct Rows {
  ValueId indices = -1;  // i64 [rows, n]
  Ints outer;
  int64_t rows = 1, width = 1;
};
Rows rows_of(OperatorContext& c, int i, int most) {
  const ValueId given = c.in(i);
  require_ints(c, given, "indices");
  Rows r;
  r.outer = c.dims(given);
  if (r.outer.empty()) c.malformed("an index without dimensions", "indices [...,n]");
  r.width = r.outer.back();
  r.outer.pop_back();
  if (r.width < 1 || r.width > most)
    c.malformed(fmt::format("indices of {} numbers each", r.width), fmt::format("1 to {}", most));
  r.rows = product_of(r.outer, 0, r.outer.size());
  r.indices = c.reshape(c.cast(given, DType::kI64), {r.rows, r.width});
  return r;
}

void import_gather_nd(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const ValueId given = c.in(1);
  require_ints(c, given, "indices");
  // As many places as values decide.
  if (const Shape shape = c.shape(given); shape.size() == 2 && !as_int(shape[0])) {
    const auto width = as_int(shape[1]).value_or(0);
    if (width != std::ssize(dims)) c.unsupported("places of parts, as many as values decide");
    const ValueId place = c.op("max", {flat_places(c, c.cast(given, DType::kI64), dims), c.integer(0)});
    return c.out(0, c.op("gather", {c.reshape(x, {c.num_elements(x)}), place}, {{"axis", int64_t{0}}}));
  }
  const Rows r = rows_of(c, 1, c.rank(x));
  const auto n = static_cast<size_t>(r.width);
  const Ints extents(dims.begin(), dims.begin() + r.width);
  const ValueId place = c.op("max", {flat_places(c, r.indices, extents), c.integer(0)});
  const ValueId flat = c.reshape(x, {product_of(dims, 0, n), product_of(dims, n, dims.size())});
  Ints shape = r.outer;
  shape.insert(shape.end(), dims.begin() + r.width, dims.end());
  c.out(0, c.op("reshape", {c.op("gather", {flat, place}, {{"axis", int64_t{0}}})}, {{"shape", shape}}));
}

Ints result_shape(OperatorContext& c, int i) {
  const Ints shape = c.const_ints(i, "the shape");
  if (!checked_num_elements(shape) || shape.size() > kMostDims)
    c.malformed(fmt::format("a result of shape [{}]", fmt::join(shape, ",")), "at most 2^40 elements");
  return shape;
}

// What comes twice to a place is added.
void import_scatter_nd(OperatorContext& c) {
  c.require_inputs(3, 3);
  const Ints shape = result_shape(c, 2);
  const Rows r = rows_of(c, 0, static_cast<int>(shape.size()));
  const auto n = static_cast<size_t>(r.width);
  const int64_t places = product_of(shape, 0, n), inner = product_of(shape, n, shape.size());
  ValueId updates = c.in(1);
  Ints wanted = r.outer;
  wanted.insert(wanted.end(), shape.begin() + r.width, shape.end());
  if (c.dims(updates) != wanted)
    c.malformed(fmt::format("updates of type {}", c.type(updates).to_string()),
                fmt::format("of shape [{}]", fmt::join(wanted, ",")));
  const DType dtype = c.dtype(updates), wide = dtype == DType::kBool ? DType::kU8 : dtype;
  updates = c.reshape(c.cast(updates, wide), {1, r.rows, inner});
  const ValueId place = flat_places(c, r.indices, Ints(shape.begin(), shape.begin() + r.width));
  const ValueId empty = c.zeros(wide, Ints{1, places, inner});
  const ValueId y = c.op("scatter", {empty, c.reshape(place, {1, r.rows}), updates},
                         {{"join", std::string(dtype == DType::kBool ? "max" : "add")}});
  c.out(0, c.cast(c.op("reshape", {y}, {{"shape", shape}}), dtype));
}

// Indices: one, a list for a vector, or rows.
void import_sparse_to_dense(OperatorContext& c) {
  c.require_inputs(4, 4);
  ValueId indices = c.in(0);
  const Ints shape = result_shape(c, 1);
  const ValueId values = c.in(2), rest = c.in(3);
  require_ints(c, indices, "indices");
  const Ints given = c.dims(indices);
  const int64_t rank = static_cast<int64_t>(shape.size()), rows = given.empty() ? 1 : given[0];
  const int64_t width = given.size() == 2 ? given[1] : 1;
  const bool one_value = c.rank(values) == 0;
  if (given.size() > 2 || width != rank || (!one_value && c.num_elements(values) != rows) ||
      c.num_elements(rest) != 1 || c.dtype(rest) != c.dtype(values))
    c.malformed(fmt::format("operands of types {}, {} and {} for [{}]", c.type(indices).to_string(),
                            c.type(values).to_string(), c.type(rest).to_string(), fmt::join(shape, ",")),
                "indices [n,rank], n values or one, and one of the same type for the rest");
  indices = c.reshape(c.cast(indices, DType::kI64), {rows, width});
  const int64_t places = product_of(shape, 0, shape.size());
  const ValueId filled = c.broadcast(c.reshape(rest, {1, 1, 1}), Ints{1, places, 1});
  const ValueId updates =
      one_value ? c.broadcast(c.reshape(values, {1, 1, 1}), Ints{1, rows, 1}) : c.reshape(values, {1, rows, 1});
  const ValueId place = c.reshape(flat_places(c, indices, shape), {1, rows});
  const ValueId y = c.op("scatter", {filled, place, updates}, {{"join", std::string("none")}});
  c.out(0, c.op("reshape", {y}, {{"shape", shape}}));
}

void import_one_hot(OperatorContext& c) {
  c.require_inputs(4, 4);
  const ValueId indices = c.in(0);
  const int64_t depth = c.const_int(1, "the depth");
  require_ints(c, indices, "indices");
  if (c.dtype(c.in(2)) != c.dtype(c.in(3)) || c.num_elements(c.in(2)) != 1 || c.num_elements(c.in(3)) != 1)
    c.malformed(fmt::format("values of types {} and {}", c.type(c.in(2)).to_string(), c.type(c.in(3)).to_string()),
                "two numbers of one type");
  Ints dims = c.dims(indices);
  const int64_t option = c.options<tflite::OneHotOptions>().axis();
  const int axis = option == -1 ? c.rank(indices) : c.axis(option, c.rank(indices) + 1);
  if (depth < 0 || depth > kMaxTensorElements) c.malformed(fmt::format("a depth of {}", depth), "at least 0");
  dims.insert(dims.begin() + axis, 1);
  Ints places(dims.size(), 1);
  places[static_cast<size_t>(axis)] = depth;
  const ValueId here = c.op("eq", {c.reshape(c.cast(indices, DType::kI64), dims), c.iota(places, axis)});
  c.out(0, c.op("select", {here, c.reshape(c.in(2), {}), c.reshape(c.in(3), {})}));
}

// Along one dimension the first so many are turned round: as many as a list says for each entry of another one.
void import_reverse_sequence(OperatorContext& c) {
  c.require_inputs(2, 2);
  const auto& options = c.options<tflite::ReverseSequenceOptions>();
  const ValueId x = c.in(0), lengths = c.in(1);
  const Ints dims = c.dims(x);
  const int along = c.axis(options.seq_dim(), c.rank(x)), batch = c.axis(options.batch_dim(), c.rank(x));
  require_ints(c, lengths, "lengths");
  if (along == batch || c.dims(lengths) != Ints{dims[static_cast<size_t>(batch)]})
    c.malformed(fmt::format("lengths of type {} for {} along {} and {}", c.type(lengths).to_string(),
                            c.type(x).to_string(), along, batch),
                "one for each entry of another dimension than that of the sequence");
  Ints shape(dims.size(), 1), places(dims.size(), 1);
  shape[static_cast<size_t>(batch)] = dims[static_cast<size_t>(batch)];
  places[static_cast<size_t>(along)] = dims[static_cast<size_t>(along)];
  const ValueId place = c.iota(places, along), length = c.reshape(c.cast(lengths, DType::kI64), shape);
  const ValueId turned = c.sub(c.sub(length, c.integer(1)), place);
  const ValueId index = c.op("select", {c.op("lt", {place, length}), turned, place});
  c.out(0, c.op("gather_elements", {x, c.broadcast(index, dims)}, {{"axis", int64_t{along}}}));
}

// The least and the greatest number of a type.
ValueId limit_of(OperatorContext& c, DType dtype, bool greatest) {
  if (is_float(dtype)) {
    const double most = dtype == DType::kF64 ? std::numeric_limits<double>::max()
                                             : static_cast<double>(std::numeric_limits<float>::max());
    return c.scalar(dtype, greatest ? most : -most);
  }
  Tensor number(dtype, {});
  const int bits = dtype_bits(dtype);
  const int64_t most = bits == 64 ? INT64_MAX : (int64_t{1} << (is_signed_int(dtype) ? bits - 1 : bits)) - 1;
  number.set_int(0, greatest ? most : is_signed_int(dtype) ? -most - 1 : 0);
  return c.constant_value(std::move(number));
}

// Joins the slices of each segment; SEGMENT_SUM has as many segments as its last number says.
void import_segments(OperatorContext& c) {
  using enum tflite::BuiltinOperator;
  const bool sorted = c.code() == SEGMENT_SUM;
  c.require_inputs(sorted ? 2 : 3, sorted ? 2 : 3);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  int64_t count = 0;
  if (sorted) {
    const Ints ids = c.const_ints(1, "the list of segments");
    for (size_t i = 0; i < ids.size(); ++i)
      if (i == 0 ? ids[0] != 0 : ids[i] != ids[i - 1] && ids[i] != ids[i - 1] + 1)
        c.malformed("segments that are no rising list without gaps", "0, 0, 1, 2, 2, ...");
    count = ids.empty() ? 0 : ids.back() + 1;
  } else {
    count = c.const_int(2, "the number of segments");
  }
  const ValueId ids = c.in(1);
  require_ints(c, ids, "segments");
  const Ints places = c.dims(ids);
  if (places.empty() || places.size() > dims.size() || !std::equal(places.begin(), places.end(), dims.begin()) ||
      count < 0 || count > kMaxTensorElements)
    c.malformed(fmt::format("{} segments, by {}, of {}", count, c.type(ids).to_string(), c.type(x).to_string()),
                "a segment for each slice");
  const int64_t rows = product_of(dims, 0, places.size()), inner = product_of(dims, places.size(), dims.size());
  Ints shape = {count};
  shape.insert(shape.end(), dims.begin() + static_cast<std::ptrdiff_t>(places.size()), dims.end());
  if (!checked_num_elements(shape)) c.malformed(fmt::format("{} segments", count), "at most 2^40 elements");
  const DType dtype = c.dtype(x);
  ValueId empty = c.scalar(dtype, 0);
  std::string join = "add";
  switch (c.code()) {
    case UNSORTED_SEGMENT_PROD: join = "mul", empty = c.scalar(dtype, 1); break;
    case UNSORTED_SEGMENT_MAX: join = "max", empty = limit_of(c, dtype, false); break;
    case UNSORTED_SEGMENT_MIN: join = "min", empty = limit_of(c, dtype, true); break;
    default: break;
  }
  const ValueId y = c.op("scatter",
                         {c.broadcast(empty, Ints{1, count, inner}), c.reshape(c.cast(ids, DType::kI64), {1, rows}),
                          c.reshape(x, {1, rows, inner})},
                         {{"join", join}});
  c.out(0, c.op("reshape", {y}, {{"shape", shape}}));
}

// Rows of a table by number; of one in integers the numbers that they stand for.
void import_embedding_lookup(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId list = c.in(0);
  ValueId table = c.in(1);
  require_ints(c, list, "a list of rows");
  if (c.rank(list) != 1 || c.rank(table) < 2)
    c.malformed(fmt::format("operands of types {} and {}", c.type(list).to_string(), c.type(table).to_string()),
                "a list, and a table of rows");
  ValueId rows = c.op("gather", {table, list}, {{"axis", int64_t{0}}});
  const TfliteTensor& info = c.tensor(1);
  if (!is_float(c.dtype(table)) && is_float(c.output(0).dtype)) {
    const std::vector<float>& scales = info.quantization.scales;
    if (info.quantization.is_blockwise) c.unsupported("a scale for each block");
    if (scales.empty()) c.malformed(fmt::format("tensor '{}' has no scale", info.name), "one or more");
    rows = c.cast(c.cast(rows, DType::kI32), DType::kF32);
    if (scales.size() == 1) {
      rows = c.mul(rows, c.scalar(DType::kF32, static_cast<double>(scales[0])));
    } else {
      if (info.quantization.axis != 0) c.unsupported("scales along another dimension than that of the rows");
      Tensor all(DType::kF32, {static_cast<int64_t>(scales.size())});
      std::copy(scales.begin(), scales.end(), all.as_mutable<float>().begin());
      Ints shape(static_cast<size_t>(c.rank(rows)), 1);
      shape[0] = c.dims(list)[0];
      const ValueId own = c.op("gather", {c.constant_value(std::move(all)), list}, {{"axis", int64_t{0}}});
      rows = c.mul(rows, c.reshape(own, shape));
    }
  }
  c.out(0, rows);
}

void import_dynamic_update_slice(OperatorContext& c) {
  c.require_inputs(3, 3);
  const ValueId x = c.in(0), update = c.in(1), starts = c.in(2);
  require_ints(c, starts, "the list of starts");
  if (c.dtype(x) != c.dtype(update) || c.rank(x) != c.rank(update) || c.dims(starts) != Ints{c.rank(x)})
    c.malformed(fmt::format("operands of types {}, {} and {}", c.type(x).to_string(), c.type(update).to_string(),
                            c.type(starts).to_string()),
                "two values of one type and rank, and a place");
  c.out(0, c.op("dynamic_update_slice", {x, update, c.cast(starts, DType::kI64)}));
}

void import_cumsum(OperatorContext& c) {
  c.require_inputs(2, 2);
  const auto& options = c.options<tflite::CumsumOptions>();
  const ValueId x = c.in(0);
  const int64_t axis = c.axis(c.const_int(1, "the axis"), c.rank(x));
  c.out(0, c.op("cumulate", {x},
                {{"axis", axis},
                 {"kind", std::string("sum")},
                 {"exclusive", options.exclusive()},
                 {"reverse", options.reverse()}}));
}

// How many boundaries a number is not below.
void import_bucketize(OperatorContext& c) {
  c.require_inputs(1, 1);
  const auto* list = c.options<tflite::BucketizeOptions>().boundaries();
  const ValueId x = c.in(0);
  constexpr uint32_t kMost = 4096;
  const uint32_t count = list ? list->size() : 0;
  if (count > kMost) c.unsupported(fmt::format("more than {} boundaries", kMost));
  Tensor boundaries(DType::kF32, {static_cast<int64_t>(count)});
  for (uint32_t i = 0; i < count; ++i) {
    boundaries.as_mutable<float>()[i] = list->Get(i);
    if (i > 0 && !(list->Get(i - 1) <= list->Get(i))) c.malformed("boundaries that do not rise", "a rising list");
  }
  Ints dims = c.dims(x), apart = dims;
  apart.push_back(1);
  const DType wide = c.dtype(x) == DType::kI64 || c.dtype(x) == DType::kF64 ? DType::kF64 : DType::kF32;
  const ValueId reached =
      c.op("ge", {c.cast(c.reshape(x, apart), wide), c.cast(c.constant_value(std::move(boundaries)), wide)});
  c.out(0, c.reduce("sum", c.cast(reached, DType::kI32), {c.rank(x)}, false));
}

// The largest along the last dimension, and where they are.
void import_top_k(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const int64_t count = c.const_int(1, "k");
  if (c.rank(x) < 1) c.malformed("a number", "one dimension or more");
  Ints dims = c.dims(x);
  const int64_t extent = dims.back(), rows = product_of(dims, 0, dims.size() - 1);
  if (count < 0 || count > extent)
    c.malformed(fmt::format("the {} largest of {}", count, extent), "as many as there are");
  const ValueId places = c.op("order", {c.reshape(x, {rows, extent, 1})}, {{"count", count}, {"descending", true}});
  dims.back() = count;
  const ValueId found = c.op("gather_elements", {c.reshape(x, {rows, extent}), places}, {{"axis", int64_t{1}}});
  c.out(0, c.op("reshape", {found}, {{"shape", dims}}));
  if (c.num_outputs() > 1) c.out(1, c.cast(c.reshape(places, dims), c.output(1).dtype));
}

template <typename T>
Tensor steps(DType dtype, T start, T delta, int64_t count) {
  Tensor list(dtype, {count});
  T value = start;
  for (int64_t i = 0; i < count; ++i) {
    list.as_mutable<T>()[static_cast<size_t>(i)] = value;
    value = static_cast<T>(value + delta);
  }
  return list;
}

void import_range(OperatorContext& c) {
  c.require_inputs(3, 3);
  std::vector<Tensor> operands;
  for (int i = 0; i < 3; ++i) {
    const auto known = c.const_tensor(i);
    if (!known) c.unsupported("a range that depends on the model's inputs");
    if (known->num_elements() != 1 || known->dtype() != c.dtype(c.in(0)))
      c.malformed(fmt::format("operand {} of type {}", i, c.type(c.in(i)).to_string()), "numbers of one type");
    operands.push_back(*known);
  }
  const DType dtype = operands[0].dtype();
  if (dtype != DType::kF32 && dtype != DType::kI32 && dtype != DType::kI64)
    c.unsupported(fmt::format("values of type {}", dtype_name(dtype)));
  const double start = operands[0].get_double(0), limit = operands[1].get_double(0), delta = operands[2].get_double(0);
  if (!(delta > 0 ? start <= limit : delta < 0 && start >= limit))
    c.malformed(fmt::format("from {} to {} by {}", start, limit, delta), "steps that lead there");
  const double real = dtype == DType::kF32
                          ? static_cast<double>(std::ceil(std::abs(
                                (static_cast<float>(limit) - static_cast<float>(start)) / static_cast<float>(delta))))
                          : std::ceil(std::abs((limit - start) / delta));
  constexpr double kMost = 1 << 26;
  if (!(real <= kMost)) c.unsupported(fmt::format("a range of more than {} numbers", kMost));
  const auto count = static_cast<int64_t>(real);
  if (dtype == DType::kF32)
    c.out(0, c.constant_value(steps(dtype, static_cast<float>(start), static_cast<float>(delta), count)));
  else if (dtype == DType::kI32)
    c.out(0, c.constant_value(steps(dtype, static_cast<int32_t>(start), static_cast<int32_t>(delta), count)));
  else c.out(0, c.constant_value(steps(dtype, operands[0].get_int(0), operands[2].get_int(0), count)));
}

// The shape that two shapes are broadcast to.
void import_broadcast_args(OperatorContext& c) {
  c.require_inputs(2, 2);
  for (const int i : {0, 1}) {
    require_ints(c, c.in(i), "a shape");
    if (c.rank(c.in(i)) != 1) c.malformed(fmt::format("a shape of type {}", c.type(c.in(i)).to_string()), "a list");
  }
  const int64_t rank = std::max(c.num_elements(c.in(0)), c.num_elements(c.in(1)));
  const auto aligned = [&](ValueId v) {
    return c.op("pad", {v, c.scalar_like(v, 1)},
                {{"low", Ints{rank - c.num_elements(v)}}, {"high", Ints{0}}, {"mode", std::string("constant")}});
  };
  const ValueId a = aligned(c.in(0)), b = aligned(c.in(1));
  c.out(0, c.op("select", {c.op("eq", {a, c.scalar_like(a, 1)}), b, a}));
}

// A diagonal within zeros, or within what a matrix has elsewhere.
void import_diagonal(OperatorContext& c) {
  const bool within = c.code() == tflite::BuiltinOperator::MATRIX_SET_DIAG;
  c.require_inputs(within ? 2 : 1, within ? 2 : 1);
  const ValueId diagonal = c.in(within ? 1 : 0);
  Ints dims = c.dims(within ? c.in(0) : diagonal);
  if (!within && !dims.empty()) dims.push_back(dims.back());
  Ints own = dims;
  const auto n = static_cast<int64_t>(dims.size());
  if (n >= 2) {
    own.pop_back();
    own.back() = std::min(dims[dims.size() - 2], dims.back());
  }
  if (n < 2 || c.dims(diagonal) != own || (within && c.dtype(c.in(0)) != c.dtype(diagonal)))
    c.malformed(fmt::format("a diagonal of type {} for [{}]", c.type(diagonal).to_string(), fmt::join(dims, ",")),
                "one element for each row or column, whichever are fewer");
  // An element for each row; those without a column are not read.
  Ints low(own.size(), 0), high = low;
  high.back() = dims[dims.size() - 2] - own.back();
  const ValueId rows = c.op("pad", {diagonal, c.scalar_like(diagonal, 0)},
                            {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  Ints column = own, matrix(dims.size(), 1);
  column.back() = dims[dims.size() - 2];
  column.push_back(1);
  matrix[dims.size() - 2] = dims[dims.size() - 2];
  matrix[dims.size() - 1] = dims.back();
  const ValueId on = c.op("eq", {c.iota(matrix, n - 2), c.iota(matrix, n - 1)});
  const ValueId rest = within ? c.in(0) : c.scalar_like(diagonal, 0);
  c.out(0, c.broadcast(c.op("select", {on, c.reshape(rows, column), rest}), dims));
}

// The best boxes of those that overlap: as many as asked for, then zeros.
void import_suppression(OperatorContext& c) {
  const bool soft = c.code() == tflite::BuiltinOperator::NON_MAX_SUPPRESSION_V5;
  c.require_inputs(soft ? 6 : 5, soft ? 6 : 5);
  const ValueId boxes = c.in(0), scores = c.in(1);
  const Ints dims = c.dims(boxes);
  const int64_t most = c.const_int(2, "the number of boxes");
  if (dims.size() != 2 || dims[1] != 4 || c.dims(scores) != Ints{dims[0]} || c.dtype(boxes) != DType::kF32 ||
      c.dtype(scores) != DType::kF32 || most < 0 || most > (1 << 24))
    c.malformed(fmt::format("{} of {} with scores {}", most, c.type(boxes).to_string(), c.type(scores).to_string()),
                "boxes [n,4], n scores, and how many");
  if (soft) {
    const auto sigma = c.const_tensor(5);
    if (!sigma || sigma->num_elements() != 1 || sigma->get_double(0) != 0)
      c.unsupported("scores that fall with the overlap (soft_nms_sigma)");
  }
  const auto threshold = [&](int i) {
    const auto known = c.const_tensor(i);
    if (!known) c.unsupported("a threshold that depends on the model's inputs");
    if (known->dtype() != DType::kF32 || known->num_elements() != 1)
      c.malformed(fmt::format("a threshold of type {}", c.type(c.in(i)).to_string()), "f32");
    return known->as<float>()[0];
  };
  // A box of just that overlap goes, too.
  const auto overlap = static_cast<double>(std::nextafter(threshold(3), -HUGE_VALF));
  const auto least = static_cast<double>(threshold(4));
  const ValueId chosen = c.op("suppress",
                              {c.reshape(boxes, {1, dims[0], 4}), c.reshape(scores, {1, 1, dims[0]}), c.integer(most),
                               c.scalar(DType::kF32, overlap), c.scalar(DType::kF32, least)},
                              {{"most", most}});
  const ValueId list = c.reshape(chosen, {most}), there = c.op("ge", {list, c.integer(0)});
  const ValueId index = c.op("max", {list, c.integer(0)});
  const ValueId count = c.reduce("sum", c.cast(there, DType::kI32), {0}, false);
  c.out(0, c.cast(index, DType::kI32));
  if (!soft) return c.out(1, count);
  ValueId found = c.scalar(DType::kF32, 0);
  if (dims[0] > 0) found = c.op("select", {there, c.op("gather", {scores, index}, {{"axis", int64_t{0}}}), found});
  c.out(1, c.broadcast(found, Ints{most}));
  c.out(2, count);
}

}  // namespace

std::span<const TfliteOperator> indexing_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {BROADCAST_ARGS, import_broadcast_args},
      {BUCKETIZE, import_bucketize},
      {CUMSUM, import_cumsum},
      {DYNAMIC_UPDATE_SLICE, import_dynamic_update_slice},
      {EMBEDDING_LOOKUP, import_embedding_lookup},
      {GATHER, import_gather},
      {GATHER_ND, import_gather_nd},
      {MATRIX_DIAG, import_diagonal},
      {MATRIX_SET_DIAG, import_diagonal},
      {NON_MAX_SUPPRESSION_V4, import_suppression},
      {NON_MAX_SUPPRESSION_V5, import_suppression},
      {ONE_HOT, import_one_hot},
      {RANGE, import_range},
      {REVERSE_SEQUENCE, import_reverse_sequence},
      {SCATTER_ND, import_scatter_nd},
      {SEGMENT_SUM, import_segments},
      {SPARSE_TO_DENSE, import_sparse_to_dense},
      {TOPK_V2, import_top_k},
      {UNSORTED_SEGMENT_MAX, import_segments},
      {UNSORTED_SEGMENT_MIN, import_segments},
      {UNSORTED_SEGMENT_PROD, import_segments},
      {UNSORTED_SEGMENT_SUM, import_segments},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
