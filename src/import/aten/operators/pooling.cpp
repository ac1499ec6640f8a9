// Pooling over the spatial dimensions of x [N,C,spatial...], or without N.
#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

using Ints = std::vector<int64_t>;

// x with the dimension N.
ValueId batched(AtenContext& c, ValueId x, size_t spatial) {
  const auto rank = static_cast<size_t>(c.rank(x));
  if (rank != spatial + 1 && rank != spatial + 2)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()),
                fmt::format("{} spatial dimensions", spatial));
  Shape sizes = c.shape(x);
  if (rank == spatial + 1) sizes.insert(sizes.begin(), 1);
  return c.reshape(x, sizes);
}

ValueId as_given(AtenContext& c, ValueId y, ValueId x) {
  if (c.rank(x) == c.rank(y)) return y;
  const Shape sizes = c.shape(y);
  return c.reshape(y, Shape(sizes.begin() + 1, sizes.end()));
}

Attrs window_of(AtenContext& c, size_t spatial) {
  const Ints kernel = c.per_dimension("kernel_size", spatial, 1);
  const Ints given = c.integers("stride", Ints{});
  const Ints padding = c.per_dimension("padding", spatial, 0);
  return {{"window", kernel},
          {"strides", given.empty() ? kernel : c.per_dimension("stride", spatial, 1)},
          {"pads_begin", padding},
          {"pads_end", padding},
          {"dilations", c.per_dimension("dilation", spatial, 1)},
          {"ceil_mode", c.truth("ceil_mode", false)}};
}

template <size_t kSpatial>
void import_max_pool(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.wants(1)) c.unsupported("the places of maxima");
  c.out(as_given(c, c.composite("max_pool", {batched(c, x, kSpatial)}, window_of(c, kSpatial)), x));
}

template <size_t kSpatial>
void import_average_pool(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.has("divisor_override")) c.unsupported("divisor_override");
  Attrs attrs = window_of(c, kSpatial);
  attrs.set("count_include_pad", c.truth("count_include_pad", true));
  c.out(as_given(c, c.composite("average_pool", {batched(c, x, kSpatial)}, attrs), x));
}

// Along one dimension: window i of `count` goes from floor(i * extent / count) to ceil((i + 1) * extent / count).
struct Windows {
  bool even = true;  // all of one length and one stride
  Ints starts, ends;
};
Windows windows_of(int64_t extent, int64_t count) {
  Windows w;
  for (int64_t i = 0; i < count; ++i) {
    w.starts.push_back(i * extent / count);
    w.ends.push_back(((i + 1) * extent + count - 1) / count);
  }
  for (size_t i = 0; i < w.starts.size(); ++i) {
    w.even = w.even && w.ends[i] - w.starts[i] == w.ends[0] - w.starts[0];
    if (i > 1) w.even = w.even && w.starts[i] - w.starts[i - 1] == w.starts[1];
  }
  return w;
}

// Means over windows along dimension `axis`, as a product with a matrix of weights [extent, count].
ValueId mean_along(AtenContext& c, ValueId x, int64_t axis, const Windows& windows) {
  const int64_t extent = c.dims(x)[static_cast<size_t>(axis)], count = std::ssize(windows.starts);
  Tensor weights(c.dtype(x), {extent, count});
  for (int64_t i = 0; i < count; ++i) {
    const auto w = static_cast<size_t>(i);
    for (int64_t p = windows.starts[w]; p < windows.ends[w]; ++p)
      weights.set_double(p * count + i, 1.0 / static_cast<double>(windows.ends[w] - windows.starts[w]));
  }
  const Ints order = axis_last(c.rank(x), axis);
  const ValueId means = c.op("matmul", {c.transpose(x, order), c.constant_value(std::move(weights))});
  return c.transpose(means, order);
}

// Maxima over windows along dimension `axis`, one slice each.
ValueId most_along(AtenContext& c, ValueId x, int64_t axis, const Windows& windows) {
  std::vector<ValueId> parts;
  for (size_t i = 0; i < windows.starts.size(); ++i) {
    Ints starts(static_cast<size_t>(c.rank(x)), 0), sizes = c.dims(x);
    starts[static_cast<size_t>(axis)] = windows.starts[i];
    sizes[static_cast<size_t>(axis)] = windows.ends[i] - windows.starts[i];
    parts.push_back(c.reduce("max", c.slice(x, starts, sizes, Ints(starts.size(), 1)), {axis}, true));
  }
  return parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", axis}});
}

void adaptive_pool(AtenContext& c, size_t spatial, bool average) {
  const ValueId given = c.tensor("self");
  const Ints wanted = c.per_dimension("output_size", spatial, 1);
  ValueId x = batched(c, given, spatial);
  if (std::all_of(wanted.begin(), wanted.end(), [](int64_t n) { return n == 1; }))
    return c.out(as_given(c, c.composite(average ? "global_average_pool" : "global_max_pool", {x}), given));
  std::vector<Windows> windows;
  bool even = true;
  Ints kernel, strides;
  for (size_t d = 0; d < spatial; ++d) {
    const auto extent = as_int(c.shape(x)[d + 2]);
    if (!extent) c.unsupported("windows over a size that is open");
    if (*extent < 1 || wanted[d] < 1) c.unsupported("windows without elements");
    windows.push_back(windows_of(*extent, wanted[d]));
    even = even && windows.back().even;
    kernel.push_back(windows.back().ends[0]);
    strides.push_back(wanted[d] > 1 ? windows.back().starts[1] : 1);
  }
  if (even) {
    Attrs attrs = {{"window", kernel},
                   {"strides", strides},
                   {"pads_begin", Ints(spatial, 0)},
                   {"pads_end", Ints(spatial, 0)},
                   {"dilations", Ints(spatial, 1)}};
    return c.out(as_given(c, c.composite(average ? "average_pool" : "max_pool", {x}, attrs), given));
  }
  for (size_t d = 0; d < spatial; ++d) {
    const auto axis = static_cast<int64_t>(d + 2);
    x = average ? mean_along(c, x, axis, windows[d]) : most_along(c, x, axis, windows[d]);
  }
  c.out(as_given(c, x, given));
}

template <size_t kSpatial>
void import_adaptive_average(AtenContext& c) {
  adaptive_pool(c, kSpatial, true);
}
template <size_t kSpatial>
void import_adaptive_max(AtenContext& c) {
  if (c.wants(1)) c.unsupported("the places of maxima");
  adaptive_pool(c, kSpatial, false);
}

}  // namespace

std::span<const AtenOperator> pooling_operators() {
  static constexpr AtenOperator table[] = {
      {"_adaptive_avg_pool2d", import_adaptive_average<2>},
      {"_adaptive_avg_pool3d", import_adaptive_average<3>},
      {"adaptive_avg_pool1d", import_adaptive_average<1>},
      {"adaptive_avg_pool2d", import_adaptive_average<2>},
      {"adaptive_avg_pool3d", import_adaptive_average<3>},
      {"adaptive_max_pool1d", import_adaptive_max<1>},
      {"adaptive_max_pool2d", import_adaptive_max<2>},
      {"adaptive_max_pool3d", import_adaptive_max<3>},
      {"avg_pool1d", import_average_pool<1>},
      {"avg_pool2d", import_average_pool<2>},
      {"avg_pool3d", import_average_pool<3>},
      {"max_pool1d", import_max_pool<1>},
      {"max_pool2d", import_max_pool<2>},
      {"max_pool2d_with_indices", import_max_pool<2>},
      {"max_pool3d", import_max_pool<3>},
      {"max_pool3d_with_indices", import_max_pool<3>},
  };
  return table;
}

}  // namespace tessera::inline aten
