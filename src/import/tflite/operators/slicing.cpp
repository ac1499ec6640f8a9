// Parts of a value, and values that are put together of copies and fillings.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "import/common/limits.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// What a padding is filled with: of quantised values the number that stands for zero.
ValueId filling(OperatorContext& c) {
  const TfliteTensor& x = c.tensor(0);
  const bool has_zero = c.is_quantized(x) && !x.quantization.empty();
  return c.scalar_like(c.in(0), has_zero ? static_cast<double>(c.zero_point(x)) : 0);
}

void require_list(OperatorContext& c, const Ints& list, size_t count, const std::string& what) {
  if (list.size() != count) c.malformed(fmt::format("{} has {} entries", what, list.size()), fmt::format("{}", count));
}

void import_pad(OperatorContext& c) {
  const bool mirror = c.code() == tflite::BuiltinOperator::MIRROR_PAD;
  const bool has_value = c.code() == tflite::BuiltinOperator::PADV2;
  c.require_inputs(has_value ? 3 : 2, has_value ? 3 : 2);
  const ValueId x = c.in(0);
  const Ints pads = c.const_ints(1, "the list of pads"), dims = c.dims(x);
  require_list(c, pads, 2 * dims.size(), "the list of pads");
  Ints low, high;
  for (size_t d = 0; d < dims.size(); ++d) {
    low.push_back(pads[2 * d]);
    high.push_back(pads[2 * d + 1]);
    if (low[d] < 0 || high[d] < 0 || low[d] > kMaxTensorElements || high[d] > kMaxTensorElements)
      c.malformed(fmt::format("pads of {} and {}", low[d], high[d]), "numbers of at least 0");
  }
  if (!mirror) {
    const ValueId value = has_value ? c.reshape(c.in(2), {}) : filling(c);
    return c.out(0, c.op("pad", {x, value}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}}));
  }
  const bool symmetric = c.options<tflite::MirrorPadOptions>().mode() != 0;
  // Indices of what is repeated, dimension by dimension.
  ValueId y = x;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (low[d] == 0 && high[d] == 0) continue;
    const int64_t most = symmetric ? dims[d] : dims[d] - 1;
    if (low[d] > most || high[d] > most)
      c.malformed(fmt::format("pads of {} and {} on {} elements", low[d], high[d], dims[d]),
                  fmt::format("at most {}", most));
    constexpr int64_t kMost = 1 << 24;
    if (dims[d] > kMost) c.unsupported(fmt::format("a mirrored dimension of more than {}", kMost));
    Ints list;
    const int64_t once = symmetric ? 1 : 0;
    for (int64_t i = -low[d]; i < dims[d] + high[d]; ++i)
      list.push_back(i < 0 ? -i - once : i >= dims[d] ? 2 * dims[d] - 2 - i + once : i);
    y = c.op("gather", {y, c.ints(list)}, {{"axis", static_cast<int64_t>(d)}});
  }
  c.out(0, y == x ? c.op("reshape", {x}, {{"shape", dims}}) : y);
}

ValueId part(OperatorContext& c, ValueId x, const Ints& starts, const Ints& sizes, const Ints& steps) {
  return c.op("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
}

// A list of numbers, each known or not.
struct SomeInts {
  std::vector<std::optional<int64_t>> known;
  ValueId all = -1;  // i64
};
SomeInts some_ints(OperatorContext& c, int i, const std::string& what) {
  const ValueId list = c.in(i);
  if ((c.dtype(list) != DType::kI32 && c.dtype(list) != DType::kI64) || c.rank(list) != 1)
    c.malformed(fmt::format("{} is {}", what, c.type(list).to_string()), "a list of integers");
  SomeInts result;
  const auto count = static_cast<size_t>(c.num_elements(list));
  result.known.resize(count);
  if (const auto sizes = c.state().constants.find_some_sizes(list))
    for (size_t e = 0; e < count; ++e)
      if ((*sizes)[e]) result.known[e] = as_int((*sizes)[e]);
  if (const auto whole = c.constant(list))
    for (size_t e = 0; e < count; ++e) result.known[e] = whole->get_int(static_cast<int64_t>(e));
  result.all = c.cast(list, DType::kI64);
  return result;
}

// Parts that begin where a run says. A place below 0 counts from the end.
ValueId part_from(OperatorContext& c, ValueId x, const SomeInts& starts, const std::vector<size_t>& elements,
                  const Ints& sizes) {
  const Ints dims = c.dims(x);
  std::vector<ValueId> places;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (elements[d] == SIZE_MAX) {
      places.push_back(c.ints({0}));
      continue;
    }
    const ValueId place = c.slice(starts.all, Ints{static_cast<int64_t>(elements[d])}, Ints{1}, {1});
    const ValueId from_end = c.add(place, c.integer(dims[d]));
    places.push_back(c.op("select", {c.op("lt", {place, c.integer(0)}), from_end, place}));
  }
  return c.op("dynamic_slice", {x, c.op("concat", places, {{"axis", int64_t{0}}})}, {{"sizes", make_shape(sizes)}});
}

void import_slice(OperatorContext& c) {
  c.require_inputs(3, 3);
  const ValueId x = c.in(0);
  if (!c.const_tensor(1)) {
    const SomeInts starts = some_ints(c, 1, "the list of starts");
    const Ints dims = c.dims(x);
    Ints sizes = c.const_ints(2, "the list of sizes");
    require_list(c, sizes, dims.size(), "the list of sizes");
    require_list(c, Ints(starts.known.size()), dims.size(), "the list of starts");
    std::vector<size_t> elements;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (sizes[d] == -1 && starts.known[d]) sizes[d] = dims[d] - *starts.known[d];
      if (sizes[d] == -1) c.unsupported("all that is behind a place that depends on the model's inputs");
      if (sizes[d] < 0 || sizes[d] > dims[d])
        c.malformed(fmt::format("{} elements of {}", sizes[d], dims[d]), "elements that are there");
      elements.push_back(d);
    }
    return c.out(0, part_from(c, x, starts, elements, sizes));
  }
  const Ints dims = c.dims(x), starts = c.const_ints(1, "the list of starts");
  Ints sizes = c.const_ints(2, "the list of sizes");
  require_list(c, starts, dims.size(), "the list of starts");
  require_list(c, sizes, dims.size(), "the list of sizes");
  for (size_t d = 0; d < dims.size(); ++d) {
    if (starts[d] < 0 || starts[d] > dims[d] || sizes[d] < -1 || sizes[d] > dims[d])
      c.malformed(fmt::format("{} elements from {} on of {}", sizes[d], starts[d], dims[d]), "elements that are there");
    if (sizes[d] == -1) sizes[d] = dims[d] - starts[d];
    if (starts[d] + sizes[d] > dims[d])
      c.malformed(fmt::format("{} elements from {} on of {}", sizes[d], starts[d], dims[d]), "elements that are there");
  }
  c.out(0, part(c, x, starts, sizes, Ints(dims.size(), 1)));
}

// A strided slice that begins where a run says: of single elements, or of as many as the model declares.
void import_moving_slice(OperatorContext& c) {
  const auto& options = c.options<tflite::StridedSliceOptions>();
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x), strides = c.const_ints(3, "the list of strides");
  const SomeInts begins = some_ints(c, 1, "the list of begins"), ends = some_ints(c, 2, "the list of ends");
  const size_t count = begins.known.size();
  const auto has = [](int32_t mask, size_t bit) { return bit < 31 && (mask >> bit & 1) != 0; };
  if (ends.known.size() != count || strides.size() != count || count > dims.size())
    c.malformed(fmt::format("{} begins, {} ends and {} strides for {}", count, ends.known.size(), strides.size(),
                            c.type(x).to_string()),
                "as many of each, at most one for each dimension");
  if (options.ellipsis_mask() != 0 || options.new_axis_mask() != 0 || options.offset())
    c.unsupported("new dimensions, and begins that depend on the model's inputs");
  const TfliteTensor& declared = c.output(0);
  std::vector<size_t> elements(dims.size(), SIZE_MAX);
  Ints sizes = dims, shape;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d >= count) {
      shape.push_back(dims[d]);
      continue;
    }
    if (strides[d] != 1) c.unsupported("strides, and begins that depend on the model's inputs");
    if (has(options.shrink_axis_mask(), d)) {
      if (dims[d] < 1) c.malformed(fmt::format("an element of {}", c.type(x).to_string()), "elements that are there");
      elements[d] = d;
      sizes[d] = 1;
      continue;
    }
    const bool from_front = has(options.begin_mask(), d), to_end = has(options.end_mask(), d);
    const auto place = [&](int64_t index) {
      return std::clamp<int64_t>(index < 0 ? index + dims[d] : index, 0, dims[d]);
    };
    if ((from_front || begins.known[d]) && (to_end || ends.known[d])) {
      const int64_t first = from_front ? 0 : place(*begins.known[d]), last = to_end ? dims[d] : place(*ends.known[d]);
      sizes[d] = std::max<int64_t>(last - first, 0);
      if (!from_front && sizes[d] > 0) elements[d] = d;
    } else if (!to_end && !from_front && declared.open.empty() && declared.dims.size() > shape.size() &&
               declared.dims[shape.size()] <= dims[d]) {
      sizes[d] = declared.dims[shape.size()];
      elements[d] = d;
    } else {
      c.unsupported("as many elements as the model's inputs say");
    }
    shape.push_back(sizes[d]);
  }
  c.out(0, c.op("reshape", {part_from(c, x, begins, elements, sizes)}, {{"shape", shape}}));
}

// As in Python, with masks for what is left out, for new dimensions, and for those of one element that go.
void import_strided_slice(OperatorContext& c) {
  c.require_inputs(4, 4);
  if (!c.const_tensor(1) || !c.const_tensor(2)) return import_moving_slice(c);
  const auto& options = c.options<tflite::StridedSliceOptions>();
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x), begins = c.const_ints(1, "the list of begins"),
             ends = c.const_ints(2, "the list of ends");
  const Ints strides = c.const_ints(3, "the list of strides");
  require_list(c, ends, begins.size(), "the list of ends");
  require_list(c, strides, begins.size(), "the list of strides");
  const auto has = [](int32_t mask, size_t bit) { return bit < 31 && (mask >> bit & 1) != 0; };
  size_t taken = 0, ellipses = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    if (has(options.ellipsis_mask(), i)) ++ellipses;
    else if (!has(options.new_axis_mask(), i)) ++taken;
  }
  if (taken > dims.size() || ellipses > 1)
    c.malformed(fmt::format("{} slices of {}", taken, c.type(x).to_string()), "at most one for each dimension");
  Ints starts, sizes, steps, shape;
  size_t d = 0;
  const auto whole = [&] {
    starts.push_back(0);
    sizes.push_back(dims[d]);
    steps.push_back(1);
    shape.push_back(dims[d++]);
  };
  for (size_t i = 0; i < begins.size(); ++i) {
    if (has(options.ellipsis_mask(), i)) {
      for (size_t rest = dims.size() - taken; rest > 0; --rest) whole();
      continue;
    }
    if (has(options.new_axis_mask(), i)) {
      shape.push_back(1);
      continue;
    }
    const int64_t extent = dims[d], step = strides[i];
    if (step == 0 || step == INT64_MIN) c.malformed(fmt::format("a stride of {}", step), "another number than 0");
    const auto place = [&](int64_t index, bool open, bool end) {
      const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? extent : extent - 1;
      if (open) return end == (step > 0) ? most : least;
      return std::clamp(index < 0 ? std::max(index, -extent - 1) + extent : index, least, most);
    };
    if (has(options.shrink_axis_mask(), i)) {
      const int64_t index = begins[i] < 0 ? begins[i] + extent : begins[i];
      if (index < 0 || index >= extent)
        c.malformed(fmt::format("element {} of {}", begins[i], extent), "an element that is there");
      starts.push_back(index);
      sizes.push_back(1);
      steps.push_back(1);
      ++d;
      continue;
    }
    const int64_t begin = place(begins[i], has(options.begin_mask(), i), false);
    const int64_t end = options.offset() && !has(options.end_mask(), i)
                            ? place(begin + ends[i], false, true)
                            : place(ends[i], has(options.end_mask(), i), true);
    const int64_t distance = step > 0 ? end - begin : begin - end, size = step > 0 ? step : -step;
    const int64_t count = distance <= 0 ? 0 : (distance + size - 1) / size;
    starts.push_back(count == 0 ? 0 : begin);
    sizes.push_back(count);
    steps.push_back(step);
    shape.push_back(count);
    ++d;
  }
  while (d < dims.size()) whole();
  c.out(0, c.op("reshape", {part(c, x, starts, sizes, steps)}, {{"shape", shape}}));
}

void import_tile(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x), times = c.const_ints(1, "the list of multiples");
  require_list(c, times, dims.size(), "the list of multiples");
  Ints apart, wide, whole;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (times[d] < 0) c.malformed(fmt::format("a multiple of {}", times[d]), "at least 0");
    apart.insert(apart.end(), {1, dims[d]});
    wide.insert(wide.end(), {times[d], dims[d]});
    int64_t extent;
    if (__builtin_mul_overflow(times[d], dims[d], &extent)) c.malformed("too many copies", "at most 2^40 elements");
    whole.push_back(extent);
  }
  c.out(0, c.op("reshape", {c.broadcast(c.reshape(x, apart), wide)}, {{"shape", whole}}));
}

void import_broadcast_to(OperatorContext& c) {
  c.require_inputs(2, 2);
  c.out(0, c.op("broadcast", {c.in(0)}, {{"shape", c.const_ints(1, "the shape")}}));
}

void import_fill(OperatorContext& c) {
  c.require_inputs(2, 2);
  c.out(0, c.op("broadcast", {c.reshape(c.in(1), {})}, {{"shape", c.const_ints(0, "the shape")}}));
}

void import_reverse(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  Ints starts(dims.size(), 0), steps(dims.size(), 1);
  for (const int64_t axis : c.axes(c.const_ints(1, "the list of axes"), c.rank(x))) {
    const auto a = static_cast<size_t>(axis);
    starts[a] = std::max<int64_t>(dims[a] - 1, 0);
    steps[a] = -1;
  }
  c.out(0, part(c, x, starts, dims, steps));
}

// Blocks of an image become channels, and the other way round.
void import_space_depth(OperatorContext& c) {
  c.require_inputs(1, 1);
  const bool to_depth = c.code() == tflite::BuiltinOperator::SPACE_TO_DEPTH;
  const int64_t block = to_depth ? c.options<tflite::SpaceToDepthOptions>().block_size()
                                 : c.options<tflite::DepthToSpaceOptions>().block_size();
  const ValueId x = c.in(0);
  if (c.rank(x) != 4) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "an image [N,H,W,C]");
  const Ints d = c.dims(x);
  const bool fits =
      block >= 1 && (to_depth ? d[1] % block == 0 && d[2] % block == 0 : block <= 46340 && d[3] % (block * block) == 0);
  if (!fits) c.malformed(fmt::format("blocks of {} for {}", block, c.type(x).to_string()), "blocks that divide it");
  if (to_depth) {
    const ValueId apart = c.reshape(x, {d[0], d[1] / block, block, d[2] / block, block, d[3]});
    const ValueId moved = c.transpose(apart, {0, 1, 3, 2, 4, 5});
    return c.out(0,
                 c.op("reshape", {moved}, {{"shape", Ints{d[0], d[1] / block, d[2] / block, block * block * d[3]}}}));
  }
  const ValueId apart = c.reshape(x, {d[0], d[1], d[2], block, block, d[3] / (block * block)});
  const ValueId moved = c.transpose(apart, {0, 1, 3, 2, 4, 5});
  c.out(0, c.op("reshape", {moved}, {{"shape", Ints{d[0], d[1] * block, d[2] * block, d[3] / (block * block)}}}));
}

// Blocks of an image's places become entries of the batch, and the other way round: how convolutions with dilations
// were once written.
void import_space_batch(OperatorContext& c) {
  c.require_inputs(3, 3);
  const bool to_batch = c.code() == tflite::BuiltinOperator::SPACE_TO_BATCH_ND;
  ValueId x = c.in(0);
  const Ints block = c.const_ints(1, "the shape of a block"), edges = c.const_ints(2, "the list of pads or crops");
  Ints dims = c.dims(x);
  const size_t spatial = block.size();
  require_list(c, edges, 2 * spatial, "the list of pads or crops");
  if (dims.size() < spatial + 1)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "more dimensions");
  int64_t blocks = 1;
  for (size_t d = 0; d < spatial; ++d)
    if (block[d] < 1 || edges[2 * d] < 0 || edges[2 * d + 1] < 0 || edges[2 * d] > kMaxTensorElements ||
        edges[2 * d + 1] > kMaxTensorElements || __builtin_mul_overflow(blocks, block[d], &blocks))
      c.malformed(fmt::format("a block of {} with {} and {}", block[d], edges[2 * d], edges[2 * d + 1]),
                  "blocks of at least 1, and nothing below 0");
  if (to_batch) {
    Ints low(dims.size(), 0), high(dims.size(), 0), apart = {dims[0]}, perm;
    for (size_t d = 0; d < spatial; ++d) {
      low[d + 1] = edges[2 * d];
      high[d + 1] = edges[2 * d + 1];
      dims[d + 1] += low[d + 1] + high[d + 1];
      if (dims[d + 1] % block[d] != 0)
        c.malformed(fmt::format("blocks of {} on {} elements", block[d], dims[d + 1]), "blocks that divide them");
      apart.insert(apart.end(), {dims[d + 1] / block[d], block[d]});
      perm.push_back(static_cast<int64_t>(2 * d + 2));
    }
    x = c.op("pad", {x, filling(c)}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
    perm.push_back(0);
    for (size_t d = 0; d < spatial; ++d) perm.push_back(static_cast<int64_t>(2 * d + 1));
    Ints whole = {dims[0] * blocks};
    for (size_t d = 0; d < spatial; ++d) whole.push_back(dims[d + 1] / block[d]);
    for (size_t d = spatial + 1; d < dims.size(); ++d) {
      perm.push_back(static_cast<int64_t>(apart.size()));
      apart.push_back(dims[d]);
      whole.push_back(dims[d]);
    }
    return c.out(0, c.op("reshape", {c.transpose(c.reshape(x, apart), perm)}, {{"shape", whole}}));
  }
  if (dims[0] % blocks != 0)
    c.malformed(fmt::format("blocks of {} entries for {}", blocks, c.type(x).to_string()),
                "blocks that divide the batch");
  Ints apart = block, perm = {static_cast<int64_t>(spatial)}, whole = {dims[0] / blocks};
  apart.push_back(dims[0] / blocks);
  for (size_t d = 0; d < spatial; ++d) {
    perm.insert(perm.end(), {static_cast<int64_t>(spatial + 1 + d), static_cast<int64_t>(d)});
    apart.push_back(dims[d + 1]);
    whole.push_back(dims[d + 1] * block[d]);
  }
  for (size_t d = spatial + 1; d < dims.size(); ++d) {
    perm.push_back(static_cast<int64_t>(apart.size()));
    apart.push_back(dims[d]);
    whole.push_back(dims[d]);
  }
  x = c.reshape(c.transpose(c.reshape(x, apart), perm), whole);
  Ints starts(whole.size(), 0), sizes = whole;
  for (size_t d = 0; d < spatial; ++d) {
    starts[d + 1] = edges[2 * d];
    sizes[d + 1] -= edges[2 * d] + edges[2 * d + 1];
    if (sizes[d + 1] < 0) c.malformed("crops of more than there is", "crops within the image");
  }
  c.out(0, part(c, x, starts, sizes, Ints(whole.size(), 1)));
}

}  // namespace

std::span<const TfliteOperator> slicing_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {BATCH_TO_SPACE_ND, import_space_batch},
      {BROADCAST_TO, import_broadcast_to},
      {DEPTH_TO_SPACE, import_space_depth},
      {FILL, import_fill},
      {MIRROR_PAD, import_pad},
      {PAD, import_pad},
      {PADV2, import_pad},
      {REVERSE_V2, import_reverse},
      {SLICE, import_slice},
      {SPACE_TO_BATCH_ND, import_space_batch},
      {SPACE_TO_DEPTH, import_space_depth},
      {STRIDED_SLICE, import_strided_slice},
      {TILE, import_tile},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
