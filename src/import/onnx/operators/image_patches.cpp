// Images as patches and sampling grids: Col2Im, AffineGrid, DeformConv.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/read/window_attributes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostPlaces = int64_t{1} << 26;  // entries of a table of places
constexpr int64_t kMostLooks = int64_t{1} << 28;   // places times patches, where the patches are found while running

// `flat` as an index for each of `extents`, the last one counting fastest.
Ints split_place(int64_t flat, const Ints& extents) {
  Ints index(extents.size());
  for (size_t d = extents.size(); d-- > 0;) {
    index[d] = flat % extents[d];
    flat /= extents[d];
  }
  return index;
}

struct Patches {
  Ints image, strides, pads, dilations;
  size_t rank() const { return image.size(); }
};

// Each pixel gathers the values of the patches that cover it. x [N, C, K * L].
ValueId gathered_patches(NodeContext& c, ValueId x, const Patches& p, const Ints& block, int64_t blocks) {
  Ints counts(p.rank());
  int64_t all_patches = 1;
  for (size_t d = 0; d < p.rank(); ++d) {
    const int64_t room = p.image[d] + p.pads[d] + p.pads[d + p.rank()] - p.dilations[d] * (block[d] - 1) - 1;
    counts[d] = room < 0 ? 0 : room / p.strides[d] + 1;
    if (__builtin_mul_overflow(all_patches, counts[d], &all_patches)) c.unsupported("so many patches");
  }
  if (all_patches != blocks)
    c.malformed(
        fmt::format("{} patches, of which an image of [{}] has {}", blocks, fmt::join(p.image, ","), all_patches),
        "as many patches as the image has");
  const int64_t pixels = element_count(p.image), size = element_count(block);
  if (pixels > kMostPlaces || size > kMostPlaces / std::max<int64_t>(blocks, 1))
    c.unsupported("patches of so many values");
  std::vector<Ints> sources(static_cast<size_t>(pixels));
  size_t widest = 1;
  for (int64_t k = 0; k < size; ++k)
    for (int64_t l = 0; l < blocks; ++l) {
      const Ints within = split_place(k, block), patch = split_place(l, counts);
      int64_t pixel = 0;
      bool inside = true;
      for (size_t d = 0; d < p.rank(); ++d) {
        const int64_t at = patch[d] * p.strides[d] + within[d] * p.dilations[d] - p.pads[d];
        inside = inside && at >= 0 && at < p.image[d];
        pixel = pixel * p.image[d] + at;
      }
      if (!inside) continue;
      sources[static_cast<size_t>(pixel)].push_back(k * blocks + l);
      widest = std::max(widest, sources[static_cast<size_t>(pixel)].size());
    }
  const auto width = static_cast<int64_t>(widest);
  if (pixels * width > kMostPlaces) c.unsupported("patches that overlap so often in so large an image");
  Tensor table(DType::kI64, {pixels, width}), covered(DType::kBool, {pixels, width});
  bool all = true;
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    for (int64_t i = 0; i < width; ++i) {
      const Ints& list = sources[static_cast<size_t>(pixel)];
      const bool there = i < std::ssize(list);
      table.set_int(pixel * width + i, there ? list[static_cast<size_t>(i)] : 0);
      covered.set_int(pixel * width + i, there);
      all = all && there;
    }
  ValueId y = c.op("gather", {x, c.constant_value(std::move(table))}, {{"axis", int64_t{2}}});
  if (!all) y = c.op("select", {c.constant_value(std::move(covered)), y, c.scalar_like(y, 0)});
  return width == 1 ? c.reshape(y, {c.dims(x)[0], c.dims(x)[1], pixels}) : c.reduce("sum", y, {3}, false);
}

// The same when only the run knows how large a patch is: a product with a matrix that says which value goes where.
ValueId searched_patches(NodeContext& c, ValueId x, const Patches& p, ValueId block, int64_t size, int64_t blocks) {
  const int64_t pixels = element_count(p.image);
  if (const auto looks = checked_num_elements({size, blocks, pixels}); !looks || *looks > kMostLooks)
    c.unsupported("so large an image with patches whose shape is not constant");
  const auto extent = [&](size_t d) {
    const ValueId e = c.reshape(c.slice(block, {static_cast<int64_t>(d)}, {1}, {1}), {});
    return c.op("max", {c.cast(e, DType::kI64), c.integer(1)});
  };
  ValueId within = c.iota({size, 1}, 0), patch = c.iota({1, blocks}, 1), inside = c.scalar(DType::kBool, 1);
  ValueId pixel = c.integer(0);
  int64_t stride = 1;
  for (size_t d = p.rank(); d-- > 0;) {
    const ValueId e = extent(d);
    const ValueId room = c.sub(c.integer(p.image[d] + p.pads[d] + p.pads[d + p.rank()] - 1),
                               c.mul(c.sub(e, c.integer(1)), c.integer(p.dilations[d])));
    const ValueId count = c.op("max", {c.add(c.div(room, c.integer(p.strides[d])), c.integer(1)), c.integer(1)});
    const ValueId k = c.op("rem", {within, e}), l = c.op("rem", {patch, count});
    within = c.div(within, e);
    patch = c.div(patch, count);
    const ValueId at =
        c.sub(c.add(c.mul(l, c.integer(p.strides[d])), c.mul(k, c.integer(p.dilations[d]))), c.integer(p.pads[d]));
    const ValueId fits = c.op("logical_and", {c.op("ge", {at, c.integer(0)}), c.op("lt", {at, c.integer(p.image[d])})});
    inside = c.op("logical_and", {inside, fits});
    pixel = c.add(pixel, c.mul(at, c.integer(stride)));
    stride *= p.image[d];
  }
  const ValueId place = c.reshape(c.op("select", {inside, pixel, c.integer(-1)}), {size * blocks, 1});
  const ValueId goes = c.op("eq", {place, c.iota({1, pixels}, 1)});
  return c.op("matmul", {x, c.cast(goes, c.dtype(x))});
}

// One corner of the cell around a place: its flat index, its weight, and whether it is inside.
struct Corner {
  ValueId index, weight, inside;
};

// The 2^n corners around places, each [...] a coordinate in pixels of one dimension.
std::vector<Corner> corners(NodeContext& c, const std::vector<ValueId>& places, const Ints& image) {
  std::vector<Corner> result;
  for (size_t d = 0; d < places.size(); ++d) {
    const ValueId x = places[d];
    const ValueId floor = c.op("floor", {x}), t = c.sub(x, floor);
    std::vector<Corner> next;
    for (int far = 0; far < 2; ++far) {
      const ValueId at = far ? c.add(floor, c.scalar_like(x, 1)) : floor;
      const ValueId last = c.scalar_like(x, static_cast<double>(image[d] - 1)), zero = c.scalar_like(x, 0);
      const ValueId inside = c.op("logical_and", {c.op("ge", {at, zero}), c.op("le", {at, last})});
      const ValueId index = c.cast(c.op("min", {c.op("max", {at, zero}), last}), DType::kI64);
      const ValueId weight = far ? t : c.sub(c.scalar_like(x, 1), t);
      if (d == 0) next.push_back({index, weight, inside});
      for (const Corner& outer : result)
        next.push_back({c.add(c.mul(outer.index, c.integer(image[d])), index), c.mul(outer.weight, weight),
                        c.op("logical_and", {outer.inside, inside})});
    }
    result = std::move(next);
  }
  return result;
}

void import_col2im(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  if (dims.size() != 3) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "rank 3");
  Patches p;
  const auto declared = c.declared_dims(0);
  if (c.constant(c.in(1)) || !declared || declared->size() < 3) p.image = c.const_ints(1, "image_shape");
  else p.image.assign(declared->begin() + 2, declared->end());
  const size_t rank = p.image.size();
  p.strides = c.attrs.get_ints("strides", Ints(rank, 1));
  p.dilations = c.attrs.get_ints("dilations", Ints(rank, 1));
  p.pads = c.attrs.get_ints("pads", Ints(2 * rank, 0));
  const auto below = [](const Ints& list, int64_t low) {
    return std::any_of(list.begin(), list.end(), [low](int64_t v) { return v < low || v > (1 << 20); });
  };
  if (rank < 1 || p.strides.size() != rank || p.dilations.size() != rank || p.pads.size() != 2 * rank ||
      below(p.strides, 1) || below(p.dilations, 1) || below(p.pads, 0) || below(p.image, 0))
    c.malformed(
        fmt::format("image_shape = [{}], strides = [{}], dilations = [{}], pads = [{}]", fmt::join(p.image, ","),
                    fmt::join(p.strides, ","), fmt::join(p.dilations, ","), fmt::join(p.pads, ",")),
        "an entry for each spatial dimension, two of pads, below 2^20");
  if (c.rank(c.in(2)) != 1 || c.dims(c.in(2))[0] != static_cast<int64_t>(rank))
    c.malformed(fmt::format("block_shape of type {}", c.type(c.in(2)).to_string()), fmt::format("{} extents", rank));
  std::optional<Ints> block;
  int64_t channels = 0;
  if (c.constant(c.in(2))) {
    block = c.const_ints(2, "block_shape");
    const auto places = checked_num_elements(*block);
    if (below(*block, 1) || !places || dims[1] % *places != 0)
      c.malformed(fmt::format("block_shape = [{}] for {}", fmt::join(*block, ","), c.type(x).to_string()),
                  "extents whose product divides dimension 1");
    channels = dims[1] / *places;
  } else {
    if (!declared || declared->size() != rank + 2 || declared->at(1) < 1 || dims[1] % declared->at(1) != 0)
      c.const_ints(2, "block_shape");
    channels = declared->at(1);
  }
  const int64_t size = channels == 0 ? 0 : dims[1] / channels;
  Ints result = {dims[0], channels};
  result.insert(result.end(), p.image.begin(), p.image.end());
  if (!checked_num_elements(result))
    c.malformed(fmt::format("a result of shape [{}]", fmt::join(result, ",")), "at most 2^40 elements");
  const ValueId values = c.reshape(x, {dims[0], channels, size * dims[2]});
  if (element_count(result) == 0) return c.out(0, c.zeros(c.dtype(x), result));
  const ValueId y =
      block ? gathered_patches(c, values, p, *block, dims[2]) : searched_patches(c, values, p, c.in(2), size, dims[2]);
  c.out(0, c.reshape(y, result));
}

// Places between -1 and 1 of an image of a given size, through a matrix for each member of the batch. Only the shape of
// the result depends on the size.
void import_affine_grid(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId theta = c.in(0);
  const Ints dims = c.dims(theta);
  const bool corners_are_pixels = c.attrs.get_int("align_corners", 0) != 0;
  const size_t rank = dims.size() == 3 ? static_cast<size_t>(dims[1]) : 0;
  if ((rank != 2 && rank != 3) || dims[2] != dims[1] + 1)
    c.malformed(fmt::format("matrices of type {}", c.type(theta).to_string()), "[N, 2, 3] or [N, 3, 4]");
  Ints image;
  const auto declared = c.declared_dims(0);
  if (c.constant(c.in(1)) || !declared || declared->size() != rank + 2) {
    image = c.const_ints(1, "size");
    if (image.size() != rank + 2)
      c.malformed(fmt::format("size = [{}]", fmt::join(image, ",")), fmt::format("{} extents", rank + 2));
    image.erase(image.begin(), image.begin() + 2);
  } else {
    image.assign(declared->begin() + 1, declared->end() - 1);
  }
  for (const int64_t extent : image)
    if (extent < 0 || extent > (1 << 24))
      c.malformed(fmt::format("an image of [{}]", fmt::join(image, ",")), "extents of 0 to 2^24");
  const auto counted = checked_num_elements(image);
  if (!counted || *counted > kMostPlaces) c.unsupported("so large a grid");
  const int64_t pixels = *counted;
  // Coordinates of the last dimension first, then 1.
  const auto width = static_cast<int64_t>(rank) + 1;
  Tensor grid(c.dtype(theta), {pixels, width});
  for (int64_t i = 0; i < pixels; ++i) {
    const Ints at = split_place(i, image);
    for (size_t d = 0; d < rank; ++d) {
      const auto place = static_cast<double>(at[d]), extent = static_cast<double>(image[d]);
      const double value = !corners_are_pixels ? (2 * place + 1) / extent - 1
                           : image[d] > 1      ? 2 * place / (extent - 1) - 1
                                               : 0;
      grid.set_double(i * width + static_cast<int64_t>(rank - 1 - d), value);
    }
    grid.set_double(i * width + width - 1, 1);
  }
  Ints result = {dims[0]};
  result.insert(result.end(), image.begin(), image.end());
  result.push_back(dims[1]);
  if (checked_num_elements(result) == 0) return c.out(0, c.zeros(c.dtype(theta), result));
  c.out(0, c.reshape(c.op("matmul", {c.constant_value(std::move(grid)), theta}, {{"transpose_b", true}}), result));
}

// A convolution whose taps are moved by offsets and weighted by a mask: the moved image is read for each tap, then the
// taps are a product with the weights.
void import_deform_conv(NodeContext& c) {
  c.require_inputs(3, 5);
  const ValueId x = c.in(0), w = c.in(1);
  const Ints dims = c.dims(x), w_dims = c.dims(w), offset_dims = c.dims(c.in(2));
  spatial_extents(c, x);
  const Ints all_extents = c.dims(x), image(all_extents.begin() + 2, all_extents.end());
  const size_t rank = image.size();
  const int64_t groups = c.attrs.get_int("group", 1), offset_groups = c.attrs.get_int("offset_group", 1);
  if (w_dims.size() != dims.size() || offset_dims.size() != dims.size() || groups < 1 || offset_groups < 1 ||
      dims[1] % groups != 0 || w_dims[1] != dims[1] / groups || w_dims[0] % groups != 0 || dims[1] % offset_groups != 0)
    c.malformed(fmt::format("operands of types {}, {} and {} with {} groups, {} of offsets", c.type(x).to_string(),
                            c.type(w).to_string(), c.type(c.in(2)).to_string(), groups, offset_groups),
                "one rank, and channels as the groups have them");
  const Ints kernel(w_dims.begin() + 2, w_dims.end());
  const WindowAttributes window = read_window(c, make_shape(image), kernel);
  require_fixed_pads(c, window);
  Ints places;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t room =
        image[d] + window.pads_begin[d] + window.pads_end[d] - window.dilations[d] * (kernel[d] - 1) - 1;
    places.push_back(room < 0 ? 0 : room / window.strides[d] + 1);
  }
  const int64_t batch = dims[0], taps = element_count(kernel), count = element_count(places), channels = dims[1];
  const auto n = static_cast<int64_t>(rank);
  const auto fits = [&](ValueId v, int64_t channels_of) {
    Ints want = {batch, channels_of};
    want.insert(want.end(), places.begin(), places.end());
    return c.dims(v) == want;
  };
  // As many as an image of no channels can be divided into.
  if (offset_groups > kMaxTensorElements / std::max<int64_t>(taps * n, 1))
    c.malformed(fmt::format("{} groups of offsets for weights of type {}", offset_groups, c.type(w).to_string()),
                "at most 2^40 offsets of a place");
  if (!fits(c.in(2), offset_groups * taps * n) || (c.has(4) && !fits(c.in(4), offset_groups * taps)))
    c.malformed(fmt::format("offsets of type {}", c.type(c.in(2)).to_string()),
                fmt::format("[{}, {}, {}], and a mask of [{}, {}, {}]", batch, offset_groups * taps * n,
                            fmt::join(places, ","), batch, offset_groups * taps, fmt::join(places, ",")));
  Ints result = {batch, w_dims[0]};
  result.insert(result.end(), places.begin(), places.end());
  const auto elements = checked_num_elements(result);
  if (!elements) c.malformed(fmt::format("a result of shape [{}]", fmt::join(result, ",")), "at most 2^40 elements");
  if (*elements == 0) return c.out(0, c.zeros(c.dtype(x), result));
  if (element_count(dims) == 0) c.unsupported("an image without elements");
  if (count > kMostPlaces / taps) c.unsupported("so many places of so many taps");

  // Where the taps read: [batch, offset group, tap, place].
  const DType dtype = c.dtype(x) == DType::kF64 ? DType::kF64 : DType::kF32;
  const ValueId offsets = c.reshape(c.cast(c.in(2), dtype), {batch, offset_groups, taps, n, count});
  std::vector<ValueId> at;
  for (size_t d = 0; d < rank; ++d) {
    Tensor regular(dtype, {taps, count});
    for (int64_t k = 0; k < taps; ++k)
      for (int64_t i = 0; i < count; ++i)
        regular.set_double(k * count + i,
                           static_cast<double>(split_place(i, places)[d] * window.strides[d] - window.pads_begin[d] +
                                               split_place(k, kernel)[d] * window.dilations[d]));
    const ValueId moved = c.reshape(c.slice(offsets, {0, 0, 0, static_cast<int64_t>(d), 0},
                                            {batch, offset_groups, taps, 1, count}, {1, 1, 1, 1, 1}),
                                    {batch, offset_groups, taps, count});
    at.push_back(c.add(moved, c.constant_value(std::move(regular))));
  }
  const int64_t per_offset = channels / offset_groups;
  const ValueId pixels = c.reshape(c.cast(x, dtype), {batch * offset_groups, per_offset, element_count(image)});
  const auto spread = [&](ValueId v) { return c.reshape(v, {batch * offset_groups, 1, taps * count}); };
  std::optional<ValueId> sum;
  for (const Corner& corner : corners(c, at, image)) {
    const ValueId index = c.broadcast(spread(corner.index), {batch * offset_groups, per_offset, taps * count});
    const ValueId read = c.op("gather_elements", {pixels, index}, {{"axis", int64_t{2}}});
    const ValueId value =
        c.op("select", {spread(corner.inside), c.mul(read, spread(corner.weight)), c.scalar(dtype, 0)});
    sum = sum ? c.add(*sum, value) : value;
  }
  if (c.has(4)) sum = c.mul(*sum, spread(c.reshape(c.cast(c.in(4), dtype), {batch, offset_groups, taps, count})));
  const ValueId columns = c.reshape(*sum, {batch, groups, channels / groups * taps, count});
  const ValueId weights = c.reshape(c.cast(w, dtype), {groups, w_dims[0] / groups, channels / groups * taps});
  ValueId y = c.reshape(c.op("matmul", {weights, columns}), {batch, w_dims[0], count});
  if (c.has(3)) y = c.add(y, c.cast(c.per_channel(c.in(3), 3), dtype));
  c.out(0, c.cast(c.reshape(y, result), c.dtype(x)));
}

}  // namespace

OperatorFamily image_patches_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"AffineGrid", 20, import_affine_grid},
      OperatorImporter{"Col2Im", 18, import_col2im},
      OperatorImporter{"DeformConv", 19, import_deform_conv},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
