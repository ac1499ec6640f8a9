// Pooling.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/window_attributes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

Attrs window_attrs_of(NodeContext& c, ValueId x) {
  const WindowAttributes window = read_window(c, spatial_extents(c, x), {});
  require_fixed_pads(c, window);
  return {{"window", window.kernel},         {"strides", window.strides},
          {"pads_begin", window.pads_begin}, {"pads_end", window.pads_end},
          {"dilations", window.dilations},   {"ceil_mode", c.attrs.get_int("ceil_mode", 0) != 0}};
}

// |x|^p, and the p-th root of a sum of such powers.
ValueId power(NodeContext& c, ValueId x, double p) {
  const ValueId magnitude = c.op("abs", {x});
  if (p == 1) return magnitude;
  if (p == 2) return c.mul(x, x);
  return c.op("pow", {magnitude, c.scalar_like(x, p)});
}

ValueId root(NodeContext& c, ValueId sum, double p) {
  if (p == 1) return sum;
  if (p == 2) return c.op("sqrt", {sum});
  return c.op("pow", {sum, c.scalar_like(sum, 1 / p)});
}

double read_p(NodeContext& c) {
  const double p = c.version() < 2 ? c.attrs.get_float("p", 2) : static_cast<double>(c.attrs.get_int("p", 2));
  if (!(p >= 1)) c.malformed(fmt::format("p = {}", p), "1 or more");
  return p;
}

// For each window the place of its first maximum in x, counted over the whole tensor: the window's elements, one
// strided slice of the padded operand each, are compared one after the other. `column_major` counts the spatial
// dimensions the other way round.
ValueId places_of_maxima(NodeContext& c, ValueId x, ValueId maxima, const Attrs& attrs, bool column_major) {
  const Ints results = c.dims(maxima);
  const Ints dims = c.dims(x), kernel = attrs.get_ints("window"), strides = attrs.get_ints("strides"),
             dilations = attrs.get_ints("dilations"), begin = attrs.get_ints("pads_begin");
  const size_t spatial = kernel.size();
  int64_t elements = 1;
  constexpr int64_t kMost = 256;
  for (const int64_t extent : kernel)
    if (__builtin_mul_overflow(elements, extent, &elements)) elements = std::numeric_limits<int64_t>::max();
  if (elements > kMost)
    c.unsupported(fmt::format("the indices of maxima among {} elements, more than {}", elements, kMost));
  // The place of every element.
  ValueId places = c.iota(dims, 0);
  int64_t step = 1;
  const auto count = [&](size_t d) {
    const ValueId along = c.mul(c.iota(dims, static_cast<int64_t>(d)), c.integer(step));
    places = step == 1 ? along : c.add(places, along);
    step *= dims[d];
  };
  for (size_t i = 0; i < spatial; ++i) count(column_major ? 2 + i : dims.size() - 1 - i);
  count(1);
  count(0);
  Ints low(dims.size(), 0), high(dims.size(), 0);
  for (size_t d = 0; d < spatial; ++d) {
    low[d + 2] = begin[d];
    const int64_t reach = (results[d + 2] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1;
    high[d + 2] = std::max<int64_t>(0, reach - begin[d] - dims[d + 2]);
  }
  const auto padded = [&](ValueId v, double value) {
    return c.op("pad", {v, c.scalar_like(v, value)}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  };
  const ValueId values = is_float(c.dtype(x)) ? padded(x, -std::numeric_limits<double>::infinity()) : x;
  if (values == x && (low != Ints(dims.size(), 0) || high != low))
    c.unsupported("the indices of maxima of padded integers");
  const ValueId nowhere = c.integer(step);
  places = padded(places, static_cast<double>(step));
  Ints by(dims.size(), 1);
  for (size_t d = 0; d < spatial; ++d) by[d + 2] = strides[d];
  Ints steps = by, column = results;
  for (size_t d = 0; d < dims.size(); ++d)
    if (results[d] <= 1) steps[d] = 1;
  column.push_back(1);
  std::vector<ValueId> values_at, places_at;
  for (int64_t k = 0; k < elements; ++k) {
    Ints starts(dims.size(), 0);
    int64_t rest = k;
    for (size_t d = spatial; d-- > 0; rest /= kernel[d]) starts[d + 2] = rest % kernel[d] * dilations[d];
    values_at.push_back(c.reshape(c.slice(values, starts, results, steps), column));
    places_at.push_back(c.reshape(c.slice(places, starts, results, steps), column));
  }
  const auto rank = static_cast<int64_t>(dims.size());
  const auto side_by_side = [&](const std::vector<ValueId>& parts) {
    return parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", rank}});
  };
  const ValueId is_maximum = c.op("eq", {side_by_side(values_at), c.reshape(maxima, column)});
  const ValueId candidates = c.op("select", {is_maximum, side_by_side(places_at), nowhere});
  return c.reduce("min", candidates, {rank}, false);
}

void import_max_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  const bool column_major = c.attrs.get_int("storage_order", 0) != 0;  // of the indices
  const ValueId x = c.in(0);
  const Attrs attrs = window_attrs_of(c, x);
  const ValueId y = c.composite("max_pool", {x}, attrs);
  c.out(0, y);
  if (c.wants(1)) c.out(1, places_of_maxima(c, x, y, attrs, column_major));
}

}  // namespace

ValueId average_pool(NodeContext& c, ValueId x) {
  Attrs attrs = window_attrs_of(c, x);
  attrs.set("count_include_pad", c.attrs.get_int("count_include_pad", 0) != 0);
  return c.composite("average_pool", {x}, attrs);
}

namespace {

void import_average_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, average_pool(c, c.in(0)));
}

// (sum over the window of |x|^p)^(1/p): as many times the average as the window has elements, padding being 0.
void import_lp_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const double p = read_p(c);
  Attrs attrs = window_attrs_of(c, x);
  if (attrs.get<bool>("ceil_mode")) c.unsupported("ceil_mode = 1");
  Attrs window;
  for (const auto& [name, value] : attrs.all())
    if (name != "ceil_mode") window.set(name, value);
  window.set("kind", std::string("sum"));
  c.out(0, root(c, c.op("reduce_window", {power(c, x, p)}, window), p));
}

void import_global_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  spatial_extents(c, c.in(0));
  c.out(0, c.composite(c.primitive(), {c.in(0)}));
}

void import_global_lp_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const double p = read_p(c);
  Ints axes;
  for (int d = 2; d < c.rank(x); ++d) axes.push_back(d);
  c.out(0, root(c, c.reduce("sum", power(c, x, p), axes, true), p));
}

}  // namespace

OperatorFamily pooling_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"AveragePool", 1, import_average_pool},
      OperatorImporter{"GlobalAveragePool", 1, import_global_pool, "global_average_pool"},
      OperatorImporter{"GlobalLpPool", 1, import_global_lp_pool},
      OperatorImporter{"GlobalMaxPool", 1, import_global_pool, "global_max_pool"},
      OperatorImporter{"LpPool", 1, import_lp_pool},
      OperatorImporter{"MaxPool", 1, import_max_pool},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
