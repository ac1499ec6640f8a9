// Images read between their pixels: GridSample, RoiAlign, MaxRoiPool; and places that a pooling remembered: MaxUnpool.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/read/window_attributes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// One pixel that takes part along a dimension: where, how much, and where it exists.
struct Tap {
  ValueId index;                  // i64, within the dimension
  std::optional<ValueId> weight;  // 1 when absent
  std::optional<ValueId> inside;  // always when absent
};

// extent * scale + offset in the dtype of `like`: a constant when the extent is a number.
ValueId of_extent(NodeContext& c, ValueId like, const Expr& extent, double scale, double offset) {
  if (const auto size = as_int(extent)) return c.scalar_like(like, static_cast<double>(*size) * scale + offset);
  ValueId value = c.cast(c.integer(extent), c.dtype(like));
  if (scale != 1) value = c.mul(value, c.scalar_like(like, scale));
  return offset == 0 ? value : c.add(value, c.scalar_like(like, offset));
}

struct Sampler {
  NodeContext& c;
  std::string mode;     // nearest, linear, cubic
  std::string padding;  // zeros, border, reflection
  bool align_corners;

  ValueId constant(ValueId like, double value) { return c.scalar_like(like, value); }
  ValueId of_extent(ValueId like, const Expr& extent, double scale, double offset) {
    return onnx_import::of_extent(c, like, extent, scale, offset);
  }
  // Within the pixels of the dimension.
  ValueId clamp(ValueId x, const Expr& extent) {
    return c.op("min", {c.op("max", {x, constant(x, 0)}), of_extent(x, extent, 1, -1)});
  }
  // Mirrored at both ends as often as it takes.
  ValueId reflect(ValueId x, const Expr& extent) {
    const double less = align_corners ? 1 : 0;  // the ends are `extent - less` apart
    const auto size = as_int(extent);
    const ValueId one_pixel = c.add(c.mul(x, constant(x, 0)), constant(x, low()));
    if (size && static_cast<double>(*size) <= less) return one_pixel;
    const ValueId range = of_extent(x, extent, 1, -less), twice = of_extent(x, extent, 2, -2 * less);
    const ValueId distance = c.op("abs", {c.sub(x, constant(x, low()))});
    const ValueId periods = c.op("floor", {c.div(distance, twice)});
    const ValueId rest = c.sub(distance, c.mul(periods, twice));
    const ValueId folded = c.op("select", {c.op("gt", {rest, range}), c.sub(twice, rest), rest});
    const ValueId place = c.add(folded, constant(x, low()));
    if (size || less == 0) return place;
    return c.op("select", {c.op("gt", {range, constant(x, 0)}), place, one_pixel});
  }
  double low() const { return align_corners ? 0 : -0.5; }
  ValueId high(ValueId like, const Expr& extent) { return of_extent(like, extent, 1, align_corners ? -1 : -0.5); }

  // A pixel at the whole number `place` (in floating point).
  Tap pixel(ValueId place, std::optional<ValueId> weight, const Expr& extent) {
    std::optional<ValueId> inside;
    if (padding == "zeros")
      inside = c.op("logical_and",
                    {c.op("ge", {place, constant(place, 0)}), c.op("le", {place, of_extent(place, extent, 1, -1)})});
    else if (padding == "reflection") place = reflect(place, extent);
    return {c.cast(clamp(place, extent), DType::kI64), weight, inside};
  }

  // `g`: -1 .. 1 over the dimension.
  std::vector<Tap> taps(ValueId g, const Expr& extent) {
    const ValueId from_left = c.add(g, constant(g, 1));
    ValueId x = align_corners
                    ? c.mul(from_left, of_extent(g, extent, 0.5, -0.5))
                    : c.div(c.sub(c.mul(from_left, of_extent(g, extent, 1, 0)), constant(g, 1)), constant(g, 2));
    if (mode == "nearest") x = c.op("round", {x});
    if (padding == "border") {
      const ValueId beyond =
          c.op("logical_or", {c.op("lt", {x, constant(x, low())}), c.op("gt", {x, high(x, extent)})});
      if (mode != "cubic") x = c.op("select", {beyond, clamp(x, extent), x});
    } else if (padding == "reflection" && mode != "cubic") {
      x = reflect(x, extent);
    }
    if (mode == "nearest") return {pixel(c.op("round", {x}), std::nullopt, extent)};
    const ValueId floor = c.op("floor", {x});
    const ValueId t = c.sub(x, floor);
    if (mode == "linear")
      return {pixel(floor, c.sub(constant(t, 1), t), extent), pixel(c.add(floor, constant(t, 1)), t, extent)};
    // Keys' cubic with a = -0.75, for distances below and above 1.
    constexpr double a = -0.75;
    const auto near = [&](ValueId d) {
      const ValueId slope = c.sub(c.mul(d, constant(d, a + 2)), constant(d, a + 3));
      return c.add(c.mul(c.mul(slope, d), d), constant(d, 1));
    };
    const auto far = [&](ValueId d) {
      const ValueId inner = c.add(c.mul(c.sub(c.mul(d, constant(d, a)), constant(d, 5 * a)), d), constant(d, 8 * a));
      return c.sub(c.mul(inner, d), constant(d, 4 * a));
    };
    const auto at = [&](double offset) { return c.add(floor, constant(floor, offset)); };
    const ValueId back = c.sub(constant(t, 1), t);
    return {pixel(at(-1), far(c.add(t, constant(t, 1))), extent), pixel(at(0), near(t), extent),
            pixel(at(1), near(back), extent), pixel(at(2), far(c.add(back, constant(t, 1))), extent)};
  }
};

void import_grid_sample(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x), grid = c.shape(c.in(1));
  const size_t spatial = dims.size() < 2 ? 0 : dims.size() - 2;
  if (spatial < 1 || grid.size() != dims.size() || !equal_sizes(grid[0], dims[0]) ||
      !is_const_int(grid.back(), static_cast<int64_t>(spatial)))
    c.malformed(
        fmt::format("a grid of type {} for an image of type {}", c.type(c.in(1)).to_string(), c.type(x).to_string()),
        "[batch, extents of the result..., spatial dimensions]");
  std::string mode = c.attrs.get_string("mode", c.version() < 20 ? "bilinear" : "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  const std::string padding = c.attrs.get_string("padding_mode", "zeros");
  if ((mode != "linear" && mode != "nearest" && mode != "cubic") ||
      (padding != "zeros" && padding != "border" && padding != "reflection"))
    c.malformed(fmt::format("mode = {}, padding_mode = {}", mode, padding),
                "linear, nearest or cubic; zeros, border or reflection");
  // The pixels that make one value: 1, 2 or 4 for each dimension.
  const size_t most_spatial = mode == "nearest" ? kMostDims : mode == "linear" ? 6 : 3;
  if (spatial > most_spatial) c.unsupported(fmt::format("{} spatial dimensions in the mode {}", spatial, mode));
  Sampler sampler{c, mode, padding, c.attrs.get_int("align_corners", 0) != 0};
  const Expr points = c.count(Shape(grid.begin() + 1, grid.end() - 1));
  const Expr pixels = c.count(Shape(dims.begin() + 2, dims.end()));
  // Coordinates are [N, points]; the last of them belongs to the first spatial dimension.
  const ValueId places = c.reshape(c.in(1), {dims[0], points, static_cast<int64_t>(spatial)});
  std::vector<Tap> joint = {{c.integer(0), std::nullopt, std::nullopt}};
  const auto both = [&](const char* op, std::optional<ValueId> a, std::optional<ValueId> b) {
    return a && b ? std::optional(c.op(op, {*a, *b})) : a ? a : b;
  };
  for (size_t d = 0; d < spatial; ++d) {
    const Expr& extent = dims[d + 2];
    const ValueId column =
        c.reshape(c.slice(places, {0, 0, static_cast<int64_t>(spatial - 1 - d)}, {dims[0], points, 1}, {1, 1, 1}),
                  {dims[0], points});
    const std::vector<Tap> taps = sampler.taps(column, extent);
    std::vector<Tap> next;
    for (const Tap& outer : joint)
      for (const Tap& inner : taps)
        next.push_back({c.add(c.mul(outer.index, c.integer(extent)), inner.index),
                        both("mul", outer.weight, inner.weight), both("logical_and", outer.inside, inner.inside)});
    joint = std::move(next);
  }
  const ValueId flat = c.reshape(x, {dims[0], dims[1], pixels});
  const Shape per_channel = {dims[0], dims[1], points};
  std::optional<ValueId> sum;
  for (const Tap& tap : joint) {
    const auto spread = [&](ValueId v) { return c.reshape(v, {dims[0], 1, points}); };
    ValueId value =
        c.op("gather_elements", {flat, c.broadcast(spread(tap.index), per_channel)}, {{"axis", int64_t{2}}});
    if (tap.inside) value = c.op("select", {spread(*tap.inside), value, c.scalar_like(value, 0)});
    if (tap.weight) value = c.mul(value, c.cast(spread(*tap.weight), c.dtype(value)));
    sum = sum ? c.add(*sum, value) : value;
  }
  Shape result = {dims[0], dims[1]};
  result.insert(result.end(), grid.begin() + 1, grid.end() - 1);
  c.out(0, c.reshape(*sum, result));
}

// Boxes [R, 4] as x1, y1, x2, y2, each cut into bins, in each of which a grid of places is read bilinearly.
void import_roi_align(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId x = c.in(0), rois = c.in(1);
  const Shape dims = c.shape(x);
  const Shape boxes = c.shape(rois);
  if (dims.size() != 4 || boxes.size() != 2 || !is_const_int(boxes[1], 4) || c.rank(c.in(2)) != 1 ||
      !equal_sizes(c.shape(c.in(2))[0], boxes[0]))
    c.malformed(fmt::format("operands of types {}, {} and {}", c.type(x).to_string(), c.type(rois).to_string(),
                            c.type(c.in(2)).to_string()),
                "an image of rank 4, boxes [R, 4] and batch indices [R]");
  const std::string mode = c.attrs.get_string("mode", "avg");
  const int64_t rows = c.attrs.get_int("output_height", 1), columns = c.attrs.get_int("output_width", 1);
  const int64_t samples = c.attrs.get_int("sampling_ratio", 0);
  const double scale = c.attrs.get_float("spatial_scale", 1);
  const std::string transformation =
      c.attrs.get_string("coordinate_transformation_mode", c.version() < 16 ? "output_half_pixel" : "half_pixel");
  if ((mode != "avg" && mode != "max") || rows < 1 || columns < 1 || samples < 0)
    c.malformed(fmt::format("mode = {}, output {} by {}, sampling_ratio = {}", mode, rows, columns, samples),
                "avg or max, extents of at least 1, and a ratio of at least 0");
  const Expr count = boxes[0];
  const int64_t most = std::max<int64_t>(size_range(count).hi.value_or(kMaxTensorElements), 1);
  if (samples == 0) {
    // As many places as the box is large.
    if (!checked_num_elements({most, rows, columns}))
      c.malformed(fmt::format("output {} by {}", rows, columns), "at most 2^40 bins in all boxes");
    const DType place = c.dtype(rois) == DType::kF64 ? DType::kF64 : DType::kF32;
    const Attrs attrs = {{"rows", rows},
                         {"columns", columns},
                         {"scale", scale},
                         {"kind", std::string(mode == "avg" ? "average" : "max")},
                         {"half_pixel", transformation == "half_pixel"}};
    const ValueId bins = c.op("region_pool", {c.transpose(x, {0, 2, 3, 1}), c.cast(rois, place), c.in(2)}, attrs);
    return c.out(0, c.transpose(bins, {0, 3, 1, 2}));
  }
  if (!checked_num_elements({most, rows, samples, columns, samples}))
    c.malformed(fmt::format("output {} by {}, sampling_ratio = {}", rows, columns, samples),
                "at most 2^40 places in all boxes");
  const bool half = transformation == "half_pixel";
  const auto corner = [&](int64_t i) {
    const ValueId v = c.slice(rois, {0, i}, {count, 1}, {1, 1});
    const ValueId scaled = c.mul(v, c.scalar_like(v, scale));
    return half ? c.sub(scaled, c.scalar_like(v, 0.5)) : scaled;
  };
  struct Line {
    ValueId low, high, weight, inside;  // [R, bins * samples]; weight of `high`
  };
  const auto line = [&](int64_t first, int64_t bins, const Expr& extent) -> Line {
    const ValueId start = corner(first);
    ValueId length = c.sub(corner(first + 2), start);
    const auto constant = [&](double value) { return c.scalar_like(start, value); };
    if (!half) length = c.op("max", {length, constant(1)});
    const ValueId bin = c.div(length, constant(static_cast<double>(bins)));
    // Place p of the line lies in the middle of its part of the bin.
    const ValueId place = c.iota({1, bins * samples}, 1, c.dtype(start));
    const ValueId step = c.div(c.add(place, constant(0.5)), constant(static_cast<double>(samples)));
    const ValueId at = c.add(start, c.mul(step, bin));
    const ValueId last = of_extent(c, start, extent, 1, -1), beyond = of_extent(c, start, extent, 1, 0);
    const ValueId inside = c.op("logical_and", {c.op("ge", {at, constant(-1)}), c.op("le", {at, beyond})});
    const ValueId clamped = c.op("min", {c.op("max", {at, constant(0)}), last});
    const ValueId low = c.op("floor", {clamped});
    const ValueId high = c.op("min", {c.add(low, constant(1)), last});
    return {c.cast(low, DType::kI64), c.cast(high, DType::kI64), c.sub(clamped, low), inside};
  };
  const Line y = line(1, rows, dims[2]), z = line(0, columns, dims[3]);
  const int64_t height = rows * samples, width = columns * samples;
  const auto down = [&](ValueId v) { return c.reshape(v, {count, height, 1}); };
  const auto across = [&](ValueId v) { return c.reshape(v, {count, 1, width}); };
  // All pixels of all images behind one another, the channels of each in a row: a place is then a vector of them.
  const ValueId pixels = c.reshape(c.transpose(x, {0, 2, 3, 1}), {dims[0] * dims[2] * dims[3], dims[1]});
  const auto each_channel = [&](ValueId v) { return c.reshape(v, {count, height, width, 1}); };
  const auto times = [&](ValueId v, const Expr& factor) { return c.mul(v, c.integer(factor)); };
  const ValueId image = c.reshape(times(c.cast(c.in(2), DType::kI64), dims[2] * dims[3]), {count, 1, 1});
  const ValueId inside = c.op("logical_and", {down(y.inside), across(z.inside)});
  const auto one_minus = [&](ValueId v) { return c.sub(c.scalar_like(v, 1), v); };
  std::optional<ValueId> total;
  for (const bool bottom : {false, true})
    for (const bool right : {false, true}) {
      const ValueId row = times(down(bottom ? y.high : y.low), dims[3]), column = across(right ? z.high : z.low);
      const ValueId value =
          c.op("gather", {pixels, c.add(image, c.add(row, column))}, {{"axis", int64_t{0}}});  // [R, height, width, C]
      const ValueId weight =
          c.mul(down(bottom ? y.weight : one_minus(y.weight)), across(right ? z.weight : one_minus(z.weight)));
      const ValueId term = c.mul(value, each_channel(weight));
      total = !total ? term : mode == "avg" ? c.add(*total, term) : c.op("max", {*total, term});
    }
  const ValueId read = c.op("select", {each_channel(inside), *total, c.scalar_like(*total, 0)});
  const ValueId bins = c.reshape(read, {count, rows, samples, columns, samples, dims[1]});
  ValueId result = c.reduce(mode == "avg" ? "sum" : "max", bins, {2, 4}, false);
  if (mode == "avg") result = c.div(result, c.scalar_like(result, static_cast<double>(samples * samples)));
  c.out(0, c.transpose(result, {0, 3, 1, 2}));
}

// Boxes [R, 5] as image, x1, y1, x2, y2, in whole pixels with both ends, each cut into bins; the largest pixel of each
// bin, and 0 for a bin without pixels. A bin is a rectangle: the columns are reduced first, then the rows.
void import_max_roi_pool(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x), boxes = c.dims(c.in(1)), pooled = c.attrs.require_ints("pooled_shape");
  if (dims.size() != 4 || boxes.size() != 2 || boxes[1] != 5)
    c.malformed(fmt::format("operands of types {} and {}", c.type(x).to_string(), c.type(c.in(1)).to_string()),
                "an image of rank 4 and boxes [R, 5]");
  constexpr int64_t kMost = int64_t{1} << 31;
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1 || pooled[0] > kMost || pooled[1] > kMost ||
      !checked_num_elements({std::max<int64_t>(boxes[0], 1), dims[1] + 1, dims[2] + pooled[0], pooled[1]}))
    c.malformed(fmt::format("pooled_shape = [{}]", fmt::join(pooled, ",")),
                "two extents of at least 1, and at most 2^40 bins in all boxes");
  const int64_t count = boxes[0], channels = dims[1];
  const ValueId rois = c.cast(c.in(1), DType::kF32);
  const auto constant = [&](double value) { return c.scalar(DType::kF32, value); };
  const auto column = [&](int64_t i) { return c.slice(rois, {0, i}, {count, 1}, {1, 1}); };
  // In whole pixels, halves away from zero.
  const auto edge = [&](int64_t i) {
    const ValueId place = c.mul(column(i), constant(c.attrs.get_float("spatial_scale", 1)));
    const ValueId size = c.op("abs", {place}), whole = c.op("floor", {size});
    const ValueId more = c.op("select", {c.op("ge", {c.sub(size, whole), constant(0.5)}), constant(1), constant(0)});
    return c.mul(c.op("sign", {place}), c.add(whole, more));
  };
  struct Line {
    ValueId covered;  // bool [R, bins, extent]
    ValueId empty;    // bool [R, bins]
  };
  const auto line = [&](int64_t first, int64_t bins, int64_t extent) -> Line {
    const ValueId start = edge(first);
    const ValueId length = c.op("max", {c.add(c.sub(edge(first + 2), start), constant(1)), constant(1)});
    const ValueId bin = c.div(length, constant(static_cast<double>(bins)));  // [R, 1]
    const ValueId number = c.iota({1, bins}, 1, DType::kF32);
    const auto within = [&](ValueId place) {
      const ValueId moved = c.add(place, start);
      return c.op("min", {c.op("max", {moved, constant(0)}), constant(static_cast<double>(extent))});
    };
    const ValueId low = within(c.op("floor", {c.mul(number, bin)}));
    const ValueId high = within(c.op("ceil", {c.mul(c.add(number, constant(1)), bin)}));
    const ValueId pixel = c.iota({1, 1, extent}, 2, DType::kF32);
    const auto each_pixel = [&](ValueId v) { return c.reshape(v, {count, bins, 1}); };
    return {c.op("logical_and", {c.op("ge", {pixel, each_pixel(low)}), c.op("lt", {pixel, each_pixel(high)})}),
            c.op("le", {high, low})};
  };
  const Line down = line(2, pooled[0], dims[2]), across = line(1, pooled[1], dims[3]);
  const ValueId image = c.reshape(c.cast(column(0), DType::kI64), {count});
  const ValueId images = c.op("gather", {x, image}, {{"axis", int64_t{0}}});  // [R, C, H, W]
  const ValueId nothing = c.scalar_like(x, -std::numeric_limits<double>::infinity());
  const ValueId columns = c.reduce("max",
                                   c.op("select", {c.reshape(across.covered, {count, 1, 1, pooled[1], dims[3]}),
                                                   c.reshape(images, {count, channels, dims[2], 1, dims[3]}), nothing}),
                                   {4}, false);
  const ValueId bins = c.reduce("max",
                                c.op("select", {c.reshape(down.covered, {count, 1, pooled[0], dims[2], 1}),
                                                c.reshape(columns, {count, channels, 1, dims[2], pooled[1]}), nothing}),
                                {3}, false);
  const ValueId empty = c.op("logical_or", {c.reshape(down.empty, {count, 1, pooled[0], 1}),
                                            c.reshape(across.empty, {count, 1, 1, pooled[1]})});
  c.out(0, c.op("select", {empty, c.scalar_like(x, 0), bins}));
}

// Values go back to the places that MaxPool's second result names: flat places of the whole result.
void import_max_unpool(NodeContext& c) {
  c.require_inputs(2, 3);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const size_t spatial = dims.size() < 2 ? 0 : dims.size() - 2;
  const Ints kernel = c.attrs.require_ints("kernel_shape");
  const Ints strides = c.attrs.get_ints("strides", Ints(spatial, 1)),
             pads = c.attrs.get_ints("pads", Ints(2 * spatial, 0));
  if (spatial < 1 || kernel.size() != spatial || strides.size() != spatial || pads.size() != 2 * spatial ||
      c.dims(c.in(1)) != dims)
    c.malformed(fmt::format("operands of types {} and {} with kernel_shape = [{}]", c.type(x).to_string(),
                            c.type(c.in(1)).to_string(), fmt::join(kernel, ",")),
                "equal shapes, and an entry for each spatial dimension");
  const auto within = [](const Ints& list, int64_t low) {
    return std::all_of(list.begin(), list.end(), [&](int64_t v) { return v >= low && v <= (int64_t{1} << 31); });
  };
  if (!within(kernel, 1) || !within(strides, 1) || !within(pads, -(int64_t{1} << 31)))
    c.malformed(fmt::format("kernel_shape = [{}], strides = [{}], pads = [{}]", fmt::join(kernel, ","),
                            fmt::join(strides, ","), fmt::join(pads, ",")),
                "kernels and strides of 1 to 2^31, and pads within 2^31");
  Ints result = {dims[0], dims[1]};
  for (size_t d = 0; d < spatial; ++d) {
    int64_t extent = 0;
    if (__builtin_mul_overflow(dims[d + 2] - 1, strides[d], &extent)) extent = kMaxTensorElements + 1;
    result.push_back(std::min(extent, kMaxTensorElements + 1) - pads[d] - pads[d + spatial] + kernel[d]);
  }
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  const auto elements = checked_num_elements(result);
  if (!elements)
    c.malformed(fmt::format("a result of shape [{}]", fmt::join(result, ",")),
                "extents of at least 0, and at most 2^40 elements");
  const ValueId empty = c.broadcast(c.scalar_like(x, 0), {*elements});
  ValueId y = scattered(c, empty, c.reshape(c.in(1), {count}), c.reshape(x, {count}));
  y = c.reshape(y, result);
  if (c.has(2)) {
    const Ints wanted = ints_or_expected(c, 2, "output_shape", [&] { return c.require_declared(2, "output_shape"); });
    Ints low(result.size(), 0), high(result.size(), 0);
    if (wanted.size() != result.size() || !checked_num_elements(wanted))
      c.malformed(fmt::format("output_shape = [{}]", fmt::join(wanted, ",")), "an extent for each dimension");
    for (size_t d = 0; d < result.size(); ++d) high[d] = wanted[d] - result[d];
    if (wanted != result)
      y = c.op("pad", {y, c.scalar_like(y, 0)}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  }
  c.out(0, y);
}

}  // namespace

OperatorFamily sampling_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"GridSample", 16, import_grid_sample},
      OperatorImporter{"MaxRoiPool", 1, import_max_roi_pool},
      OperatorImporter{"MaxUnpool", 9, import_max_unpool},
      OperatorImporter{"RoiAlign", 10, import_roi_align},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
