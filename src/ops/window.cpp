#include "ops/window.h"

#include <fmt/format.h>

#include "arith/simplify.h"

namespace tessera::inline ops {
namespace {

// The extent with the gaps of input dilation.
Expr dilated_extent(const WindowDim& dim) {
  if (dim.input_dilation == 1) return dim.extent;
  return (dim.extent - Expr(1)) * Expr(dim.input_dilation) + Expr(1);
}

Expr window_span(const WindowDim& dim) { return (dim.window - Expr(1)) * Expr(dim.dilation) + Expr(1); }

}  // namespace

std::vector<WindowDim> window_dims(const OpContext& ctx, const Shape& extents, const Shape& windows) {
  const size_t rank = extents.size();
  const auto& strides = require_ints(ctx, "strides", rank, 1, kMaxWindowInt);
  const auto& pads_begin = require_ints(ctx, "pads_begin", rank, -kMaxWindowInt, kMaxWindowInt);
  const auto& pads_end = require_ints(ctx, "pads_end", rank, -kMaxWindowInt, kMaxWindowInt);
  const auto& dilations = require_ints(ctx, "dilations", rank, 1, kMaxWindowInt);
  const bool gaps = ctx.attrs.has("input_dilations");
  if (gaps) require_ints(ctx, "input_dilations", rank, 1, kMaxWindowInt);
  std::vector<WindowDim> dims;
  for (size_t d = 0; d < rank; ++d)
    dims.push_back({extents[d], windows[d], strides[d], pads_begin[d], pads_end[d], dilations[d],
                    gaps ? ctx.attrs.get_ints("input_dilations")[d] : 1});
  return dims;
}

Expr window_count(const OpContext& ctx, const WindowDim& dim, size_t spatial_dim) {
  const auto require_reach = [&](const Expr& count, int64_t distance) {
    if (const auto known = as_int(count); known && *known > kMaxExtent / distance)
      ctx.fail("TSR-2025",
               fmt::format("spatial dimension {}: {} elements that lie {} apart", spatial_dim, *known, distance),
               "places up to 2^40");
  };
  require_reach(dim.extent, dim.input_dilation);
  require_reach(dim.window, dim.dilation);
  const Expr padded = dilated_extent(dim) + Expr(dim.pad_begin) + Expr(dim.pad_end);
  const Expr count = normalize_size(floordiv(padded - window_span(dim), dim.stride) + Expr(1));
  const auto at_least_sizes = value_at_least_sizes(count);
  if (at_least_sizes && *at_least_sizes <= 0)
    ctx.fail("TSR-2026",
             fmt::format("spatial dimension {}: a window spanning {} over an input of {}, padding included",
                         spatial_dim, to_string(normalize_size(window_span(dim))), to_string(normalize_size(padded))),
             "a window that fits into the padded input",
             as_int(count) ? "" : "leave small sizes out of the range of the dimension");
  return count;
}

WindowPlace window_place(const WindowDim& dim, const Expr& output, const Expr& k, const Expr& output_extent) {
  const Expr place = output * Expr(dim.stride) + k * Expr(dim.dilation) - Expr(dim.pad_begin);
  const Expr end = dilated_extent(dim);
  Expr inside = const_int(DType::kBool, 1);
  if (dim.pad_begin > 0) inside = logical_and(inside, Expr(0) <= place);
  // The windows fit into the padded input, so without padding at the end no place lies behind the last element; with
  // it, the last window may still not reach it.
  bool reaches_end = dim.pad_end > 0;
  const Expr last = (output_extent - Expr(1)) * Expr(dim.stride) + window_span(dim) - Expr(1) - Expr(dim.pad_begin);
  if (as_int(last) && as_int(end)) reaches_end = *as_int(last) >= *as_int(end);
  else if (reaches_end) reaches_end = !size_at_most(last, end - Expr(1));
  if (reaches_end) inside = logical_and(inside, place < end);
  if (dim.input_dilation == 1) return {place, inside};
  inside = logical_and(inside, equal(floormod(place, dim.input_dilation), 0));
  return {floordiv(place, dim.input_dilation), inside};
}

std::vector<AttrDef> window_attrs() {
  return {{"strides", AttrKind::kInts, true, "distance between neighbouring windows, per spatial dimension"},
          {"pads_begin", AttrKind::kInts, true, "padding before the first element; negative cuts off"},
          {"pads_end", AttrKind::kInts, true, "padding after the last element; negative cuts off"},
          {"dilations", AttrKind::kInts, true, "distance between neighbouring places of a window"}};
}

}  // namespace tessera::inline ops
