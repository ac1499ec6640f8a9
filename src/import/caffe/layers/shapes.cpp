// Other shapes of the same elements, and parts and joins of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "import/caffe/layers/handlers.h"

namespace tessera::inline caffe {
namespace {

void import_concat(LayerContext& c) {
  c.require_bottoms(1, 1 << 16);
  const proto::ConcatParameter& p = c.layer().concat_param();
  const int64_t axis = c.axis(p.has_concat_dim() ? int64_t{p.concat_dim()} : p.axis(), c.rank(c.in()));
  std::vector<ValueId> parts;
  for (size_t i = 0; i < c.num_bottoms(); ++i) parts.push_back(c.in(i));
  c.out(c.op("concat", parts, {{"axis", axis}}));
}

// In equal parts where the places are not given.
void import_slice(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::SliceParameter& p = c.layer().slice_param();
  const ValueId x = c.in();
  const int64_t axis = c.axis(p.has_slice_dim() ? int64_t{p.slice_dim()} : p.axis(), c.rank(x));
  Ints sizes = c.dims(x), starts(sizes.size(), 0);
  const int64_t extent = sizes[static_cast<size_t>(axis)], parts = std::ssize(c.results());
  Ints places(p.slice_point().begin(), p.slice_point().end());
  if (places.empty()) {
    if (parts == 0 || extent % parts != 0) c.malformed(fmt::format("{} parts of {}", parts, extent), "equal parts");
    for (int64_t i = 1; i < parts; ++i) places.push_back(i * extent / parts);
  }
  if (std::ssize(places) + 1 != parts)
    c.malformed(fmt::format("{} places for {} tops", places.size(), parts), "one less than tops");
  places.insert(places.begin(), 0);
  places.push_back(extent);
  for (size_t i = 0; i + 1 < places.size(); ++i) {
    if (places[i] >= places[i + 1])
      c.malformed(fmt::format("slice_point [{}] of {}", fmt::join(places, ", "), extent), "places that grow");
    starts[static_cast<size_t>(axis)] = places[i];
    sizes[static_cast<size_t>(axis)] = places[i + 1] - places[i];
    c.out(i, c.slice(x, starts, sizes, Ints(sizes.size(), 1)));
  }
}

void import_split(LayerContext& c) {
  c.require_bottoms(1, 1);
  for (size_t i = 0; i < c.num_tops(); ++i) c.out(i, c.in());
}

void import_silence(LayerContext& c) {
  if (c.num_tops() != 0) c.malformed("a top", "none");
}

void import_flatten(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::FlattenParameter& p = c.layer().flatten_param();
  const Ints dims = c.dims(c.in());
  const int64_t first = c.axis(p.axis(), c.rank(c.in())), last = c.axis(p.end_axis(), c.rank(c.in()));
  if (last < first) c.malformed(fmt::format("dimensions {} to {}", first, last), "a first and a last one");
  Ints sizes(dims.begin(), dims.begin() + first);
  sizes.push_back(1);
  for (int64_t d = first; d <= last; ++d) sizes.back() *= dims[static_cast<size_t>(d)];
  sizes.insert(sizes.end(), dims.begin() + last + 1, dims.end());
  c.out(c.reshape(c.in(), sizes));
}

// In place of the dimensions from `axis` on, num_axes of them (-1: all): those that the layer names, of which 0 stays
// what it was and -1 is what is left.
void import_reshape(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::ReshapeParameter& p = c.layer().reshape_param();
  const Ints dims = c.dims(c.in());
  const int64_t rank = std::ssize(dims), first = p.axis() < 0 ? p.axis() + rank + 1 : p.axis();
  if (first < 0 || first > rank || p.num_axes() < -1 || first + std::max(p.num_axes(), 0) > rank)
    c.malformed(fmt::format("axis = {}, num_axes = {}", p.axis(), p.num_axes()), "dimensions that are there");
  const int64_t end = p.num_axes() < 0 ? rank : first + p.num_axes();
  Ints sizes(dims.begin(), dims.begin() + first);
  std::optional<size_t> open;
  for (int i = 0; i < p.shape().dim_size(); ++i) {
    const int64_t given = p.shape().dim(i), copied = first + i;
    if (given < -1 || (given == -1 && open) || (given == 0 && copied >= rank))
      c.malformed(fmt::format("shape [{}]", fmt::join(p.shape().dim(), ", ")), "extents, 0 where there is one, one -1");
    if (given == -1) open = sizes.size();
    sizes.push_back(given == -1 ? 1 : given == 0 ? dims[static_cast<size_t>(copied)] : given);
  }
  sizes.insert(sizes.end(), dims.begin() + end, dims.end());
  int64_t known = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(known, size, &known))
      c.malformed("a shape of too many elements", "as many as there are");
  const int64_t elements = c.num_elements(c.in());
  if (open && known > 0) sizes[*open] = elements / known;
  if (open ? known == 0 || elements % known != 0 : known != elements)
    c.malformed(fmt::format("shape [{}] of {}", fmt::join(p.shape().dim(), ", "), c.type(c.in()).to_string()),
                "as many elements");
  c.out(c.reshape(c.in(), sizes));
}

void import_permute(LayerContext& c) {
  c.require_bottoms(1, 1);
  const auto& given = c.layer().permute_param().order();
  Ints order(given.begin(), given.end());
  const int64_t rank = c.rank(c.in());
  // What is not named follows in its order.
  for (int64_t d = 0; d < rank; ++d)
    if (std::find(order.begin(), order.end(), d) == order.end()) order.push_back(d);
  Ints sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t d = 0; d < std::ssize(sorted); ++d)
    if (std::ssize(sorted) != rank || sorted[static_cast<size_t>(d)] != d)
      c.malformed(fmt::format("order [{}] of {} dimensions", fmt::join(given, ", "), rank),
                  "each of them once at most");
  c.out(c.transpose(c.in(), order));
}

// From offsets on, as much as the second bottom has.
void import_crop(LayerContext& c) {
  c.require_bottoms(2, 2);
  const proto::CropParameter& p = c.layer().crop_param();
  const Ints dims = c.dims(c.in()), wanted = c.dims(c.in(1));
  const int64_t axis = c.axis(p.axis(), c.rank(c.in()));
  const int64_t cropped = std::ssize(dims) - axis;
  if (wanted.size() != dims.size() || (p.offset_size() > 1 && p.offset_size() != cropped))
    c.malformed(
        fmt::format("{} offsets, {} for {}", p.offset_size(), c.type(c.in(1)).to_string(), c.type(c.in()).to_string()),
        "a second bottom of the same rank, and one offset for all or for each dimension");
  Ints starts(dims.size(), 0), sizes = dims;
  for (int64_t d = axis; d < std::ssize(dims); ++d) {
    const auto at = static_cast<size_t>(d);
    if (p.offset_size() > 0) starts[at] = p.offset(p.offset_size() == 1 ? 0 : static_cast<int>(d - axis));
    sizes[at] = wanted[at];
    if (starts[at] + sizes[at] > dims[at])
      c.malformed(fmt::format("{} elements from {} on of {}", sizes[at], starts[at], dims[at]),
                  "elements that are there");
  }
  c.out(c.slice(c.in(), starts, sizes, Ints(dims.size(), 1)));
}

void import_tile(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::TileParameter& p = c.layer().tile_param();
  const int64_t axis = c.axis(p.axis(), c.rank(c.in())), tiles = p.tiles();
  if (tiles < 1) c.malformed(fmt::format("tiles = {}", tiles), "1 or more");
  // Each copy behind the other: a dimension before the axis, broadcast, taken into it.
  Ints dims = c.dims(c.in()), wide = dims;
  dims.insert(dims.begin() + axis, 1);
  wide.insert(wide.begin() + axis, tiles);
  const ValueId copies = c.broadcast(c.reshape(c.in(), dims), wide);
  Ints sizes = c.dims(c.in());
  sizes[static_cast<size_t>(axis)] *= tiles;
  c.out(c.reshape(copies, sizes));
}

}  // namespace

std::span<const CaffeLayer> shape_layers() {
  static constexpr CaffeLayer rows[] = {
      {"Concat", import_concat},   {"Crop", import_crop},       {"Flatten", import_flatten},
      {"Permute", import_permute}, {"Reshape", import_reshape}, {"Silence", import_silence},
      {"Slice", import_slice},     {"Split", import_split},     {"Tile", import_tile},
  };
  return rows;
}

}  // namespace tessera::inline caffe
