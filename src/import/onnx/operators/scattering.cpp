// ScatterElements, ScatterND. Where the indices are known while compiling they become a table, or a concatenation; else
// the updates go to their places one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"
#include "import/common/functions.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// attribute `reduction` since opset 16: how an update and what was there are joined; "none": it replaces it.
std::string joining_op(NodeContext& c) {
  std::string reduction = c.attrs.get_string("reduction", "none");
  for (const char* known : {"none", "add", "mul", "min", "max"})
    if (reduction == known) return reduction;
  c.malformed(fmt::format("reduction = {}", reduction), "none, add, mul, min, max");
}

void require_index_type(NodeContext& c, ValueId indices) {
  if (c.dtype(indices) != DType::kI32 && c.dtype(indices) != DType::kI64)
    c.malformed(fmt::format("indices of type {}", c.type(indices).to_string()), "i32 or i64");
}

// A known index from the front.
int64_t place_of(NodeContext& c, int64_t index, int64_t extent, int64_t axis, ValueId x) {
  if (index < -extent || index >= extent)
    c.malformed(fmt::format("index {} for dimension {} of {}", index, axis, c.type(x).to_string()),
                fmt::format("{} to {}", -extent, extent - 1));
  return index < 0 ? index + extent : index;
}

// x [P, I] with updates [U, I] at known places, where that needs no scattering: an update for every place, or updates
// that lie in a row.
std::optional<ValueId> at_known_places(NodeContext& c, ValueId x, ValueId updates, const Ints& places,
                                       const std::string& join) {
  const Ints dims = c.dims(x);
  bool row = !places.empty();
  for (size_t u = 0; u < places.size(); ++u) row = row && places[u] == places[0] + static_cast<int64_t>(u);
  const auto joined = [&](ValueId old, ValueId update) { return join == "none" ? update : c.op(join, {old, update}); };
  if (row) {
    std::vector<ValueId> parts;
    const auto old = [&](int64_t first, int64_t end) { return c.slice(x, {first, 0}, {end - first, dims[1]}, {1, 1}); };
    const int64_t first = places.front(), end = places.back() + 1;
    if (first > 0) parts.push_back(old(0, first));
    parts.push_back(joined(old(first, end), updates));
    if (end < dims[0]) parts.push_back(old(end, dims[0]));
    return parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", int64_t{0}}});
  }
  if (dims[0] > std::ssize(places)) return std::nullopt;  // some place has no update
  Ints update_of(static_cast<size_t>(dims[0]), -1);
  for (size_t u = 0; u < places.size(); ++u) {
    int64_t& update = update_of[static_cast<size_t>(places[u])];
    if (update >= 0 && join != "none") return std::nullopt;  // two at one place join each other
    update = static_cast<int64_t>(u);
  }
  if (std::find(update_of.begin(), update_of.end(), -1) != update_of.end()) return std::nullopt;
  Tensor table(DType::kI64, {dims[0]});
  for (int64_t p = 0; p < dims[0]; ++p) table.set_int(p, update_of[static_cast<size_t>(p)]);
  return joined(x, c.op("gather", {updates, c.constant_value(std::move(table))}, {{"axis", int64_t{0}}}));
}

void require_updates(NodeContext& c, bool fits) {
  if (!fits)
    c.malformed(fmt::format("indices of type {} and updates of type {} for an operand of type {}",
                            c.type(c.in(1)).to_string(), c.type(c.in(2)).to_string(), c.type(c.in(0)).to_string()),
                "shapes as the operator's definition says");
}

}  // namespace

ValueId scattered(NodeContext& c, ValueId x, ValueId places, ValueId updates) {
  const Shape dims = {c.shape(x)[0], 1}, update_dims = {c.shape(updates)[0], 1};
  const ValueId y = scattered(c, c.reshape(x, dims), places, c.reshape(updates, update_dims), "none");
  return c.reshape(y, {dims[0]});
}

namespace {

void import_scatter_nd(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId x = c.in(0), indices = c.in(1), updates = c.in(2);
  require_index_type(c, indices);
  const std::string join = joining_op(c);
  const Shape dims = c.shape(x), shape = c.shape(indices);
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t addressing = shape.empty() ? 0 : as_int(shape.back()).value_or(0);
  require_updates(c, addressing >= 1 && addressing <= rank && c.dtype(updates) == c.dtype(x));
  const auto depth = static_cast<size_t>(addressing);
  Shape want(shape.begin(), shape.end() - 1);
  want.insert(want.end(), dims.begin() + static_cast<ptrdiff_t>(depth), dims.end());
  const Shape update_shape = c.shape(updates);
  require_updates(
      c, update_shape.size() == want.size() && std::equal(want.begin(), want.end(), update_shape.begin(), equal_sizes));
  // x as [places, inner], updates as [count, inner].
  const auto split = dims.begin() + static_cast<ptrdiff_t>(depth);
  const Expr places = Emitter::count(Shape(dims.begin(), split)), inner = Emitter::count(Shape(split, dims.end()));
  const Expr count = Emitter::count(Shape(shape.begin(), shape.end() - 1));
  if (is_const_int(count, 0) || is_const_int(inner, 0)) return c.out(0, x);
  const ValueId rows = c.reshape(x, {places, inner}), update_rows = c.reshape(updates, {count, inner});
  if (const auto known = c.constant(indices); known && as_int(places).value_or(0) > 0 && as_int(inner)) {
    Ints at(static_cast<size_t>(known->num_elements() / addressing), 0);
    for (int64_t u = 0; u < std::ssize(at); ++u)
      for (size_t d = 0; d < depth; ++d) {
        const int64_t raw = known->get_int(u * addressing + static_cast<int64_t>(d)), extent = *as_int(dims[d]);
        at[static_cast<size_t>(u)] =
            at[static_cast<size_t>(u)] * extent + place_of(c, raw, extent, static_cast<int64_t>(d), x);
      }
    if (const auto y = at_known_places(c, rows, update_rows, at, join)) return c.out(0, c.reshape(*y, dims));
  }
  // The place as one number; -1 when one of the indices is outside.
  const ValueId table = c.reshape(indices, {count, addressing});
  std::optional<ValueId> place, inside;
  for (size_t d = 0; d < depth; ++d) {
    const ValueId column = c.reshape(c.slice(table, {0, static_cast<int64_t>(d)}, {count, 1}, {1, 1}), {count});
    const ValueId index = counted_from_front(c, column, dims[d]);
    const ValueId extent = c.integer(dims[d]);
    const ValueId fits = c.op("logical_and", {c.op("ge", {index, c.integer(0)}), c.op("lt", {index, extent})});
    place = place ? c.add(c.mul(*place, extent), index) : index;
    inside = inside ? c.op("logical_and", {*inside, fits}) : fits;
  }
  const ValueId at = c.op("select", {*inside, *place, c.integer(-1)});
  c.out(0, c.reshape(scattered(c, rows, at, update_rows, join), dims));
}

void import_scatter_elements(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId x = c.in(0), indices = c.in(1);
  ValueId updates = c.in(2);
  require_index_type(c, indices);
  const std::string join = joining_op(c);
  const Shape dims = c.shape(x), shape = c.shape(indices);
  const auto axis = static_cast<size_t>(c.axis(c.attrs.get_int("axis", 0), c.rank(x)));
  bool fits = shape.size() == dims.size() && same_shape(c.shape(updates), shape) && c.dtype(updates) == c.dtype(x);
  Shape low(dims.size(), 0), high(dims.size(), 0);
  for (size_t d = 0; fits && d < dims.size(); ++d) {
    fits = d == axis || size_at_most(shape[d], dims[d]);
    if (d != axis) high[d] = normalize_size(dims[d] - shape[d]);
  }
  require_updates(c, fits);
  if (const auto known = c.constant(indices))
    for (int64_t i = 0; i < known->num_elements(); ++i)
      place_of(c, known->get_int(i), as_int(dims[axis]) ? *as_int(dims[axis]) : c.dims(x)[axis],
               static_cast<int64_t>(axis), x);
  ValueId places = counted_from_front(c, indices, dims[axis]);
  // Rows without updates get some that arrive nowhere.
  if (std::any_of(high.begin(), high.end(), [](const Expr& more) { return !is_const_int(more, 0); })) {
    const Attrs pads = {{"low", low}, {"high", high}, {"mode", std::string("constant")}};
    places = c.op("pad", {places, c.integer(-1)}, pads);
    updates = c.op("pad", {updates, c.scalar_like(updates, 0)}, pads);
  }
  Ints perm(dims.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[axis], perm.back());
  const auto turned = [&](ValueId v) {
    const ValueId t = c.transpose(v, perm);
    Shape with_inner = c.shape(t);
    with_inner.push_back(1);
    return c.reshape(t, with_inner);
  };
  const ValueId rows = turned(x);
  const ValueId y = scattered(c, rows, c.transpose(places, perm), turned(updates), join);
  Shape flat = c.shape(y);
  flat.pop_back();
  c.out(0, c.transpose(c.reshape(y, flat), perm));
}

// Updates [B, ..., U, ...] written into x [B, ..., S, ...] from a place on that each member of the batch has of its
// own.
void import_tensor_scatter(NodeContext& c) {
  c.require_inputs(2, 3);
  const ValueId x = c.in(0), updates = c.in(1);
  const Ints dims = c.dims(x), update_dims = c.dims(updates);
  const auto axis = static_cast<size_t>(c.axis(c.attrs.get_int("axis", -2), c.rank(x)));
  const std::string mode = c.attrs.get_string("mode", "linear");
  Ints want = dims;
  if (update_dims.size() == dims.size()) want[axis] = update_dims[axis];
  if (axis == 0 || update_dims != want || want[axis] > dims[axis] || (mode != "linear" && mode != "circular"))
    c.malformed(fmt::format("updates of type {} along axis {} of {}, mode = {}", c.type(updates).to_string(), axis,
                            c.type(x).to_string(), mode),
                "the operand's shape but for an axis other than 0, and linear or circular");
  if (want[axis] == 0 || dims[axis] == 0) return c.out(0, x);
  if (c.has(2) && c.dims(c.in(2)) != Ints{dims[0]})
    c.malformed(fmt::format("write_indices of type {}", c.type(c.in(2)).to_string()), fmt::format("[{}]", dims[0]));
  Ints along(dims.size(), 1), batch = along;
  along[axis] = dims[axis];
  batch[0] = dims[0];
  // The update that arrives at each place; one that does not exist where none does.
  ValueId from = c.iota(along, static_cast<int64_t>(axis));
  if (c.has(2)) from = c.sub(from, c.reshape(c.cast(c.in(2), DType::kI64), batch));
  if (mode == "circular") {
    const ValueId rest = c.op("rem", {from, c.integer(dims[axis])});
    from = c.op("select", {c.op("lt", {rest, c.integer(0)}), c.add(rest, c.integer(dims[axis])), rest});
  }
  const ValueId arrives =
      c.op("logical_and", {c.op("ge", {from, c.integer(0)}), c.op("lt", {from, c.integer(want[axis])})});
  const ValueId index = c.op("min", {c.op("max", {from, c.integer(0)}), c.integer(want[axis] - 1)});
  const ValueId value =
      c.op("gather_elements", {updates, c.broadcast(index, dims)}, {{"axis", static_cast<int64_t>(axis)}});
  c.out(0, c.op("select", {arrives, value, x}));
}

}  // namespace

OperatorFamily scattering_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Scatter", 9, import_scatter_elements, "", 10},
      OperatorImporter{"ScatterElements", 11, import_scatter_elements},
      OperatorImporter{"ScatterND", 11, import_scatter_nd},
      OperatorImporter{"TensorScatter", 24, import_tensor_scatter},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
