// The same elements under other shapes, in another order, or taken from several tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {

using Ints = std::vector<int64_t>;

Expr place_within(AtenContext& c, const Expr& place, const Expr& extent) {
  const auto p = as_int(place), e = as_int(extent);
  if (p && *p == 0) return place;
  if (p && e) return Expr(std::clamp<int64_t>(*p < 0 ? *p + *e : *p, 0, *e));
  if (p && *p == std::numeric_limits<int64_t>::max()) return extent;
  const Expr from_front = p && *p < 0 ? normalize_size(place + extent) : place;
  if (size_at_most(0, from_front) && size_at_most(from_front, extent)) return from_front;
  if (size_at_most(0, from_front)) return normalize_size(min(from_front, extent));
  if (p) return normalize_size(max(min(from_front, extent), 0));
  c.unsupported(fmt::format("a place {} that may count from either end", to_string(place)));
}

namespace {

// One of the sizes may be -1: what is left.
Shape completed(AtenContext& c, ValueId x, Shape sizes) {
  const auto open = std::find_if(sizes.begin(), sizes.end(), [](const Expr& size) { return is_const_int(size, -1); });
  if (open == sizes.end()) return sizes;
  Expr known = 1;
  for (auto size = sizes.begin(); size != sizes.end(); ++size)
    if (size != open) known = known * *size;
  known = normalize_size(known);
  if (is_const_int(known, 0)) c.malformed("a size of -1 beside one of 0", "sizes that say how many elements there are");
  *open = normalize_size(floordiv(c.count(x), known));
  return sizes;
}

void import_view(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (!c.has("size") && !c.has("shape")) {
    // The overload "dtype" reads the same bits as another type of the same width.
    const DType to = c.result_dtype(c.dtype(x));
    if (dtype_bits(to) != dtype_bits(c.dtype(x))) c.unsupported("bits read as elements of another width");
    return c.out(to == c.dtype(x) ? x : c.op("bitcast", {x}, {{"to", to}}));
  }
  c.out(c.reshape(x, completed(c, x, c.sizes(c.has("size") ? "size" : "shape"))));
}

void import_flatten(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.rank(x) == 0) return c.out(c.reshape(x, {1}));
  const int64_t first = c.dimension("start_dim", c.rank(x), 0), last = c.dimension("end_dim", c.rank(x), -1);
  const Shape sizes = c.shape(x);
  Shape result(sizes.begin(), sizes.begin() + first);
  result.push_back(c.count(Shape(sizes.begin() + first, sizes.begin() + last + 1)));
  result.insert(result.end(), sizes.begin() + last + 1, sizes.end());
  c.out(c.reshape(x, result));
}

void import_unflatten(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const int64_t axis = c.dimension("dim", c.rank(x));
  Shape parts = c.sizes("sizes"), result = c.shape(x);
  const Expr whole = result[static_cast<size_t>(axis)];
  Expr known = 1;
  for (const Expr& part : parts)
    if (!is_const_int(part, -1)) known = known * part;
  for (Expr& part : parts)
    if (is_const_int(part, -1)) part = normalize_size(floordiv(whole, known));
  result.erase(result.begin() + axis);
  result.insert(result.begin() + axis, parts.begin(), parts.end());
  c.out(c.reshape(x, result));
}

void import_permute(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const Ints order = c.axes(c.integers("dims"), c.rank(x));
  if (std::ssize(order) != c.rank(x)) c.malformed("an order of fewer dimensions", "one entry for each");
  c.out(c.transpose(x, order));
}

void import_transpose(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.rank(x) == 0) return c.out(x);
  Ints order(static_cast<size_t>(c.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<size_t>(c.dimension("dim0", c.rank(x)))],
            order[static_cast<size_t>(c.dimension("dim1", c.rank(x)))]);
  c.out(c.transpose(x, order));
}

void import_t(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.rank(x) == 2 ? c.transpose(x, {1, 0}) : x);
}

// The dimensions source[i] at the places destination[i], the others in their order.
void import_movedim(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const Ints from = c.axes(c.integers("source"), c.rank(x)), to = c.axes(c.integers("destination"), c.rank(x));
  Ints order(static_cast<size_t>(c.rank(x)), -1);
  for (size_t i = 0; i < from.size() && i < to.size(); ++i) order[static_cast<size_t>(to[i])] = from[i];
  int64_t next = 0;
  for (int64_t& place : order) {
    if (place >= 0) continue;
    while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
    place = next++;
  }
  c.out(c.transpose(x, order));
}

void import_unsqueeze(AtenContext& c) {
  const ValueId x = c.tensor("self");
  Shape sizes = c.shape(x);
  sizes.insert(sizes.begin() + c.dimension("dim", c.rank(x) + 1), 1);
  c.out(c.reshape(x, sizes));
}

void import_squeeze(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.overload() == "dims" && c.integers("dim").empty()) return c.out(x);
  const Ints axes = c.dimensions("dim", c.rank(x));
  Shape sizes;
  for (int d = 0; d < c.rank(x); ++d) {
    const Expr size = c.shape(x)[static_cast<size_t>(d)];
    if (!is_const_int(size, 1) || std::find(axes.begin(), axes.end(), d) == axes.end()) sizes.push_back(size);
  }
  c.out(c.reshape(x, sizes));
}

// -1 keeps a dimension's size.
void import_expand(AtenContext& c) {
  const ValueId x = c.tensor("self");
  Shape sizes = c.sizes("size");
  const Shape given = c.shape(x);
  if (sizes.size() < given.size())
    c.malformed(fmt::format("{} sizes for {}", sizes.size(), c.type(x).to_string()), "more");
  for (size_t d = 0; d < given.size(); ++d) {
    Expr& size = sizes[sizes.size() - given.size() + d];
    if (is_const_int(size, -1)) size = given[d];
  }
  c.out(c.broadcast(x, sizes));
}

void import_expand_as(AtenContext& c) { c.out(c.broadcast(c.tensor("self"), c.shape(c.tensor("other")))); }
void import_view_as(AtenContext& c) { c.out(c.reshape(c.tensor("self"), c.shape(c.tensor("other")))); }

// The whole tensor several times along each dimension: every dimension gets one in front of it that is stretched.
void import_repeat(AtenContext& c) {
  ValueId x = c.tensor("self");
  const Shape times = c.sizes(c.has("repeats") ? "repeats" : "dims");
  Shape sizes = c.shape(x);
  while (sizes.size() < times.size()) sizes.insert(sizes.begin(), 1);
  const size_t more = sizes.size() - times.size();
  Shape apart, stretched, result;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const Expr count = d < more ? Expr(1) : times[d - more];
    apart.insert(apart.end(), {Expr(1), sizes[d]});
    stretched.insert(stretched.end(), {count, sizes[d]});
    result.push_back(normalize_size(count * sizes[d]));
  }
  c.out(c.reshape(c.broadcast(c.reshape(x, apart), stretched), result));
}

// Every element several times in a row.
void import_repeat_interleave(AtenContext& c) {
  if (c.overload() != "self_int") c.unsupported("counts that are a tensor");
  ValueId x = c.tensor("self");
  const Expr times = c.size("repeats");
  if (!c.has("dim")) x = c.reshape(x, {c.count(x)});
  const auto axis = static_cast<size_t>(c.has("dim") ? c.dimension("dim", c.rank(x)) : 0);
  Shape apart = c.shape(x), stretched, result = apart;
  apart.insert(apart.begin() + static_cast<ptrdiff_t>(axis) + 1, 1);
  stretched = apart;
  stretched[axis + 1] = times;
  result[axis] = normalize_size(result[axis] * times);
  c.out(c.reshape(c.broadcast(c.reshape(x, apart), stretched), result));
}

// In the dtype of the result.
std::vector<ValueId> parts_of(AtenContext& c) {
  std::vector<ValueId> parts = c.all_tensors("tensors");
  if (parts.empty()) c.malformed("no tensors", "one or more");
  std::vector<Operand> operands;
  for (const ValueId part : parts)
    operands.push_back({c.dtype(part), c.rank(part) == 0 ? Operand::Weight::kScalar : Operand::Weight::kTensor});
  const DType dtype = c.result_dtype(AtenContext::promoted(operands));
  for (ValueId& part : parts) part = c.cast(part, dtype);
  return parts;
}

void import_cat(AtenContext& c) {
  std::vector<ValueId> parts = parts_of(c);
  // A vector without elements is left out beside tensors of any rank.
  int rank = 1;
  for (const ValueId part : parts) rank = std::max(rank, c.rank(part));
  const ValueId first = parts[0];
  std::erase_if(parts,
                [&](ValueId part) { return rank > 1 && c.rank(part) == 1 && is_const_int(c.shape(part)[0], 0); });
  if (parts.empty()) return c.out(first);
  if (parts.size() == 1) return c.out(parts[0]);
  c.out(c.op("concat", parts, {{"axis", c.dimension("dim", rank, 0)}}));
}

void import_stack(AtenContext& c) {
  std::vector<ValueId> parts = parts_of(c);
  const int64_t axis = c.dimension("dim", c.rank(parts[0]) + 1, 0);
  for (ValueId& part : parts) {
    Shape sizes = c.shape(part);
    if (axis > std::ssize(sizes)) c.malformed("tensors of several ranks", "one shape");
    sizes.insert(sizes.begin() + axis, 1);
    part = c.reshape(part, sizes);
  }
  c.out(parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", axis}}));
}

ValueId part_of(AtenContext& c, ValueId x, size_t axis, const Expr& start, const Expr& size) {
  Shape starts(static_cast<size_t>(c.rank(x)), 0), sizes = c.shape(x);
  starts[axis] = start;
  sizes[axis] = size;
  return c.slice(x, starts, sizes, Ints(starts.size(), 1));
}

void split_into(AtenContext& c, ValueId x, size_t axis, const Shape& sizes) {
  Expr start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (c.wants(i)) c.out(i, part_of(c, x, axis, start, sizes[i]));
    start = normalize_size(start + sizes[i]);
  }
}

void import_split(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x), 0));
  if (c.has("split_sizes")) return split_into(c, x, axis, c.sizes("split_sizes"));
  if (c.overload() == "sizes") return split_into(c, x, axis, c.sizes("split_size"));
  const auto extent = as_int(c.shape(x)[axis]), size = as_int(c.size("split_size"));
  if (!extent || !size) {
    // As many parts as the program has results; the last is what is left.
    Shape sizes(c.num_results(), c.size("split_size"));
    if (!sizes.empty())
      sizes.back() =
          normalize_size(c.shape(x)[axis] - Expr(static_cast<int64_t>(sizes.size()) - 1) * c.size("split_size"));
    return split_into(c, x, axis, sizes);
  }
  if (*size < 1) c.malformed(fmt::format("parts of size {}", *size), "1 or more");
  Shape sizes;
  for (int64_t at = 0; at < *extent; at += *size) sizes.push_back(std::min(*size, *extent - at));
  sizes.resize(std::max(sizes.size(), c.num_results()), 0);  // nothing is split into parts too
  split_into(c, x, axis, sizes);
}

// As many parts of one size as are asked for at most; the last may be shorter.
void import_chunk(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x), 0));
  const int64_t extent = c.dims(x)[axis], chunks = c.whole("chunks");
  if (chunks < 1) c.malformed(fmt::format("{} chunks", chunks), "1 or more");
  const int64_t size = std::max<int64_t>(1, (extent + chunks - 1) / chunks);
  Shape sizes;
  for (int64_t at = 0; at < extent; at += size) sizes.push_back(std::min(size, extent - at));
  sizes.resize(std::max(sizes.size(), c.num_results()), 0);
  split_into(c, x, axis, sizes);
}

ValueId without_axis(AtenContext& c, ValueId x, size_t axis) {
  Shape sizes = c.shape(x);
  sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(axis));
  return c.reshape(x, sizes);
}

void import_unbind(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x), 0));
  for (size_t i = 0; i < c.num_results(); ++i)
    if (c.wants(i)) c.out(i, without_axis(c, part_of(c, x, axis, static_cast<int64_t>(i), 1), axis));
}

void import_slice(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x), 0));
  const Expr extent = c.shape(x)[axis];
  const int64_t step = c.whole("step", 1);
  if (step < 1) c.malformed(fmt::format("step = {}", step), "1 or more");
  const Expr start = c.has("start") ? place_within(c, c.size("start"), extent) : Expr(0);
  const Expr end = c.has("end") ? place_within(c, c.size("end"), extent) : extent;
  Expr size = normalize_size(end - start);
  if (const auto known = as_int(size); known && *known < 0) size = 0;
  else if (!size_at_most(0, size)) size = normalize_size(max(size, 0));
  size = normalize_size(ceildiv(size, step));
  Shape starts(static_cast<size_t>(c.rank(x)), 0), sizes = c.shape(x);
  Ints steps(starts.size(), 1);
  const bool at_most_one = as_int(size) && *as_int(size) <= 1;
  starts[axis] = is_const_int(size, 0) ? Expr(0) : start;
  sizes[axis] = size;
  steps[axis] = at_most_one ? 1 : step;
  c.out(c.slice(x, starts, sizes, steps));
}

void import_narrow(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x)));
  c.out(part_of(c, x, axis, place_within(c, c.size("start"), c.shape(x)[axis]), c.size("length")));
}

void import_select(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x)));
  Expr index = c.size("index");
  if (as_int(index).value_or(0) < 0) index = normalize_size(index + c.shape(x)[axis]);
  c.out(without_axis(c, part_of(c, x, axis, index, 1), axis));
}

void import_flip(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.rank(x) == 0) return c.out(x);
  Ints dims = c.dims(x), starts(dims.size(), 0), steps(dims.size(), 1);
  for (const int64_t axis : c.axes(c.integers("dims"), c.rank(x))) {
    const auto a = static_cast<size_t>(axis);
    if (dims[a] < 2) continue;
    starts[a] = dims[a] - 1;
    steps[a] = -1;
  }
  c.out(c.slice(x, starts, dims, steps));
}

// Each dimension cut in two parts that change places; without dimensions, the elements as one.
void import_roll(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const Ints shifts = c.integers("shifts"), axes = c.integers("dims", Ints{});
  ValueId x = axes.empty() ? c.reshape(given, {c.count(given)}) : given;
  for (size_t i = 0; i < shifts.size(); ++i) {
    const auto axis = static_cast<size_t>(axes.empty() ? 0 : c.axis(axes[i], c.rank(x)));
    const int64_t extent = c.dims(x)[axis];
    if (extent == 0) continue;
    const int64_t shift = ((shifts[i] % extent) + extent) % extent;
    if (shift == 0) continue;
    x = c.op("concat", {part_of(c, x, axis, extent - shift, shift), part_of(c, x, axis, 0, extent - shift)},
             {{"axis", static_cast<int64_t>(axis)}});
  }
  c.out(c.reshape(x, c.shape(given)));
}

// [..., C * r * r, H, W] <-> [..., C, H * r, W * r]
void import_pixel_shuffle(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const int64_t r = c.whole("upscale_factor");
  const Shape sizes = c.shape(x);
  const size_t rank = sizes.size();
  if (rank < 3 || r < 1) c.malformed(fmt::format("a factor of {} for {}", r, c.type(x).to_string()), "images");
  const Expr channels = normalize_size(floordiv(sizes[rank - 3], r * r));
  Shape apart(sizes.begin(), sizes.end() - 3), result = apart;
  apart.insert(apart.end(), {channels, Expr(r), Expr(r), sizes[rank - 2], sizes[rank - 1]});
  result.insert(result.end(), {channels, normalize_size(sizes[rank - 2] * r), normalize_size(sizes[rank - 1] * r)});
  Ints order(apart.size());
  std::iota(order.begin(), order.end(), 0);
  const auto b = static_cast<int64_t>(rank) - 3;
  std::copy_n(Ints{b, b + 3, b + 1, b + 4, b + 2}.begin(), 5, order.begin() + b);
  c.out(c.reshape(c.transpose(c.reshape(x, apart), order), result));
}

void import_pixel_unshuffle(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const int64_t r = c.whole("downscale_factor");
  const Shape sizes = c.shape(x);
  const size_t rank = sizes.size();
  if (rank < 3 || r < 1) c.malformed(fmt::format("a factor of {} for {}", r, c.type(x).to_string()), "images");
  const Expr rows = normalize_size(floordiv(sizes[rank - 2], r)),
             columns = normalize_size(floordiv(sizes[rank - 1], r));
  Shape apart(sizes.begin(), sizes.end() - 3), result = apart;
  apart.insert(apart.end(), {sizes[rank - 3], rows, Expr(r), columns, Expr(r)});
  result.insert(result.end(), {normalize_size(sizes[rank - 3] * (r * r)), rows, columns});
  Ints order(apart.size());
  std::iota(order.begin(), order.end(), 0);
  const auto b = static_cast<int64_t>(rank) - 3;
  std::copy_n(Ints{b, b + 2, b + 4, b + 1, b + 3}.begin(), 5, order.begin() + b);
  c.out(c.reshape(c.transpose(c.reshape(x, apart), order), result));
}

void import_channel_shuffle(AtenContext& c) {
  c.out(c.op("channel_shuffle", {c.tensor("self")}, {{"groups", c.whole("groups")}}));
}

// Elements [..., i, i + offset, ...] of two dimensions, as a last one.
void import_diagonal(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const int64_t first = c.dimension("dim1", c.rank(x), 0), second = c.dimension("dim2", c.rank(x), 1);
  const int64_t offset = c.whole("offset", 0);
  const Ints dims = c.dims(x);
  const int64_t rows = dims[static_cast<size_t>(first)], columns = dims[static_cast<size_t>(second)];
  const int64_t row = std::max<int64_t>(0, -offset), column = std::max<int64_t>(0, offset);
  const int64_t count = std::max<int64_t>(0, std::min(rows - row, columns - column));
  Ints order;
  Shape others;
  for (int d = 0; d < c.rank(x); ++d)
    if (d != first && d != second) {
      order.push_back(d);
      others.push_back(dims[static_cast<size_t>(d)]);
    }
  order.insert(order.end(), {first, second});
  Shape flat = others, result = others;
  flat.push_back(rows * columns);
  result.push_back(count);
  Tensor places(DType::kI64, {count});
  for (int64_t i = 0; i < count; ++i) places.set_int(i, (row + i) * columns + column + i);
  const ValueId lines = c.reshape(c.transpose(x, order), flat);
  c.out(c.op("gather", {lines, c.constant_value(std::move(places))}, {{"axis", std::ssize(others)}}));
}

// Windows along a dimension: the dimension counts them, a last one counts in them.
void import_unfold(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = c.rank(given) == 0 ? c.reshape(given, {1}) : given;
  const auto axis = static_cast<size_t>(c.dimension("dimension", c.rank(x)));
  const int64_t size = c.whole("size"), step = c.whole("step"), extent = c.dims(x)[axis];
  if (c.rank(given) == 0 && size <= 1) return c.out(size == 1 ? x : c.zeros(c.dtype(x), {0}));
  if (size < 0 || step < 1 || size > extent)
    c.malformed(fmt::format("windows of {} by {} along {}", size, step, extent), "windows that fit");
  const int64_t count = (extent - size) / step + 1;
  Tensor places(DType::kI64, {count, size});
  for (int64_t i = 0; i < count * size; ++i) places.set_int(i, i / size * step + i % size);
  const ValueId windows =
      c.op("gather", {x, c.constant_value(std::move(places))}, {{"axis", static_cast<int64_t>(axis)}});
  Ints order;
  for (int d = 0; d <= c.rank(x); ++d)
    if (d != static_cast<int>(axis) + 1) order.push_back(d);
  order.push_back(static_cast<int64_t>(axis) + 1);
  c.out(c.transpose(windows, order));
}

// Of dense tensors: the same elements, row by row.
void import_as_strided(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const Ints dims = c.integers("size"), strides = c.integers("stride");
  int64_t dense = 1;
  bool fits = dims.size() == strides.size() && c.whole("storage_offset", 0) == 0;
  for (size_t d = dims.size(); fits && d-- > 0;) {
    fits = dims[d] <= 1 || strides[d] == dense;
    dense *= dims[d];
  }
  if (!fits || dense != c.num_elements(x)) c.unsupported("elements at other places of a tensor's memory");
  c.out(c.reshape(x, dims));
}

}  // namespace

std::span<const AtenOperator> shape_operators() {
  static constexpr AtenOperator table[] = {
      {"_reshape_alias", import_view},
      {"_unsafe_view", import_view},
      {"as_strided", import_as_strided},
      {"cat", import_cat},
      {"channel_shuffle", import_channel_shuffle},
      {"chunk", import_chunk},
      {"diagonal", import_diagonal},
      {"diagonal_copy", import_diagonal},
      {"expand", import_expand},
      {"expand_as", import_expand_as},
      {"flatten", import_flatten},
      {"flip", import_flip},
      {"movedim", import_movedim},
      {"narrow", import_narrow},
      {"native_channel_shuffle", import_channel_shuffle},
      {"permute", import_permute},
      {"pixel_shuffle", import_pixel_shuffle},
      {"pixel_unshuffle", import_pixel_unshuffle},
      {"repeat", import_repeat},
      {"repeat_interleave", import_repeat_interleave},
      {"reshape", import_view},
      {"roll", import_roll},
      {"select", import_select},
      {"slice", import_slice},
      {"split", import_split},
      {"split_with_sizes", import_split},
      {"squeeze", import_squeeze},
      {"stack", import_stack},
      {"t", import_t},
      {"tile", import_repeat},
      {"transpose", import_transpose},
      {"unbind", import_unbind},
      {"unflatten", import_unflatten},
      {"unfold", import_unfold},
      {"unsafe_split", import_split},
      {"unsqueeze", import_unsqueeze},
      {"view", import_view},
      {"view_as", import_view_as},
  };
  return table;
}

}  // namespace tessera::inline aten
