// Elements chosen by indices, and values put to places that indices name.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {

using Ints = std::vector<int64_t>;

ValueId counted_from_front(AtenContext& c, ValueId indices, const Expr& extent) {
  const ValueId wide = c.cast(indices, DType::kI64);
  return c.op("select", {c.op("lt", {wide, c.integer(0)}), c.add(wide, c.integer(extent)), wide});
}

void require_indices(AtenContext& c, ValueId indices) {
  const DType dtype = c.dtype(indices);
  if (!is_int(dtype) || dtype_bits(dtype) < 8)
    c.malformed(fmt::format("indices of type {}", c.type(indices).to_string()), "integers");
}

namespace {

// Indices as gather takes them.
ValueId index_values(AtenContext& c, ValueId indices) {
  require_indices(c, indices);
  return c.dtype(indices) == DType::kI32 ? indices : c.cast(indices, DType::kI64);
}

void import_embedding(AtenContext& c) {
  c.out(c.op("gather", {c.tensor("weight"), index_values(c, c.tensor("indices"))}, {{"axis", int64_t{0}}}));
}

void import_index_select(AtenContext& c) {
  const ValueId x = c.tensor("self"), index = index_values(c, c.tensor("index"));
  const ValueId list = c.rank(index) == 0 ? c.reshape(index, {1}) : index;
  if (c.rank(x) == 0) return c.out(c.reshape(c.op("gather", {c.reshape(x, {1}), list}, {{"axis", int64_t{0}}}), {}));
  c.out(c.op("gather", {x, list}, {{"axis", c.dimension("dim", c.rank(x))}}));
}

void import_take(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.op("gather", {c.reshape(x, {c.count(x)}), index_values(c, c.tensor("index"))}, {{"axis", int64_t{0}}}));
}

// x cut to the index's extents in all dimensions but one: those elements are all that can be named.
ValueId cut_to(AtenContext& c, ValueId x, const Shape& extents, size_t but) {
  Shape sizes = extents;
  if (but < sizes.size()) sizes[but] = c.shape(x)[but];
  return c.slice(x, Shape(sizes.size(), 0), sizes, Ints(sizes.size(), 1));
}

void import_gather(AtenContext& c) {
  const ValueId x = c.tensor("self"), index = index_values(c, c.tensor("index"));
  if (c.rank(x) == 0) return c.out(c.broadcast(x, c.shape(index)));
  const int64_t axis = c.dimension("dim", c.rank(x));
  if (c.rank(index) == 0 && c.rank(x) == 1)
    return c.out(c.reshape(c.op("gather_elements", {x, c.reshape(index, {1})}, {{"axis", axis}}), {}));
  if (c.rank(index) != c.rank(x)) c.malformed("an index of another rank", "one rank");
  const ValueId part = cut_to(c, x, c.shape(index), static_cast<size_t>(axis));
  c.out(c.op("gather_elements", {part, index}, {{"axis", axis}}));
}

// ---- several dimensions that are named by one index each: x[i, :, j] ----

struct Indexing {
  std::vector<ValueId> indices;  // i64, broadcast to one shape
  Ints axes;                     // the dimensions that they name
  Shape shape;                   // of all indices
  bool adjacent = true;          // the result has their shape where the dimensions are, else in front
};

Indexing indexing_of(AtenContext& c, ValueId x) {
  Indexing result;
  const auto given = c.tensors("indices");
  std::vector<ValueId> found;
  size_t rank = 0;
  for (size_t d = 0; d < given.size(); ++d) {
    if (!given[d]) continue;
    if (c.dtype(*given[d]) == DType::kBool || c.dtype(*given[d]) == DType::kU8)
      c.unsupported("elements that a mask chooses: how many there are depends on data");
    require_indices(c, *given[d]);
    result.axes.push_back(static_cast<int64_t>(d));
    found.push_back(*given[d]);
    rank = std::max(rank, static_cast<size_t>(c.rank(*given[d])));
  }
  if (found.empty() || std::ssize(given) > c.rank(x)) c.malformed("indices that do not fit", "one for each dimension");
  result.shape.assign(rank, 1);
  for (const ValueId index : found) {
    const Shape sizes = c.shape(index);
    for (size_t d = 0; d < sizes.size(); ++d) {
      Expr& size = result.shape[rank - sizes.size() + d];
      if (is_const_int(size, 1)) size = sizes[d];
    }
  }
  const Shape extents = c.shape(x);
  for (size_t i = 0; i < found.size(); ++i) {
    const Expr extent = extents[static_cast<size_t>(result.axes[i])];
    result.indices.push_back(found.size() == 1 ? index_values(c, found[i]) : counted_from_front(c, found[i], extent));
    result.adjacent = result.adjacent && result.axes[i] == result.axes[0] + static_cast<int64_t>(i);
  }
  return result;
}

// The place among the named dimensions taken as one.
ValueId place_of(AtenContext& c, const Indexing& indexing, const Shape& extents) {
  if (indexing.indices.size() == 1) return indexing.indices[0];
  std::optional<ValueId> place;
  for (size_t i = 0; i < indexing.indices.size(); ++i) {
    const Expr extent = extents[static_cast<size_t>(indexing.axes[i])];
    place = place ? c.add(c.mul(*place, c.integer(extent)), indexing.indices[i]) : indexing.indices[i];
  }
  return c.broadcast(*place, indexing.shape);
}

// The named dimensions in front, the others in their order.
Ints named_first(const Indexing& indexing, int rank) {
  Ints order = indexing.axes;
  for (int d = 0; d < rank; ++d)
    if (std::find(indexing.axes.begin(), indexing.axes.end(), d) == indexing.axes.end()) order.push_back(d);
  return order;
}

void import_index(AtenContext& c) {
  ValueId x = c.tensor("self");
  Indexing indexing = indexing_of(c, x);
  const ValueId place = place_of(c, indexing, c.shape(x));
  size_t first = static_cast<size_t>(indexing.axes[0]);
  if (!indexing.adjacent) {
    x = c.transpose(x, named_first(indexing, c.rank(x)));
    first = 0;
  }
  const size_t count = indexing.axes.size();
  if (count > 1) {
    Shape sizes = c.shape(x);
    const auto begin = sizes.begin() + static_cast<ptrdiff_t>(first), end = begin + static_cast<ptrdiff_t>(count);
    const Expr named = Emitter::count(Shape(begin, end));
    sizes.erase(begin + 1, end);
    sizes[first] = named;
    x = c.reshape(x, sizes);
  }
  c.out(c.op("gather", {x, place}, {{"axis", static_cast<int64_t>(first)}}));
}

// Where a mask of x's first dimensions holds, a single value.
void put_by_mask(AtenContext& c, ValueId x, ValueId mask, ValueId values) {
  if (!c.has_one_element(values) || c.truth("accumulate", false))
    c.unsupported("values for the elements that a mask chooses: how many there are depends on data");
  Shape sizes = c.shape(mask);
  while (std::ssize(sizes) < c.rank(x)) sizes.push_back(1);
  c.out(c.op("select", {c.reshape(c.cast(mask, DType::kBool), sizes), c.reshape(values, {}), x}));
}

void import_index_put(AtenContext& c) {
  const ValueId x = c.tensor("self"), values = c.tensor("values");
  const auto given = c.tensors("indices");
  if (given.size() == 1 && given[0] && c.dtype(*given[0]) == DType::kBool) return put_by_mask(c, x, *given[0], values);
  const Indexing indexing = indexing_of(c, x);
  const Shape extents = c.shape(x);
  const Ints order = named_first(indexing, c.rank(x));
  const ValueId turned = c.transpose(x, order);
  const auto count = static_cast<ptrdiff_t>(indexing.axes.size());
  const Shape sizes = c.shape(turned);
  const Expr named = Emitter::count(Shape(sizes.begin(), sizes.begin() + count));
  const Shape others(sizes.begin() + count, sizes.end());
  const Expr inner = Emitter::count(others), updates = Emitter::count(indexing.shape);
  // The values have the shape of what the indices name; theirs in front.
  Shape result = indexing.shape;
  const auto before = indexing.adjacent ? indexing.axes[0] : 0;
  result.insert(result.begin(), others.begin(), others.begin() + before);
  result.insert(result.end(), others.begin() + before, others.end());
  ValueId update = c.broadcast(values, result);
  const auto index_rank = std::ssize(indexing.shape);
  Ints front;
  for (int64_t d = 0; d < index_rank; ++d) front.push_back(before + d);
  for (int64_t d = 0; d < std::ssize(result); ++d)
    if (d < before || d >= before + index_rank) front.push_back(d);
  update = c.transpose(update, front);
  ValueId place = place_of(c, indexing, extents);
  if (indexing.indices.size() == 1)
    place = counted_from_front(c, place, extents[static_cast<size_t>(indexing.axes[0])]);
  const ValueId y = scattered(c, c.reshape(turned, {named, inner}), c.reshape(place, {updates}),
                              c.reshape(update, {updates, inner}), c.truth("accumulate", false) ? "add" : "none");
  Ints back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  c.out(c.transpose(c.reshape(y, sizes), back));
}

// ---- a part of x replaced ----

ValueId part_of(AtenContext& c, ValueId x, size_t axis, int64_t start, int64_t end) {
  Ints starts(static_cast<size_t>(c.rank(x)), 0), sizes = c.dims(x);
  starts[axis] = start;
  sizes[axis] = end - start;
  return c.slice(x, starts, sizes, Ints(starts.size(), 1));
}

ValueId replaced(AtenContext& c, ValueId x, ValueId part, size_t axis, int64_t start, int64_t end) {
  const int64_t extent = c.dims(x)[axis];
  std::vector<ValueId> parts;
  if (start > 0) parts.push_back(part_of(c, x, axis, 0, start));
  if (end > start) parts.push_back(c.cast(part, c.dtype(x)));
  if (end < extent) parts.push_back(part_of(c, x, axis, end, extent));
  return parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", static_cast<int64_t>(axis)}});
}

void import_slice_scatter(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x), 0));
  const int64_t extent = c.dims(x)[axis], step = c.whole("step", 1);
  const auto place = [&](const char* name, int64_t otherwise) {
    const int64_t given = c.whole(name, otherwise);
    return std::clamp<int64_t>(given < 0 ? given + extent : given, 0, extent);
  };
  const int64_t start = place("start", 0), end = std::max(start, place("end", extent));
  ValueId part = c.tensor("src");
  if (start == end) return c.out(x);
  if (step == 1) return c.out(replaced(c, x, part, axis, start, end));
  // Each place that is replaced takes its element, the others keep theirs.
  Tensor from(DType::kI64, {extent}), taken(DType::kBool, {extent});
  for (int64_t i = start, n = 0; i < end; i += step, ++n) {
    from.set_int(i, n);
    taken.set_int(i, 1);
  }
  Shape along(static_cast<size_t>(c.rank(x)), 1);
  along[axis] = extent;
  const ValueId spread = c.op("gather", {c.cast(part, c.dtype(x)), c.constant_value(std::move(from))},
                              {{"axis", static_cast<int64_t>(axis)}});
  c.out(c.op("select", {c.reshape(c.constant_value(std::move(taken)), along), spread, x}));
}

void import_select_scatter(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x)));
  int64_t index = c.whole("index");
  if (index < 0) index += c.dims(x)[axis];
  Shape sizes = c.shape(x);
  sizes[axis] = 1;
  c.out(replaced(c, x, c.reshape(c.tensor("src"), sizes), axis, index, index + 1));
}

void import_one_hot(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const int64_t classes = c.whole("num_classes", -1);
  if (classes < 0) c.unsupported("a number of classes that depends on data");
  Shape with_axis = c.shape(x), along(static_cast<size_t>(c.rank(x)), 1);
  with_axis.push_back(1);
  along.push_back(classes);
  const ValueId hot = c.op("eq", {c.reshape(c.cast(x, DType::kI64), with_axis), c.iota(along, c.rank(x))});
  c.out(c.cast(hot, DType::kI64));
}

}  // namespace

std::span<const AtenOperator> indexing_operators() {
  static constexpr AtenOperator table[] = {
      {"_unsafe_index", import_index},
      {"_unsafe_index_put", import_index_put},
      {"embedding", import_embedding},
      {"gather", import_gather},
      {"index", import_index},
      {"index_put", import_index_put},
      {"index_select", import_index_select},
      {"one_hot", import_one_hot},
      {"select_scatter", import_select_scatter},
      {"slice_scatter", import_slice_scatter},
      {"take", import_take},
  };
  return table;
}

}  // namespace tessera::inline aten
