// Operators that cut tensors, join them and pad them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/data_size.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

struct Range {
  int64_t start, size, step;
};

// ONNX's slice of one dimension: negative places count from the end, then both ends are clamped into the dimension.
Range clamp_range(int64_t start, int64_t end, int64_t step, int64_t extent) {
  step = std::clamp<int64_t>(step, -kMaxTensorElements, kMaxTensorElements);
  if (start < 0) start += extent;
  if (end < 0) end += extent;
  if (extent == 0) return {0, 0, 1};
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, extent);
    end = std::clamp<int64_t>(end, 0, extent);
    const int64_t size = end <= start ? 0 : (end - start + step - 1) / step;
    return {size ? start : 0, size, size > 1 ? step : 1};
  }
  start = std::clamp<int64_t>(start, 0, extent - 1);
  end = std::clamp<int64_t>(end, -1, extent - 1);
  const int64_t size = start <= end ? 0 : (start - end - step - 1) / -step;
  return {size ? start : 0, size, size > 1 ? step : 1};
}

struct SymbolicRange {
  Expr start, size;
  int64_t step;
};

// The same where a place or the extent is an expression. UnsupportedNode where it is not certain from which end a
// negative place counts.
SymbolicRange clamp_range(NodeContext& c, const Expr& start, const Expr& end, int64_t step, const Expr& extent) {
  if (as_int(start) && as_int(end) && as_int(extent)) {
    const Range range = clamp_range(*as_int(start), *as_int(end), step, *as_int(extent));
    return {range.start, range.size, range.step};
  }
  if (step < 0 && size_range(extent).lo.value_or(0) < 1)
    c.unsupported(fmt::format("a slice of an extent {}, which may be 0", to_string(extent)));
  step = std::clamp<int64_t>(step, -kMaxTensorElements, kMaxTensorElements);
  const auto clamped = [&](const Expr& place, const Expr& lo, const Expr& hi) -> Expr {
    // Writers say "to the end" by very large numbers.
    if (const auto known = as_int(place); known && *known >= kMaxTensorElements) return hi;
    if (const auto known = as_int(place); known && *known <= -kMaxTensorElements) return lo;
    Expr from_front = place;
    if (size_at_most(place, -1)) from_front = place + extent;
    else if (!size_at_most(0, place))
      c.unsupported(fmt::format("a slice at {}, which may be negative and then counts from the end", to_string(place)));
    return normalize_size(max(min(from_front, hi), lo));
  };
  const bool forward = step > 0;
  const Expr last = extent - Expr(1);
  const Expr first = forward ? clamped(start, 0, extent) : clamped(start, 0, last);
  const Expr stop = forward ? clamped(end, 0, extent) : clamped(end, -1, last);
  const Expr way = forward ? stop - first + Expr(step - 1) : first - stop + Expr(-step - 1);
  const Expr size = normalize_size(max(floordiv(way, forward ? step : -step), 0));
  if (is_const_int(size, 0)) return {0, 0, 1};
  return {first, size, is_const_int(size, 1) ? 1 : step};
}

ValueId slice_axis(NodeContext& c, ValueId x, int axis, const Expr& start, const Expr& size) {
  Ints steps(static_cast<size_t>(c.rank(x)), 1);
  Shape starts(steps.size(), 0), sizes = c.shape(x);
  starts[static_cast<size_t>(axis)] = start;
  sizes[static_cast<size_t>(axis)] = size;
  return c.slice(x, starts, sizes, steps);
}

// Operand `i` for each axis that is named, one list of i64.
ValueId axes_or_first(NodeContext& c, int i, int64_t count) {
  return c.has(i) ? runtime_ints(c, i, "axes") : c.iota({count}, 0);
}

// Which dimensions the axes name, as far as that is known: all when it is not.
std::vector<bool> maybe_named(NodeContext& c, int i, int64_t count, int rank) {
  std::vector<bool> named(static_cast<size_t>(rank), !c.has(i) || c.is_runtime(i));
  if (!c.has(i)) {
    for (int64_t d = count; d < rank; ++d) named[static_cast<size_t>(d)] = false;
  } else if (!c.is_runtime(i)) {
    for (const int64_t axis : c.axes(c.const_ints(i, "axes"), rank)) named[static_cast<size_t>(axis)] = true;
  }
  return named;
}

ValueId clamped(NodeContext& c, ValueId v, ValueId lo, ValueId hi) { return c.op("min", {c.op("max", {v, lo}), hi}); }

// Values at computed places, of the declared extents or, without a declaration, of extents that data decide.
// clamp_range in the graph's operators.
void import_runtime_slice(NodeContext& c, ValueId x, std::optional<Ints> given_shape) {
  const Shape dims = c.shape(x);
  const int rank = c.rank(x);
  const ValueId starts = runtime_ints(c, 1, "starts"), ends = runtime_ints(c, 2, "ends");
  const int64_t count = c.num_elements(starts);
  const ValueId steps = c.has(4) ? runtime_ints(c, 4, "steps") : c.broadcast(c.integer(1), Ints{count});
  const ValueId axes = axes_or_first(c, 3, count);
  for (const ValueId list : {ends, axes, steps})
    if (c.num_elements(list) != count || count > rank || (given_shape && given_shape->size() != dims.size()))
      c.malformed(fmt::format("{} starts, {} ends, {} axes and {} steps for {}{}", count, c.num_elements(ends),
                              c.num_elements(axes), c.num_elements(steps), c.type(x).to_string(),
                              given_shape ? " and the declared shape " + dims_text(*given_shape) : ""),
                  "as many of each, for dimensions of the operand");
  const PerAxis given = per_axis(c, axes, {starts, ends, steps}, rank);
  const ValueId extent = c.size_values(dims), zero = c.integer(0), one = c.integer(1);
  const ValueId most = c.integer(kMaxTensorElements), least = c.integer(-kMaxTensorElements);
  const ValueId step = c.op("select", {given.named, clamped(c, given.values[2], least, most), one});
  const ValueId forward = c.op("gt", {step, zero});
  const auto from_front = [&](ValueId place) {
    return c.op("select", {c.op("lt", {place, zero}), c.add(place, extent), place});
  };
  const ValueId last = c.sub(extent, one);
  const ValueId start_limit = c.op("select", {forward, extent, last});
  const ValueId end_floor = c.op("select", {forward, zero, c.integer(-1)});
  const ValueId raw_end = c.op("select", {given.named, given.values[1], extent});
  const ValueId start = clamped(c, from_front(given.values[0]), zero, start_limit);
  const ValueId end = clamped(c, from_front(raw_end), end_floor, start_limit);
  // ceil((end - start) / step), 0 when the step leads away from the end.
  const ValueId sign = c.op("select", {forward, one, c.integer(-1)});
  const ValueId way = c.sub(c.add(c.sub(end, start), step), sign);
  const ValueId size = c.op("max", {c.div(way, step), zero});
  const ValueId stepping = c.reduce("min", c.cast(c.op("ne", {step, zero}), DType::kI32), {0}, false);
  const ValueId legal = c.op("logical_and", {given.legal, c.cast(stepping, DType::kBool)});
  const std::vector<bool> named = maybe_named(c, 3, count, rank);
  Shape declared = dims;
  if (given_shape) {
    declared = make_shape(*given_shape);
    require_shape(c, 0, size, *given_shape, legal);
    if (checked_num_elements(*given_shape) == 0) return c.out(0, c.broadcast(c.scalar_like(x, 0), declared));
  } else {
    c.check_when_run(1, "starts", c.reshape(legal, {}), starts,
                     "places along axes of the operand, in steps other than 0");
    for (int d = 0; d < rank; ++d)
      if (const auto at = static_cast<size_t>(d); named[at]) declared[at] = bind_size(c, element(c, size, d), dims[at]);
  }
  ValueId y = x;
  for (int d = 0; d < rank; ++d) {
    const auto at = static_cast<size_t>(d);
    if (!named[at] && equal_sizes(dims[at], declared[at])) continue;
    if (is_const_int(dims[at], 0) || !named[at])
      c.unsupported(fmt::format("no slice of {} has the declared shape {} of '{}'", c.type(x).to_string(),
                                to_string(declared), c.output_name(0)));
    const ValueId places = c.add(element(c, start, d), c.mul(c.iota({declared[at]}, 0), element(c, step, d)));
    y = take_clamped(c, y, d, places);
  }
  c.out(0, y);
}

// Values of the declared extents: inside the operand, or what the mode puts around it.
void import_runtime_pad(NodeContext& c, ValueId x, const std::string& mode, const Ints& declared) {
  const Ints dims = c.dims(x);
  const int rank = c.rank(x);
  const ValueId pads = runtime_ints(c, 1, "pads");
  const int64_t count = c.num_elements(pads) / 2;
  const ValueId axes = axes_or_first(c, 3, count);
  if (c.num_elements(pads) != 2 * c.num_elements(axes) || declared.size() != dims.size() || count > rank ||
      (!c.has(3) && count != rank))
    c.malformed(fmt::format("{} pads for {} axes of {} and the declared shape {}", c.num_elements(pads),
                            c.has(3) ? c.num_elements(axes) : rank, c.type(x).to_string(), dims_text(declared)),
                "two for each axis");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    c.malformed(fmt::format("mode is '{}'", mode), "constant, edge, reflect, wrap");
  c.attrs.ignore("value");
  const ValueId lows = c.slice(pads, {0}, {count}, {1}), highs = c.slice(pads, {count}, {count}, {1});
  const PerAxis given = per_axis(c, axes, {lows, highs}, rank);
  const ValueId low = given.values[0];
  require_shape(c, 0, c.add(c.add(c.ints(dims), low), given.values[1]), declared, given.legal);

  ValueId filler = c.scalar_like(x, 0);
  if (c.has(2)) {
    if (c.num_elements(c.in(2)) != 1)
      c.malformed(fmt::format("constant_value of type {}", c.type(c.in(2)).to_string()), "one element");
    filler = c.reshape(c.in(2), {});
  }
  if (c.num_elements(x) == 0 || checked_num_elements(declared) == 0) {
    if (mode != "constant" && checked_num_elements(declared) != 0)
      c.unsupported(fmt::format("mode {} for an operand without elements", mode));
    return c.out(0, c.broadcast(filler, declared));
  }
  const std::vector<bool> named = maybe_named(c, 3, count, rank);
  const ValueId zero = c.integer(0);
  const auto modulo = [&](ValueId v, int64_t period) {
    const ValueId by = c.integer(period), rest = c.op("rem", {v, by});
    return c.op("select", {c.op("lt", {rest, zero}), c.add(rest, by), rest});
  };
  ValueId y = x;
  std::optional<ValueId> inside;  // where the operand is
  for (int d = 0; d < rank; ++d) {
    const auto at = static_cast<size_t>(d);
    if (!named[at] && dims[at] == declared[at]) continue;
    ValueId place = c.sub(c.iota({declared[at]}, 0), element(c, low, d));
    const ValueId last = c.integer(dims[at] - 1);
    if (mode == "constant") {
      const ValueId in = c.op("logical_and", {c.op("ge", {place, zero}), c.op("le", {place, last})});
      Ints along(dims.size(), 1);
      along[at] = declared[at];
      const ValueId shaped = c.reshape(in, along);
      inside = inside ? c.op("logical_and", {*inside, shaped}) : shaped;
    } else if (mode == "wrap") {
      place = modulo(place, dims[at]);
    } else if (mode == "reflect") {
      const int64_t span = 2 * (dims[at] - 1);
      const ValueId phase = modulo(place, std::max<int64_t>(span, 1));
      place = c.op("min", {phase, c.sub(c.integer(span), phase)});
    }
    y = take_clamped(c, y, d, place);
  }
  c.out(0, inside ? c.op("select", {*inside, y, filler}) : y);
}

void import_concat(NodeContext& c) {
  c.require_inputs(1, -1);
  const std::vector<ValueId> operands = c.all_inputs();
  const int axis =
      c.axis(c.version() < 4 ? c.attrs.get_int("axis", 1) : c.attrs.require_int("axis"), c.rank(operands[0]));
  c.out(0, operands.size() == 1 ? operands[0] : c.op("concat", operands, {{"axis", int64_t{axis}}}));
}

void import_split(NodeContext& c) {
  const bool as_input = c.version() >= 13 || c.version() < 2;
  c.require_inputs(1, as_input ? 2 : 1);
  const ValueId x = c.in(0);
  const int axis = c.axis(c.attrs.get_int("axis", 0), c.rank(x));
  const Expr extent = c.shape(x)[static_cast<size_t>(axis)];
  const int64_t parts = c.num_outputs();
  Shape sizes;
  if (c.version() < 2 && c.has(1)) {
    const int64_t most = c.dims(x)[static_cast<size_t>(axis)];
    // Opset 1 has the sizes as either, and the operand in the type of what is split.
    for (const double size : c.const_floats(1, "split")) {
      if (!(size >= 0 && size <= static_cast<double>(most)) || size != std::floor(size))
        c.malformed(fmt::format("split has the entry {}", size), fmt::format("integers from 0 to {}", most));
      sizes.push_back(static_cast<int64_t>(size));
    }
  } else if (c.version() >= 13 && c.is_runtime(1)) {
    Ints declared;
    for (int i = 0; i < parts; ++i) {
      const Ints shape = c.require_declared(1, "split", i);
      if (std::ssize(shape) != c.rank(x))
        c.unsupported(fmt::format("the declared shape {} of '{}'", dims_text(shape), c.output_name(i)));
      declared.push_back(shape[static_cast<size_t>(axis)]);
    }
    require_ints(c, 1, "split", declared);
    sizes = make_shape(declared);
  } else if (const auto given = c.sizes_attr_or_input("split", 13, 1); given && !given->empty()) {
    sizes = *given;
  } else {
    const int64_t declared = c.attrs.get_int("num_outputs", parts);
    const Expr part = normalize_size(floordiv(extent + Expr(parts - 1), parts));
    const Expr rest = normalize_size(extent - part * Expr(parts - 1));
    if (declared != parts || (c.version() < 18 && !equal_sizes(part, rest)) || !size_at_most(0, rest))
      c.malformed(fmt::format("{} of extent {} in {} parts (num_outputs = {})", c.type(x).to_string(),
                              to_string(extent), parts, declared),
                  "a number of parts that divides the extent");
    sizes.assign(static_cast<size_t>(parts), part);
    sizes.back() = rest;
  }
  Expr total = 0;
  bool legal = static_cast<int64_t>(sizes.size()) >= parts;
  for (const Expr& size : sizes) {
    legal = legal && size_at_most(0, size) && size_at_most(size, extent - total);
    if (legal) total = normalize_size(total + size);
  }
  if (!legal || !equal_sizes(total, extent))
    c.malformed(fmt::format("split = {} for {} outputs of dimension {} of {}", to_string(sizes), parts, axis,
                            c.type(x).to_string()),
                fmt::format("{} sizes that add up to {}", parts, to_string(extent)));
  Expr start = 0;
  for (int i = 0; i < parts; ++i) {
    const Expr& size = sizes[static_cast<size_t>(i)];
    if (c.wants(i)) c.out(i, slice_axis(c, x, axis, start, size));
    start = start + size;
  }
}

void import_slice(NodeContext& c) {
  const bool as_inputs = c.version() >= 10;
  c.require_inputs(as_inputs ? 3 : 1, as_inputs ? 5 : 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  constexpr const char* kNames[] = {"", "starts", "ends", "axes", "steps"};
  for (int i = 1; as_inputs && i < 5; ++i)
    if (c.is_runtime(i)) {
      const bool open = may_bind_sizes(c) && !c.declared_dims(0);
      return import_runtime_slice(c, x, open ? std::nullopt : std::make_optional(c.require_declared(i, kNames[i])));
    }
  const Shape starts = as_inputs ? c.const_sizes(1, "starts") : make_shape(c.attrs.require_ints("starts"));
  const Shape ends = as_inputs ? c.const_sizes(2, "ends") : make_shape(c.attrs.require_ints("ends"));
  Ints axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (as_inputs ? c.has(3) : c.attrs.has("axes")) axes = as_inputs ? c.const_ints(3, "axes") : c.attrs.get_ints("axes");
  Ints steps(starts.size(), 1);
  if (as_inputs && c.has(4)) steps = c.const_ints(4, "steps");
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    c.malformed(
        fmt::format("{} starts, {} ends, {} axes and {} steps", starts.size(), ends.size(), axes.size(), steps.size()),
        "as many of each");
  axes = c.axes(axes, c.rank(x));
  Shape first(dims.size(), 0), sizes = dims;
  Ints by(dims.size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (steps[i] == 0) c.malformed("a step of 0", "steps other than 0");
    const auto d = static_cast<size_t>(axes[i]);
    const SymbolicRange range = clamp_range(c, starts[i], ends[i], steps[i], dims[d]);
    first[d] = range.start;
    sizes[d] = range.size;
    by[d] = range.step;
  }
  c.out(0, c.slice(x, first, sizes, by));
}

void import_pad(NodeContext& c) {
  const bool as_inputs = c.version() >= 11;
  c.require_inputs(as_inputs ? 2 : 1, as_inputs ? 4 : 1);
  const ValueId x = c.in(0);
  const auto rank = static_cast<size_t>(c.rank(x));
  const std::string mode = c.attrs.get_string("mode", "constant");
  for (const int i : {1, 3})
    if (as_inputs && c.is_runtime(i))
      return import_runtime_pad(c, x, mode, c.require_declared(i, i == 1 ? "pads" : "axes"));
  const Shape pads =
      as_inputs ? c.const_sizes(1, "pads") : make_shape(c.attrs.require_ints(c.version() < 2 ? "paddings" : "pads"));
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (c.has(3)) axes = c.axes(c.const_ints(3, "axes"), c.rank(x));
  if (pads.size() != 2 * axes.size())
    c.malformed(fmt::format("pads = {}", to_string(pads)),
                fmt::format("{} entries, two for each axis", 2 * axes.size()));
  Shape low(rank, 0), high(rank, 0);
  bool any = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Expr &before = pads[i], &after = pads[i + axes.size()];
    low[static_cast<size_t>(axes[i])] = before;
    high[static_cast<size_t>(axes[i])] = after;
    any = any || !is_const_int(before, 0) || !is_const_int(after, 0);
  }
  std::vector<ValueId> operands = {x};
  if (mode == "constant") {
    if (!as_inputs) {
      operands.push_back(c.scalar_like(x, c.attrs.get_float("value", 0)));
    } else if (c.has(2)) {
      const ValueId value = c.in(2);
      if (c.num_elements(value) != 1)
        c.malformed(fmt::format("constant_value of type {}", c.type(value).to_string()), "one element");
      operands.push_back(c.reshape(value, {}));
    } else {
      operands.push_back(c.scalar_like(x, 0));
    }
  }
  c.attrs.ignore("value");
  c.out(0, any ? c.op("pad", operands, {{"low", low}, {"high", high}, {"mode", mode}}) : x);
}

// The middle of each axis, cut or padded with zeros to the wanted extent.
void import_center_crop_pad(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  Ints axes(static_cast<size_t>(c.rank(x)));
  std::iota(axes.begin(), axes.end(), 0);
  if (c.attrs.has("axes")) axes = c.axes(c.attrs.get_ints("axes"), c.rank(x));
  const Ints wanted = ints_or_expected(c, 1, "shape", [&] {
    const Ints shape = c.require_declared(1, "shape");
    if (std::ssize(shape) != c.rank(x))
      c.unsupported(fmt::format("the declared shape {} of '{}'", dims_text(shape), c.output_name(0)));
    Ints extents;
    for (const int64_t axis : axes) extents.push_back(shape[static_cast<size_t>(axis)]);
    return extents;
  });
  if (wanted.size() != axes.size() || !checked_num_elements(wanted))
    c.malformed(fmt::format("shape = [{}] for {} axes", fmt::join(wanted, ","), axes.size()),
                "one extent for each axis");
  const Ints dims = c.dims(x);
  Ints starts(dims.size(), 0), sizes = dims, low(dims.size(), 0), high(dims.size(), 0);
  bool pads = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i]);
    const int64_t more = wanted[i] - dims[d];
    if (more < 0) {
      starts[d] = -more / 2;
      sizes[d] = wanted[i];
    } else {
      low[d] = more / 2;
      high[d] = more - low[d];
      pads = pads || more > 0;
    }
  }
  ValueId y = c.slice(x, starts, sizes, Ints(dims.size(), 1));
  if (pads)
    y = c.op("pad", {y, c.scalar_like(x, 0)}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  c.out(0, y);
}

}  // namespace

OperatorFamily slicing_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"CenterCropPad", 18, import_center_crop_pad},
      OperatorImporter{"Concat", 1, import_concat},
      OperatorImporter{"Pad", 1, import_pad},
      OperatorImporter{"Slice", 1, import_slice},
      OperatorImporter{"Split", 1, import_split},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
