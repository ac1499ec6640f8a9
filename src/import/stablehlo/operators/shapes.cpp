// Operators that move elements, make them, or change shapes.
#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"
#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

void import_constant(HloContext& c) {
  const HloAttr* value = c.attribute("value");
  if (!value || value->kind != HloAttr::Kind::kTensor) c.malformed("no value", "dense<...>");
  if (!value->tensor) c.unsupported(fmt::format("values of type {}", value->type.text));
  const Tensor& tensor = *value->tensor;
  if (tensor.dims() == value->type.dims) return c.out(c.op("constant", {}, {{"value", value->tensor}}));
  c.out(c.broadcast(c.op("constant", {}, {{"value", value->tensor}}), value->type.dims));
}

// x with its dimensions at `places` of the result, stretched to `sizes`.
void spread(HloContext& c, ValueId x, const Ints& places, const SizeList& sizes) {
  const size_t rank = sizes.sizes().size();
  if (places.size() != static_cast<size_t>(c.rank(x)))
    c.malformed(fmt::format("{} dimensions for {}", places.size(), c.type(x).to_string()), "one for each");
  Ints order(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0 || places[i] >= static_cast<int64_t>(rank) ||
        std::count(places.begin(), places.end(), places[i]) != 1)
      c.malformed(fmt::format("dimension {} of a result of rank {}", places[i], rank),
                  "different dimensions of the result");
    order[i] = static_cast<int64_t>(i);
  }
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return places[static_cast<size_t>(a)] < places[static_cast<size_t>(b)]; });
  Shape wide(rank, 1);
  for (size_t i = 0; i < places.size(); ++i) wide[static_cast<size_t>(places[i])] = c.shape(x)[i];
  c.out(c.broadcast(c.reshape(c.transpose(x, order), wide), sizes));
}

void import_broadcast_in_dim(HloContext& c) {
  spread(c, c.in(0), c.integers("broadcast_dimensions", Ints{}), c.result_dims());
}

void import_reshape(HloContext& c) { c.out(c.reshape(c.in(0), c.result_dims())); }

void import_transpose(HloContext& c) {
  const Ints order = c.axes(c.integers("permutation"), c.rank(c.in(0)));
  if (static_cast<int>(order.size()) != c.rank(c.in(0)))
    c.malformed(fmt::format("an order of {} dimensions", order.size()), "of all");
  c.out(c.transpose(c.in(0), order));
}

void import_iota(HloContext& c) {
  const DType dtype = c.result_dtype();
  const Ints dims = c.result_dims();
  const int64_t axis = c.axis(c.whole("iota_dimension"), static_cast<int>(dims.size()), "iota_dimension");
  // Beyond integers' and floats' own iota by way of i64.
  c.out(dtype == DType::kF32 || dtype == DType::kI32 || dtype == DType::kI64 ? c.iota(dims, axis, dtype)
                                                                             : c.cast(c.iota(dims, axis), dtype));
}

void import_slice(HloContext& c) {
  const ValueId x = c.in(0);
  const auto rank = static_cast<size_t>(c.rank(x));
  const Ints starts = c.per_dimension("start_indices", rank, 0), steps = c.per_dimension("strides", rank, 1);
  const Ints limits = c.integers("limit_indices");
  if (limits.size() != rank) c.malformed(fmt::format("{} limits", limits.size()), "one for each dimension");
  Shape sizes;
  for (size_t d = 0; d < rank; ++d) {
    const auto extent = as_int(c.shape(x)[d]);
    if (starts[d] < 0 || limits[d] < starts[d] || steps[d] < 1 || (extent && limits[d] > *extent))
      c.malformed(fmt::format("the part {}:{}:{} of {}", starts[d], limits[d], steps[d], c.type(x).to_string()),
                  "parts of the operand");
    sizes.push_back((limits[d] - starts[d] + steps[d] - 1) / steps[d]);
  }
  c.out(c.slice(x, starts, sizes, steps));
}

void import_concatenate(HloContext& c) {
  if (c.num_operands() == 1) return c.out(c.in(0));
  c.in(0);
  c.out(c.op("concat", c.operands(), {{"axis", int64_t{c.axis(c.whole("dimension"), c.rank(c.in(0)), "dimension")}}}));
}

ValueId edged(HloContext& c, ValueId x, ValueId value, const Ints& low, const Ints& high) {
  return c.op("pad", {x, value},
              {{"low", Shape(low.begin(), low.end())},
               {"high", Shape(high.begin(), high.end())},
               {"mode", std::string("constant")}});
}

void import_pad(HloContext& c) {
  const auto rank = static_cast<size_t>(c.rank(c.in(0)));
  c.out(padded(c, c.in(0), c.in(1), c.per_dimension("edge_padding_low", rank, 0),
               c.per_dimension("edge_padding_high", rank, 0), c.per_dimension("interior_padding", rank, 0)));
}

void import_reverse(HloContext& c) { c.out(reversed(c, c.in(0), c.integers("dimensions"))); }

// Scalars as one vector of i64.
ValueId starts_of(HloContext& c, size_t first, size_t count) {
  std::vector<ValueId> starts;
  for (size_t i = 0; i < count; ++i) {
    const ValueId start = c.in(first + i);
    // An unsigned start beyond i64 lies behind everything, as the largest i64 does.
    starts.push_back(c.reshape(c.cast(start, DType::kI64), {1}));
  }
  if (starts.empty()) return c.ints({});
  return starts.size() == 1 ? starts[0] : c.op("concat", starts, {{"axis", int64_t{0}}});
}

void import_dynamic_slice(HloContext& c) {
  const ValueId x = c.in(0);
  const Ints sizes = c.integers("slice_sizes");
  if (static_cast<int>(sizes.size()) != c.rank(x))
    c.malformed(fmt::format("{} sizes", sizes.size()), "one for each dimension");
  if (sizes.empty()) return c.out(x);
  c.out(c.op("dynamic_slice", {x, starts_of(c, 1, sizes.size())}, {{"sizes", Shape(sizes.begin(), sizes.end())}}));
}

void import_dynamic_update_slice(HloContext& c) {
  const ValueId x = c.in(0), update = c.in(1);
  if (c.rank(x) == 0) return c.out(update);
  c.out(c.op("dynamic_update_slice", {x, update, starts_of(c, 2, static_cast<size_t>(c.rank(x)))}));
}

// ---- shapes that values say ----

Shape sizes_in(HloContext& c, ValueId v) {
  const auto sizes = c.known_sizes(v);
  if (!sizes) c.unsupported("a shape that depends on data");
  return *sizes;
}

void import_get_dimension_size(HloContext& c) {
  const int axis = c.axis(c.whole("dimension"), c.rank(c.in(0)), "dimension");
  c.out(c.cast(c.integer(c.shape(c.in(0))[static_cast<size_t>(axis)]), DType::kI32));
}
void import_dynamic_broadcast_in_dim(HloContext& c) {
  spread(c, c.in(0), c.integers("broadcast_dimensions", Ints{}), sizes_in(c, c.in(1)));
}
void import_dynamic_reshape(HloContext& c) { c.out(c.reshape(c.in(0), sizes_in(c, c.in(1)))); }
void import_dynamic_iota(HloContext& c) {
  const Shape sizes = sizes_in(c, c.in(0));
  const int64_t axis = c.axis(c.whole("iota_dimension"), static_cast<int>(sizes.size()), "iota_dimension");
  c.out(c.cast(c.iota(sizes, axis), c.result_dtype()));
}
void import_real_dynamic_slice(HloContext& c) {
  const Shape starts = sizes_in(c, c.in(1)), limits = sizes_in(c, c.in(2)), steps = sizes_in(c, c.in(3));
  const auto rank = static_cast<size_t>(c.rank(c.in(0)));
  if (starts.size() != rank || limits.size() != rank || steps.size() != rank)
    c.malformed("places of another rank", "one for each dimension");
  Shape sizes;
  Ints numbers;
  for (size_t d = 0; d < rank; ++d) {
    const auto step = as_int(steps[d]);
    if (!step || *step < 1) c.unsupported("steps that are no numbers");
    numbers.push_back(*step);
    sizes.push_back(normalize_size(ceildiv(limits[d] - starts[d], *step)));
  }
  c.out(c.slice(c.in(0), starts, sizes, numbers));
}
void import_dynamic_pad(HloContext& c) {
  const Shape low = sizes_in(c, c.in(2)), high = sizes_in(c, c.in(3)), between = sizes_in(c, c.in(4));
  for (const Expr& amount : between)
    if (!is_const_int(amount, 0)) c.unsupported("elements between others, of an open shape");
  c.out(c.op("pad", {c.in(0), c.in(1)}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}}));
}

constexpr HloOperator kOperators[] = {
    {"stablehlo.broadcast_in_dim", import_broadcast_in_dim},
    {"stablehlo.concatenate", import_concatenate},
    {"stablehlo.constant", import_constant},
    {"stablehlo.dynamic_broadcast_in_dim", import_dynamic_broadcast_in_dim},
    {"stablehlo.dynamic_iota", import_dynamic_iota},
    {"stablehlo.dynamic_pad", import_dynamic_pad},
    {"stablehlo.dynamic_reshape", import_dynamic_reshape},
    {"stablehlo.dynamic_slice", import_dynamic_slice},
    {"stablehlo.dynamic_update_slice", import_dynamic_update_slice},
    {"stablehlo.get_dimension_size", import_get_dimension_size},
    {"stablehlo.iota", import_iota},
    {"stablehlo.pad", import_pad},
    {"stablehlo.real_dynamic_slice", import_real_dynamic_slice},
    {"stablehlo.reshape", import_reshape},
    {"stablehlo.reverse", import_reverse},
    {"stablehlo.slice", import_slice},
    {"stablehlo.transpose", import_transpose},
};

}  // namespace

std::span<const HloOperator> shape_operators() { return kOperators; }

ValueId padded(HloContext& c, ValueId x, ValueId value, const Ints& low, const Ints& high, const Ints& between) {
  const auto rank = static_cast<size_t>(c.rank(x));
  for (size_t d = 0; d < rank; ++d) {
    if (between[d] == 0) continue;
    const int64_t extent = c.dims(x)[d];
    if (between[d] < 0 || between[d] > (int64_t{1} << 31))
      c.malformed(fmt::format("{} elements between two", between[d]), "0 or more");
    if (extent < 2) continue;
    // Each element with what follows it, less what follows the last.
    Shape apart = c.shape(x), together = apart;
    apart.insert(apart.begin() + static_cast<ptrdiff_t>(d) + 1, 1);
    Ints none(apart.size(), 0), behind = none;
    behind[d + 1] = between[d];
    together[d] = extent * (between[d] + 1);
    x = c.reshape(edged(c, c.reshape(x, apart), value, none, behind), together);
    Ints cut(rank, 0);
    cut[d] = -between[d];
    x = edged(c, x, value, Ints(rank, 0), cut);
  }
  return edged(c, x, value, low, high);
}

ValueId reversed(HloContext& c, ValueId x, const Ints& dims) {
  const auto rank = static_cast<size_t>(c.rank(x));
  Shape starts(rank, 0), sizes = c.shape(x);
  Ints steps(rank, 1);
  for (const int64_t d : c.axes(dims, c.rank(x))) {
    const auto at = static_cast<size_t>(d);
    starts[at] = normalize_size(sizes[at] - 1);
    steps[at] = -1;
    if (is_const_int(sizes[at], 0)) return x;
  }
  return c.slice(x, starts, sizes, steps);
}

}  // namespace tessera::inline stablehlo
