// Images of other sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/common/limits.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

struct Resized {
  ValueId x = -1;
  Ints in, out;  // height and width
  bool align_corners = false, half_pixels = false;
};

template <typename Options>
Resized resized(OperatorContext& c) {
  c.require_inputs(2, 2);
  Resized r;
  r.x = c.in(0);
  if (c.rank(r.x) != 4)
    c.malformed(fmt::format("an operand of type {}", c.type(r.x).to_string()), "an image [N,H,W,C]");
  const Ints dims = c.dims(r.x);
  r.in = {dims[1], dims[2]};
  r.out = c.const_ints(1, "the size");
  if (r.out.size() != 2 || r.out[0] < 1 || r.out[1] < 1 || r.in[0] < 1 || r.in[1] < 1 ||
      !checked_num_elements({dims[0], r.out[0], r.out[1], dims[3]}))
    c.malformed(fmt::format("a size of {} numbers for {}", r.out.size(), c.type(r.x).to_string()),
                "a height and a width of at least 1");
  // Each place has entries in lists that are made here.
  constexpr int64_t kMost = 1 << 20;
  if (r.out[0] > kMost || r.out[1] > kMost) c.unsupported(fmt::format("a size of more than {}", kMost));
  r.align_corners = c.options<Options>().align_corners();
  r.half_pixels = c.options<Options>().half_pixel_centers();
  return r;
}

float scale_of(const Resized& r, size_t d) {
  const auto in = static_cast<float>(r.in[d]), out = static_cast<float>(r.out[d]);
  return r.align_corners && r.out[d] > 1 ? (in - 1) / (out - 1) : in / out;
}

ValueId places(OperatorContext& c, const Ints& list) { return c.ints(list); }

void import_nearest(OperatorContext& c) {
  const Resized r = resized<tflite::ResizeNearestNeighborOptions>(c);
  if (!c.tensor(0).quantization.empty() && c.is_quantized(c.tensor(0)))
    require_same_quantization(c, c.tensor(0), c.output(0));
  ValueId y = r.x;
  for (size_t d = 0; d < 2; ++d) {
    const float scale = scale_of(r, d), offset = r.half_pixels ? 0.5F : 0.0F;
    Ints list;
    for (int64_t i = 0; i < r.out[d]; ++i) {
      const float place = (static_cast<float>(i) + offset) * scale;
      const int64_t near = static_cast<int64_t>(r.align_corners ? std::round(place) : std::floor(place));
      list.push_back(std::clamp<int64_t>(near, 0, r.in[d] - 1));
    }
    y = c.op("gather", {y, places(c, list)}, {{"axis", static_cast<int64_t>(d + 1)}});
  }
  c.out(0, y);
}

// The two neighbours of each place along one dimension, and the share of the second.
struct Neighbours {
  Ints low, high;
  std::vector<float> share;
};

Neighbours neighbours(const Resized& r, size_t d) {
  Neighbours n;
  const float scale = scale_of(r, d);
  for (int64_t i = 0; i < r.out[d]; ++i) {
    const float place = r.half_pixels ? (static_cast<float>(i) + 0.5F) * scale - 0.5F : static_cast<float>(i) * scale;
    const auto below = static_cast<int64_t>(std::floor(place));
    n.low.push_back(std::clamp<int64_t>(below, 0, r.in[d] - 1));
    n.high.push_back(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(place)), 0, r.in[d] - 1));
    n.share.push_back(place - static_cast<float>(below));
  }
  return n;
}

ValueId numbers(OperatorContext& c, std::vector<float> list, Ints dims) {
  Tensor tensor(DType::kF32, std::move(dims));
  std::copy(list.begin(), list.end(), tensor.as_mutable<float>().begin());
  return c.constant_value(std::move(tensor));
}

// The four neighbours, each with its share, in the order in which LiteRT adds them.
ValueId four_neighbours(OperatorContext& c, const Resized& r, ValueId x) {
  const Neighbours rows = neighbours(r, 0), columns = neighbours(r, 1);
  const auto rest = [](const std::vector<float>& share) {
    std::vector<float> result;
    for (const float s : share) result.push_back(1 - s);
    return result;
  };
  const ValueId low_row = numbers(c, rest(rows.share), {1, r.out[0], 1, 1});
  const ValueId high_row = numbers(c, rows.share, {1, r.out[0], 1, 1});
  const ValueId low_column = numbers(c, rest(columns.share), {1, 1, r.out[1], 1});
  const ValueId high_column = numbers(c, columns.share, {1, 1, r.out[1], 1});
  const auto part = [&](const Ints& row, const Ints& column, ValueId row_share, ValueId column_share) {
    const ValueId of_rows = c.op("gather", {x, places(c, row)}, {{"axis", int64_t{1}}});
    const ValueId found = c.op("gather", {of_rows, places(c, column)}, {{"axis", int64_t{2}}});
    const ValueId real = c.cast(is_float(c.dtype(found)) ? found : c.cast(found, DType::kI32), DType::kF32);
    return c.mul(c.mul(real, row_share), column_share);
  };
  ValueId sum =
      c.add(part(rows.low, columns.low, low_row, low_column), part(rows.high, columns.low, high_row, low_column));
  sum = c.add(sum, part(rows.low, columns.high, low_row, high_column));
  return c.add(sum, part(rows.high, columns.high, high_row, high_column));
}

// The same of integers with a sign: places and shares have ten digits.
struct FixedNeighbours {
  Ints low, high, low_share, high_share;
};
FixedNeighbours fixed_neighbours(const Resized& r, size_t d) {
  constexpr int64_t kOne = 1 << 10;
  const int64_t in = r.in[d], out = r.out[d];
  const int64_t step =
      r.align_corners && out > 1 ? (kOne * (in - 1) + (out - 1) / 2) / (out - 1) : (kOne * in + out / 2) / out;
  FixedNeighbours n;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t place = r.half_pixels ? i * step + step / 2 - kOne / 2 : i * step;
    n.low.push_back(std::max<int64_t>(place / kOne, 0));
    n.high.push_back(std::min((place + kOne - 1) / kOne, in - 1));
    n.low.back() = std::min(n.low.back(), in - 1);
    n.high.back() = std::max<int64_t>(n.high.back(), 0);
    n.high_share.push_back(place - kOne * n.low.back());
    n.low_share.push_back(kOne - n.high_share.back());
  }
  return n;
}

ValueId four_fixed_neighbours(OperatorContext& c, const Resized& r) {
  const FixedNeighbours rows = fixed_neighbours(r, 0), columns = fixed_neighbours(r, 1);
  const DType wide = c.dtype(r.x) == DType::kI8 ? DType::kI32 : DType::kI64;
  const auto shares = [&](const Ints& list, Ints dims) { return c.cast(c.reshape(c.ints(list), dims), wide); };
  const Ints down = {1, r.out[0], 1, 1}, across = {1, 1, r.out[1], 1};
  const auto part = [&](const Ints& row, const Ints& column, ValueId row_share, ValueId column_share) {
    const ValueId of_rows = c.op("gather", {r.x, places(c, row)}, {{"axis", int64_t{1}}});
    const ValueId found = c.op("gather", {of_rows, places(c, column)}, {{"axis", int64_t{2}}});
    return c.mul(c.cast(found, wide), c.mul(row_share, column_share));
  };
  const ValueId low_row = shares(rows.low_share, down), high_row = shares(rows.high_share, down);
  const ValueId low_column = shares(columns.low_share, across), high_column = shares(columns.high_share, across);
  ValueId sum =
      c.add(part(rows.low, columns.low, low_row, low_column), part(rows.high, columns.low, high_row, low_column));
  sum = c.add(sum, part(rows.low, columns.high, low_row, high_column));
  sum = c.add(sum, part(rows.high, columns.high, high_row, high_column));
  // Halves away from zero: division cuts off.
  const ValueId half = c.scalar(wide, 1 << 19), zero = c.scalar(wide, 0);
  const ValueId moved = c.add(sum, c.op("select", {c.op("gt", {sum, zero}), half, c.op("neg", {half})}));
  return c.cast(c.div(moved, c.scalar(wide, 1 << 20)), c.dtype(r.x));
}

void import_bilinear(OperatorContext& c) {
  const Resized r = resized<tflite::ResizeBilinearOptions>(c);
  const DType dtype = c.dtype(r.x);
  if (is_float(dtype)) return c.out(0, four_neighbours(c, r, r.x));
  if (dtype != DType::kU8 && dtype != DType::kI8 && dtype != DType::kI16)
    c.unsupported(fmt::format("values of type {}", dtype_name(dtype)));
  if (has_scale(c)) require_same_quantization(c, c.tensor(0), c.output(0));
  if (dtype != DType::kU8) return c.out(0, four_fixed_neighbours(c, r));
  c.out(0, c.cast(c.add(four_neighbours(c, r, r.x), c.scalar(DType::kF32, 0.5)), dtype));
}

}  // namespace

std::span<const TfliteOperator> resizing_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {RESIZE_BILINEAR, import_bilinear},
      {RESIZE_NEAREST_NEIGHBOR, import_nearest},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
