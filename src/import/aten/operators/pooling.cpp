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

// The places of one dimension that each window reads, and instead of those outside of it the first that is not.
struct Reach {
  int64_t extent = 0;
  std::vector<Ints> windows;  // all of one length
};

Reach reach_of(int64_t extent, const std::vector<Ints>& windows) {
  size_t length = 0;
  for (const Ints& window : windows) length = std::max(length, window.size());
  Reach reach{extent, windows};
  for (Ints& window : reach.windows) window.resize(length, window[0]);
  return reach;
}

// Maxima over windows and their places among all places of an image: of equal elements the first, and of NaNs the last.
void most_with_places(AtenContext& c, ValueId given, const std::vector<Reach>& reaches) {
  const ValueId x = batched(c, given, reaches.size());
  int64_t extent = 1, length = 1, count = 1;
  Shape sizes = {c.shape(x)[0], c.shape(x)[1]};
  for (const Reach& reach : reaches) {
    sizes.push_back(std::ssize(reach.windows));
    count *= std::ssize(reach.windows);
    length *= std::ssize(reach.windows[0]);
    extent *= reach.extent;
  }
  if (count * length > (1 << 24)) c.unsupported("the places of maxima over so many windows");
  Tensor table(DType::kI64, {count, length});
  for (int64_t i = 0; i < count * length; ++i) {
    int64_t window = i / length, element = i % length, place = 0, stride = 1;
    for (size_t d = reaches.size(); d-- > 0;) {
      const auto windows = std::ssize(reaches[d].windows), elements = std::ssize(reaches[d].windows[0]);
      place +=
          stride * reaches[d].windows[static_cast<size_t>(window % windows)][static_cast<size_t>(element % elements)];
      stride *= reaches[d].extent;
      window /= windows;
      element /= elements;
    }
    table.set_int(i, place);
  }
  const ValueId places = c.constant_value(std::move(table));
  const ValueId flat = c.reshape(x, {sizes[0], sizes[1], extent});
  const ValueId windows = c.op("gather", {flat, places}, {{"axis", int64_t{2}}});
  const ValueId is_most = c.op("eq", {windows, c.reduce("max", windows, {3}, true)});
  ValueId place = c.reduce("min", c.op("select", {is_most, places, c.integer(extent)}), {3}, false);
  if (is_float(c.dtype(x))) {
    const ValueId nans = c.op("select", {c.op("is_nan", {windows}), places, c.integer(-1)});
    const ValueId last = c.reduce("max", nans, {3}, false);
    place = c.op("select", {c.op("ge", {last, c.integer(0)}), last, place});
  }
  const ValueId most = c.op("gather_elements", {flat, place}, {{"axis", int64_t{2}}});
  c.out(0, as_given(c, c.reshape(most, sizes), given));
  c.out(1, as_given(c, c.reshape(place, sizes), given));
}

// What windows of an operator's arguments read, of images and results of fixed sizes.
std::vector<Reach> reaches_of_window(AtenContext& c, ValueId x, size_t spatial) {
  const Attrs window = window_of(c, spatial);
  const Ints dims = c.dims(x), kernel = window.get_ints("window"), strides = window.get_ints("strides"),
             pads = window.get_ints("pads_begin"), dilations = window.get_ints("dilations");
  const auto result = c.result_shape();
  std::vector<Reach> reaches;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t extent = dims[dims.size() - spatial + d];
    const auto count = result ? as_int((*result)[result->size() - spatial + d]) : std::nullopt;
    if (!count || *count < 1 || extent < 1) c.unsupported("the places of maxima of images of such sizes");
    std::vector<Ints> windows(static_cast<size_t>(*count));
    for (int64_t i = 0; i < *count; ++i)
      for (int64_t k = 0; k < kernel[d]; ++k) {
        const int64_t place = i * strides[d] - pads[d] + k * dilations[d];
        if (place >= 0 && place < extent) windows[static_cast<size_t>(i)].push_back(place);
      }
    for (const Ints& read : windows)
      if (read.empty()) c.unsupported("the place of the maximum of nothing");
    reaches.push_back(reach_of(extent, windows));
  }
  return reaches;
}

template <size_t kSpatial>
void import_max_pool(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.wants(1)) return most_with_places(c, x, reaches_of_window(c, x, kSpatial));
  c.out(as_given(c, c.composite("max_pool", {batched(c, x, kSpatial)}, window_of(c, kSpatial)), x));
}

// Sums over windows, of which the last may reach over the end as far as the declared result has it.
Attrs sum_window(AtenContext& c, ValueId x, size_t spatial) {
  const Attrs window = window_of(c, spatial);
  const Ints dims = c.dims(x), kernel = window.get_ints("window"), strides = window.get_ints("strides");
  Ints end = window.get_ints("pads_end");
  const auto result = c.result_shape();
  for (size_t d = 0; d < spatial; ++d) {
    const auto count = result ? as_int((*result)[result->size() - spatial + d]) : std::nullopt;
    if (!count) c.unsupported("divisor_override for a size that is open");
    const int64_t reach = (*count - 1) * strides[d] + kernel[d];
    end[d] = std::max(end[d], reach - dims[dims.size() - spatial + d] - end[d]);
  }
  return {{"kind", std::string("sum")},
          {"window", kernel},
          {"strides", strides},
          {"dilations", window.get_ints("dilations")},
          {"pads_begin", window.get_ints("pads_begin")},
          {"pads_end", end}};
}

template <size_t kSpatial>
void import_average_pool(AtenContext& c) {
  const ValueId x = c.tensor("self");
  Attrs attrs = window_of(c, kSpatial);
  if (c.has("divisor_override")) {
    const Attrs window = sum_window(c, x, kSpatial);
    const ValueId sum = c.op("reduce_window", {batched(c, x, kSpatial)}, window);
    return c.out(as_given(c, c.div(sum, c.scalar_like(sum, c.number("divisor_override"))), x));
  }
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
  if (!c.wants(1)) return adaptive_pool(c, kSpatial, false);
  const ValueId x = c.tensor("self");
  const Ints dims = c.dims(x), wanted = c.per_dimension("output_size", kSpatial, 1);
  std::vector<Reach> reaches;
  for (size_t d = 0; d < kSpatial; ++d) {
    const int64_t extent = dims[dims.size() - kSpatial + d];
    if (extent < 1 || wanted[d] < 1) c.unsupported("windows without elements");
    const Windows windows = windows_of(extent, wanted[d]);
    std::vector<Ints> read(windows.starts.size());
    for (size_t i = 0; i < read.size(); ++i)
      for (int64_t place = windows.starts[i]; place < windows.ends[i]; ++place) read[i].push_back(place);
    reaches.push_back(reach_of(extent, read));
  }
  most_with_places(c, x, reaches);
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
