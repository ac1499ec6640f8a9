// Custom operators of MediaPipe's models: pools that tell where the maxima were, what puts them back, and transposed
// convolutions with a bias. Their options are a structure of the runtime's, as it lies in memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "import/tflite/operators/products.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// The first numbers of the structure: a padding, which is 1 for SAME and 2 for VALID, and what follows it.
std::vector<int32_t> numbers_of(OperatorContext& c, size_t count) {
  const auto* bytes = c.node().custom_options();
  std::vector<int32_t> numbers(count);
  if (!bytes || bytes->size() < count * sizeof(int32_t))
    c.malformed(fmt::format("options of {} bytes", bytes ? bytes->size() : 0), fmt::format("{} or more", 4 * count));
  std::memcpy(numbers.data(), bytes->data(), count * sizeof(int32_t));
  if (numbers[0] != 1 && numbers[0] != 2) c.malformed(fmt::format("the padding {}", numbers[0]), "1 or 2");
  for (size_t i = 1; i < count; ++i)
    if (numbers[i] < 1 || numbers[i] > (1 << 16))
      c.malformed(fmt::format("option {} of {}", i, numbers[i]), "at least 1");
  return numbers;
}

void require_image(OperatorContext& c, int i) {
  if (c.rank(c.in(i)) != 4 || c.dtype(c.in(i)) != DType::kF32 || c.num_elements(c.in(i)) == 0)
    c.malformed(fmt::format("operand {} of type {}", i, c.type(c.in(i)).to_string()), "f32 [N,H,W,C]");
}

struct PoolOptions {
  int8_t padding = 0;
  Ints strides, extents;  // height and width
};
PoolOptions pool_options(OperatorContext& c) {
  const std::vector<int32_t> n = numbers_of(c, 5);  // padding, strides of width and height, extents likewise
  return {static_cast<int8_t>(n[0] == 1 ? tflite::Padding::SAME : tflite::Padding::VALID), {n[2], n[1]}, {n[4], n[3]}};
}

// The maxima, and the number of the first place of each in its window, plus a tenth: whoever reads it cuts that off.
void import_pool_with_places(OperatorContext& c) {
  c.require_inputs(1, 1);
  require_image(c, 0);
  const PoolOptions options = pool_options(c);
  const ValueId x = c.in(0);
  const SlidingWindow window = sliding_window(c, x, options.padding, options.extents, options.strides, {1, 1});
  constexpr int64_t kMost = 256;
  if (options.extents[0] * options.extents[1] > kMost) c.unsupported(fmt::format("a window of more than {}", kMost));
  const double lowest = -static_cast<double>(std::numeric_limits<float>::max());
  const Ints low = {0, window.pads_begin[0], window.pads_begin[1], 0},
             high = {0, window.pads_end[0], window.pads_end[1], 0};
  const ValueId padded =
      c.op("pad", {x, c.scalar_like(x, lowest)}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  const Ints dims = c.dims(padded);
  Ints sizes = dims;
  for (size_t d = 0; d < 2; ++d) sizes[d + 1] = (dims[d + 1] - options.extents[d]) / options.strides[d] + 1;
  ValueId best = c.scalar_like(x, lowest), place = c.scalar_like(x, static_cast<double>(0.1F));
  for (int64_t row = 0; row < options.extents[0]; ++row)
    for (int64_t column = 0; column < options.extents[1]; ++column) {
      const ValueId own =
          c.slice(padded, Ints{0, row, column, 0}, sizes, {1, options.strides[0], options.strides[1], 1});
      const auto number = static_cast<float>(row * options.extents[1] + column) + 0.1F;
      const ValueId more = c.op("gt", {own, best});
      best = c.op("select", {more, own, best});
      place = c.op("select", {more, c.scalar_like(x, static_cast<double>(number)), place});
    }
  c.out(0, c.broadcast(best, sizes));
  c.out(1, c.broadcast(place, sizes));
}

// Each element at the place of its window where it was; zeros elsewhere.
void import_unpool(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_image(c, 0);
  require_image(c, 1);
  const PoolOptions options = pool_options(c);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  if (c.dims(c.in(1)) != dims)
    c.malformed(fmt::format("places of type {}", c.type(c.in(1)).to_string()), "one for each element");
  const Ints out = {dims[1] * options.extents[0], dims[2] * options.extents[1]};
  Ints pads;
  for (size_t d = 0; d < 2; ++d)
    pads.push_back(std::max<int64_t>((dims[d + 1] - 1) * options.strides[d] + options.extents[d] - out[d], 0) / 2);
  const int64_t images = dims[0] * dims[3], places = dims[1] * dims[2];
  // Each channel by itself.
  const auto by_channel = [&](ValueId v) { return c.transpose(v, {0, 3, 1, 2}); };
  const ValueId index = c.cast(by_channel(c.in(1)), DType::kI64), width = c.integer(options.extents[1]);
  const Ints down = {1, 1, dims[1], 1}, across = {1, 1, 1, dims[2]};
  const auto moved = [&](ValueId within, const Ints& shape, int64_t axis, size_t d) {
    const ValueId first = c.sub(c.mul(c.iota(shape, axis), c.integer(options.strides[d])), c.integer(pads[d]));
    return c.add(first, within);
  };
  const ValueId y = moved(c.div(index, width), down, 2, 0), z = moved(c.op("rem", {index, width}), across, 3, 1);
  const auto inside = [&](ValueId v, int64_t extent) {
    return c.op("logical_and", {c.op("ge", {v, c.integer(0)}), c.op("lt", {v, c.integer(extent)})});
  };
  const ValueId flat = c.add(c.mul(y, c.integer(out[1])), z);
  const ValueId place =
      c.op("select", {c.op("logical_and", {inside(y, out[0]), inside(z, out[1])}), flat, c.integer(-1)});
  const ValueId spread = c.op("scatter",
                              {c.zeros(DType::kF32, Ints{images, out[0] * out[1], 1}),
                               c.reshape(place, {images, places}), c.reshape(by_channel(x), {images, places, 1})},
                              {{"join", std::string("none")}});
  c.out(0, channels_last(c, c.reshape(spread, {dims[0], dims[3], out[0], out[1]})));
}

// Operands: the image, weights [O,H,W,I], the bias.
void import_transposed_with_bias(OperatorContext& c) {
  c.require_inputs(3, 3);
  require_image(c, 0);
  const std::vector<int32_t> n = numbers_of(c, 3);  // padding, strides of width and height
  const ValueId x = c.in(0), w = c.in(1);
  const Ints x_dims = c.dims(x), w_dims = c.dims(w);
  if (c.rank(w) != 4 || c.num_elements(w) == 0 || w_dims[3] != x_dims[3])
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "weights [O,H,W,I]");
  Transposed t;
  t.strides = {n[2], n[1]};
  t.extents = {w_dims[1], w_dims[2]};
  t.shape = {x_dims[0]};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t in = x_dims[d + 1], stride = t.strides[d];
    const int64_t pad = n[0] == 1 ? std::max<int64_t>(0, t.extents[d] - (in - 1) % stride - 1) : 0;
    t.shape.push_back(stride * (in - 1) + t.extents[d] - pad);
    t.pads.push_back(pad / 2);
    if (t.shape.back() < 1) c.malformed("a result without elements", "at least one");
  }
  t.shape.push_back(w_dims[0]);
  Product p;
  p.outputs = w_dims[0];
  p.weights_axis = 1;
  p.multiply = [&](ValueId a, ValueId b) { return transposed_convolution(c, t, a, b); };
  c.out(0, channels_last(c, product(c, p, channels_first(c, x), c.transpose(w, {3, 0, 1, 2}))));
}

}  // namespace

CustomHandler mediapipe_operator(std::string_view name) {
  if (name == "MaxPoolingWithArgmax2D") return import_pool_with_places;
  if (name == "MaxUnpooling2D") return import_unpool;
  if (name == "Convolution2DTransposeBias") return import_transposed_with_bias;
  return nullptr;
}

}  // namespace tessera::inline tflite_import
