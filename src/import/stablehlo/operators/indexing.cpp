// Gather and scatter: windows of an operand whose places are data.
#include <fmt/format.h>

#include <algorithm>

#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

bool contains(const Ints& list, int64_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

Ints strides_of(const Ints& dims) {
  Ints strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}
int64_t product(const Ints& dims) {
  int64_t count = 1;
  for (const int64_t extent : dims) count *= extent;
  return count;
}

// The dimension numbers of both operators, by their common meaning: `mapped` are the operand's dimensions that indices
// say places of, `batched` those that go together with dimensions of the indices (`index_batched`), `dropped` those
// that windows do not have.
struct Places {
  Ints mapped, batched, index_batched, dropped, window;
  int64_t vector_dim = 0;
};

struct Indices {
  ValueId values;  // i64[N, K]
  Ints batch;      // the extents that N is made of
};

Indices indices_of(HloContext& c, ValueId given, const Places& places) {
  if (!is_int(c.dtype(given))) c.malformed(fmt::format("indices of type {}", c.type(given).to_string()), "integers");
  ValueId indices = c.cast(given, DType::kI64);
  Ints dims = c.dims(indices);
  const auto rank = static_cast<int64_t>(dims.size());
  if (places.vector_dim < 0 || places.vector_dim > rank)
    c.malformed(fmt::format("index_vector_dim = {}", places.vector_dim), fmt::format("0 to {}", rank));
  if (places.vector_dim == rank) {
    dims.push_back(1);
    indices = c.reshape(indices, dims);
  } else {
    Ints order;
    for (int64_t d = 0; d < rank; ++d)
      if (d != places.vector_dim) order.push_back(d);
    order.push_back(places.vector_dim);
    indices = c.transpose(indices, order);
    dims = c.dims(indices);
  }
  const int64_t length = dims.back();
  if (length != std::ssize(places.mapped))
    c.malformed(fmt::format("{} indices for {} dimensions", length, places.mapped.size()), "one for each");
  dims.pop_back();
  return {c.reshape(indices, {product(dims), length}), dims};
}

void check_places(HloContext& c, const Places& places, ValueId x) {
  const Ints dims = c.dims(x);
  for (const Ints* list : {&places.mapped, &places.batched, &places.dropped}) {
    Ints copy = *list;
    c.axes(copy, c.rank(x));
    for (const int64_t d : copy)
      if (d < 0) c.malformed(fmt::format("dimension {}", d), "0 or more");
  }
  if (places.batched.size() != places.index_batched.size())
    c.malformed("lists of batching dimensions of different lengths", "one for each");
  if (places.window.size() != dims.size())
    c.malformed(fmt::format("{} window extents for {} dimensions", places.window.size(), dims.size()), "one for each");
  for (size_t d = 0; d < dims.size(); ++d)
    if (places.window[d] < 0 || places.window[d] > dims[d])
      c.malformed(fmt::format("windows of {} in a dimension of {}", places.window[d], dims[d]), "windows that fit");
  for (const Ints* list : {&places.batched, &places.dropped})
    for (const int64_t d : *list)
      if (places.window[static_cast<size_t>(d)] > 1)
        c.malformed("a dimension that windows do not have, of more than one element", "one");
}

// i64[N, 1]: column k.
ValueId column(HloContext& c, ValueId indices, size_t k) {
  const Ints dims = c.dims(indices);
  return c.slice(indices, Ints{0, static_cast<int64_t>(k)}, Ints{dims[0], 1}, {1, 1});
}

// Where each batching dimension of the operand is: the position in that of the indices, i64[N, 1].
ValueId batch_place(HloContext& c, const Indices& indices, const Places& places, size_t i) {
  int64_t d = places.index_batched[i];
  if (d > places.vector_dim) --d;
  if (d < 0 || d >= std::ssize(indices.batch))
    c.malformed(fmt::format("batching dimension {} of the indices", places.index_batched[i]), "one that they have");
  return c.reshape(c.iota(indices.batch, d), {product(indices.batch), 1});
}

// The places of a window's elements in the row-major operand, less that of its first: i64[1, O].
ValueId window_places(HloContext& c, const Ints& window, const Ints& strides) {
  const int64_t count = product(window);
  ValueId sum = c.broadcast(c.integer(0), {1, count});
  for (size_t d = 0; d < window.size(); ++d)
    if (window[d] > 1)
      sum = c.add(sum, c.reshape(c.mul(c.iota(window, static_cast<int64_t>(d)), c.integer(strides[d])), {1, count}));
  return sum;
}

// The order that puts [batch..., window...] to where the result has them; `offsets` are the window's places.
Ints result_order(HloContext& c, size_t batch, const Ints& offsets) {
  const size_t rank = batch + offsets.size();
  Ints order;
  size_t next_batch = 0;
  for (size_t d = 0; d < rank; ++d) {
    const auto at = std::find(offsets.begin(), offsets.end(), static_cast<int64_t>(d));
    if (at != offsets.end()) order.push_back(static_cast<int64_t>(batch) + (at - offsets.begin()));
    else order.push_back(static_cast<int64_t>(next_batch++));
  }
  if (next_batch != batch)
    c.malformed("window dimensions that the result does not have", "different dimensions of the result");
  return order;
}

// The mapped dimensions to the front: [P, rest].
Ints mapped_first(const Places& places, size_t rank) {
  Ints order = places.mapped;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d)
    if (!contains(places.mapped, d)) order.push_back(d);
  return order;
}

// Whether a window is one place of the mapped dimensions, and all of the others.
bool takes_rows(const Places& places, const Ints& dims) {
  if (!places.batched.empty()) return false;
  for (size_t d = 0; d < dims.size(); ++d)
    if (places.window[d] != (contains(places.mapped, static_cast<int64_t>(d)) ? 1 : dims[d])) return false;
  return true;
}

void import_gather(HloContext& c) {
  const ValueId x = c.in(0);
  const std::string numbers = "dimension_numbers";
  const Places places{c.numbers_of(numbers, "start_index_map"),
                      c.numbers_of(numbers, "operand_batching_dims"),
                      c.numbers_of(numbers, "start_indices_batching_dims"),
                      c.numbers_of(numbers, "collapsed_slice_dims"),
                      c.integers("slice_sizes"),
                      c.number_of(numbers, "index_vector_dim", 0)};
  check_places(c, places, x);
  const Ints dims = c.dims(x), offsets = c.numbers_of(numbers, "offset_dims");
  const Indices indices = indices_of(c, c.in(1), places);
  const int64_t count = product(indices.batch);
  Ints kept;  // the window's extents in the result
  for (size_t d = 0; d < dims.size(); ++d)
    if (!contains(places.dropped, static_cast<int64_t>(d)) && !contains(places.batched, static_cast<int64_t>(d)))
      kept.push_back(places.window[d]);
  if (kept.size() != offsets.size())
    c.malformed(fmt::format("{} offset_dims for windows of {} dimensions", offsets.size(), kept.size()),
                "one for each");
  Ints sizes = indices.batch;
  sizes.insert(sizes.end(), kept.begin(), kept.end());
  const auto finish = [&](ValueId y) {
    c.out(c.transpose(c.reshape(y, sizes), result_order(c, indices.batch.size(), offsets)));
  };
  // An operand without elements has none to give: windows of it have none either.
  if (product(dims) == 0 || product(sizes) == 0) return finish(c.zeros(c.dtype(x), sizes));
  const Ints strides = strides_of(dims);
  // Places move into the operand.
  const auto clamped = [&](size_t k) {
    const auto d = static_cast<size_t>(places.mapped[k]);
    return c.op("min",
                {c.op("max", {column(c, indices.values, k), c.integer(0)}), c.integer(dims[d] - places.window[d])});
  };
  if (takes_rows(places, dims)) {
    const Ints order = mapped_first(places, dims.size());
    Ints front;
    for (const int64_t d : places.mapped) front.push_back(dims[static_cast<size_t>(d)]);
    const Ints steps = strides_of(front);
    ValueId row = c.broadcast(c.integer(0), {count, 1});
    for (size_t k = 0; k < places.mapped.size(); ++k) {
      const ValueId place = clamped(k);
      row = k == 0 && steps[k] == 1 ? place : c.add(row, c.mul(place, c.integer(steps[k])));
    }
    const int64_t rest = product(dims) / product(front);
    const ValueId rows = c.reshape(c.transpose(x, order), {product(front), rest});
    return finish(c.op("gather", {rows, c.reshape(row, {count})}, {{"axis", int64_t{0}}}));
  }
  if (count == 1 && places.batched.empty()) {
    std::vector<ValueId> starts(dims.size(), c.ints({0}));
    for (size_t k = 0; k < places.mapped.size(); ++k)
      starts[static_cast<size_t>(places.mapped[k])] = c.reshape(column(c, indices.values, k), {1});
    const ValueId start = starts.size() == 1 ? starts[0] : c.op("concat", starts, {{"axis", int64_t{0}}});
    return finish(c.op("dynamic_slice", {x, start}, {{"sizes", Shape(places.window.begin(), places.window.end())}}));
  }
  ValueId start = c.broadcast(c.integer(0), {count, 1});
  for (size_t k = 0; k < places.mapped.size(); ++k)
    start = c.add(start, c.mul(clamped(k), c.integer(strides[static_cast<size_t>(places.mapped[k])])));
  for (size_t i = 0; i < places.batched.size(); ++i)
    start = c.add(
        start, c.mul(batch_place(c, indices, places, i), c.integer(strides[static_cast<size_t>(places.batched[i])])));
  const ValueId all = c.add(start, window_places(c, places.window, strides));
  finish(c.op("gather", {c.reshape(x, {product(dims)}), all}, {{"axis", int64_t{0}}}));
}

void import_scatter(HloContext& c) {
  if (c.num_operands() != 3) c.unsupported("scatters into several operands together");
  const ValueId x = c.in(0), given = c.in(2);
  const std::string numbers = "scatter_dimension_numbers";
  Places places{c.numbers_of(numbers, "scatter_dims_to_operand_dims"),
                c.numbers_of(numbers, "input_batching_dims"),
                c.numbers_of(numbers, "scatter_indices_batching_dims"),
                c.numbers_of(numbers, "inserted_window_dims"),
                {},
                c.number_of(numbers, "index_vector_dim", 0)};
  const Ints dims = c.dims(x), update_dims = c.dims(given),
             window_dims = c.axes(c.numbers_of(numbers, "update_window_dims"), c.rank(given));
  Ints kept;
  size_t next = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const auto at = static_cast<int64_t>(d);
    if (contains(places.dropped, at) || contains(places.batched, at)) {
      places.window.push_back(std::min<int64_t>(1, dims[d]));
      continue;
    }
    if (next >= window_dims.size())
      c.malformed(fmt::format("{} update_window_dims", window_dims.size()), "one for each dimension of the windows");
    places.window.push_back(update_dims[static_cast<size_t>(window_dims[next++])]);
    kept.push_back(places.window.back());
  }
  if (next != window_dims.size())
    c.malformed(fmt::format("{} update_window_dims", window_dims.size()), fmt::format("{}", next));
  check_places(c, places, x);
  std::string join = HloContext::combiner_of(c.region(0));
  if (join == "first") return c.out(x);
  if (join == "second") join = "none";
  if (c.dtype(x) == DType::kBool && (join == "or" || join == "add")) join = "max";
  if (c.dtype(x) == DType::kBool && (join == "and" || join == "mul")) join = "min";
  if (join.empty() || join == "and" || join == "or") c.unsupported("scatters that join by this region");
  const Indices indices = indices_of(c, c.in(1), places);
  const int64_t count = product(indices.batch), inner = product(kept);
  // [batch..., window...]
  Ints order;
  for (int64_t d = 0; d < c.rank(given); ++d)
    if (!contains(window_dims, d)) order.push_back(d);
  if (order.size() != indices.batch.size())
    c.malformed(fmt::format("updates of type {}", c.type(given).to_string()),
                "the indices' dimensions and the windows'");
  for (size_t i = 0; i < order.size(); ++i)
    if (update_dims[static_cast<size_t>(order[i])] != indices.batch[i])
      c.malformed(fmt::format("updates of type {}", c.type(given).to_string()), "the indices' extents");
  order.insert(order.end(), window_dims.begin(), window_dims.end());
  const ValueId updates = c.reshape(c.transpose(given, order), {count, inner});
  if (count == 0 || inner == 0 || product(dims) == 0) return c.out(x);
  // A window that does not fit is left out.
  ValueId fits = c.broadcast(c.op("le", {c.integer(0), c.integer(0)}), {count, 1});
  for (size_t k = 0; k < places.mapped.size(); ++k) {
    const auto d = static_cast<size_t>(places.mapped[k]);
    const ValueId place = column(c, indices.values, k);
    const ValueId inside = c.op(
        "logical_and", {c.op("ge", {place, c.integer(0)}), c.op("le", {place, c.integer(dims[d] - places.window[d])})});
    fits = k == 0 ? inside : c.op("logical_and", {fits, inside});
  }
  if (takes_rows(places, dims)) {
    const Ints front_order = mapped_first(places, dims.size());
    Ints front, turned;
    for (const int64_t d : places.mapped) front.push_back(dims[static_cast<size_t>(d)]);
    for (const int64_t d : front_order) turned.push_back(dims[static_cast<size_t>(d)]);
    const Ints steps = strides_of(front);
    ValueId row = c.broadcast(c.integer(0), {count, 1});
    for (size_t k = 0; k < places.mapped.size(); ++k)
      row = c.add(row, c.mul(column(c, indices.values, k), c.integer(steps[k])));
    row = c.op("select", {fits, row, c.integer(-1)});
    const ValueId rows = c.reshape(c.transpose(x, front_order), {product(front), inner});
    const ValueId y = c.reshape(scattered(c, rows, c.reshape(row, {count}), updates, join), turned);
    Ints back(front_order.size());
    for (size_t i = 0; i < front_order.size(); ++i) back[static_cast<size_t>(front_order[i])] = static_cast<int64_t>(i);
    return c.out(c.transpose(y, back));
  }
  const Ints strides = strides_of(dims);
  ValueId start = c.broadcast(c.integer(0), {count, 1});
  for (size_t k = 0; k < places.mapped.size(); ++k)
    start =
        c.add(start, c.mul(column(c, indices.values, k), c.integer(strides[static_cast<size_t>(places.mapped[k])])));
  for (size_t i = 0; i < places.batched.size(); ++i)
    start = c.add(
        start, c.mul(batch_place(c, indices, places, i), c.integer(strides[static_cast<size_t>(places.batched[i])])));
  const ValueId all = c.op("select", {fits, c.add(start, window_places(c, places.window, strides)), c.integer(-1)});
  const ValueId flat = c.reshape(x, {product(dims), 1});
  c.out(c.reshape(scattered(c, flat, c.reshape(all, {count * inner}), c.reshape(updates, {count * inner, 1}), join),
                  dims));
}

constexpr HloOperator kOperators[] = {
    {"stablehlo.gather", import_gather},
    {"stablehlo.scatter", import_scatter},
};

}  // namespace

std::span<const HloOperator> indexing_operators() { return kOperators; }

}  // namespace tessera::inline stablehlo
