#include "graph_passes/quantized/hoist_zero_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "arith/simplify.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

// Bytes, and what a product subtracts from them (-1: nothing).
struct Shifted {
  ValueId bytes = -1;
  ValueId zero = -1;
  std::vector<NodeId> views;  // of the difference, from it to what the product reads: reshapes and transposes
};

std::optional<Shifted> shifted_bytes(const Graph& graph, ValueId id) {
  const Node* sub = graph.producer(id);
  if (is_op(sub, "reshape") || is_op(sub, "transpose")) {
    auto viewed = shifted_bytes(graph, sub->inputs[0]);
    if (viewed) viewed->views.push_back(graph.value(id).producer);
    return viewed;
  }
  if (is_op(sub, "cast") && graph.type(id).dtype == DType::kI32 && is_byte(graph.type(sub->inputs[0]).dtype))
    return Shifted{sub->inputs[0], -1, {}};
  if (!is_op(sub, "sub") || graph.type(id).dtype != DType::kI32) return std::nullopt;
  const Node* wide = graph.producer(sub->inputs[0]);
  if (!is_op(wide, "cast") || !is_byte(graph.type(wide->inputs[0]).dtype)) return std::nullopt;
  const auto zero = static_dims(graph.type(sub->inputs[1]).shape);
  if (!zero || std::any_of(zero->begin(), zero->end(), [](int64_t d) { return d != 1; })) return std::nullopt;
  return Shifted{wide->inputs[0], sub->inputs[1], {}};
}

bool all_within(const Tensor& weights, int32_t low, int32_t high) {
  const auto values = weights.as<int32_t>();
  return std::all_of(values.begin(), values.end(), [&](int32_t v) { return v >= low && v <= high; });
}

// What is multiplied: the bytes as they are, or in the other type of 8 bits, 128 more or less.
struct Factors {
  DType bytes = DType::kU8;
  int64_t depth = 1;  // of the dot products in vectors
};

// Empty with a reason when the machine has no product for bytes of type `x` and these weights. Any will do for a
// depthwise convolution, whose lanes sum products of their own; `is_least` says that its zero point is the least
// number of the type, which is 0 of the unsigned one: padding is free there.
std::optional<Factors> choose_factors(const KernelFamily& family, DType x, const Tensor& weights, bool depthwise,
                                      bool is_least, bool suits_tiles, std::string& why) {
  const bool fits_i8 = all_within(weights, -128, 127), fits_u8 = all_within(weights, 0, 255);
  const DType w = fits_i8 ? DType::kI8 : DType::kU8, other = x == DType::kU8 ? DType::kI8 : DType::kU8;
  if (depthwise && all_within(weights, INT16_MIN, INT16_MAX)) {
    // What sums fours of shared factors does so of each lane's own.
    const auto own = family.narrow_products(x, w), deeper = family.narrow_products(other, w);
    const bool changes = own && deeper &&
                         ((fits_i8 && own->vector_depth < deeper->vector_depth) ||
                          (x == DType::kI8 && is_least && own->vector_depth == deeper->vector_depth));
    return Factors{changes ? other : x, 1};
  }
  if (!fits_i8 && !fits_u8) why = "its weights, less their zero point, do not fit 8 bits";
  if (!why.empty()) return std::nullopt;
  const bool in_tiles = family.multiplies_in_tiles(x, w);
  if (suits_tiles && in_tiles) return Factors{x, 1};
  std::optional<Factors> best;
  for (const DType bytes : {x, other})
    if (const auto products = family.narrow_products(bytes, w);
        products && products->in_vectors && (!best || best->depth < products->vector_depth))
      best = Factors{bytes, products->vector_depth};
  if (!best && in_tiles) return Factors{x, 1};
  if (best) return best;
  why = fmt::format("the machine has no products of {} and {}", dtype_name(x), dtype_name(w));
  return std::nullopt;
}

// What an accelerator multiplies that takes the node.
std::optional<Factors> factors_of_device(const PassContext& ctx, const Node& node, const Tensor& weights) {
  if (!ctx.device_products || (is_op(&node, "conv") && node.attrs.get_int("groups") != 1)) return std::nullopt;
  const std::optional<DeviceProducts> device = ctx.device_products(node);
  if (!device) return std::nullopt;
  const bool rows = is_op(&node, "conv") || node.attrs.get_or<bool>("transpose_b", false);
  const Ints& dims = weights.dims();
  const bool fits = device->weights == DType::kI8   ? all_within(weights, -128, 127)
                    : device->weights == DType::kU8 ? all_within(weights, 0, 255)
                                                    : false;
  if (!fits || !is_byte(device->x) || dims[rows ? 1 : 0] < device->least_summed ||
      dims[rows ? 0 : 1] < device->least_outputs)
    return std::nullopt;
  return Factors{device->x, 1};
}

// The sums of the weights of each output channel or column, in a shape that broadcasts to the output.
Tensor sums_of_weights(const Graph& graph, const Node& node, const Tensor& weights) {
  const Ints& dims = weights.dims();
  const auto values = weights.as<int32_t>();
  const bool conv = is_op(&node, "conv");
  const bool rows = conv || node.attrs.get_or<bool>("transpose_b", false);  // a row of weights for each output
  const int64_t outputs = rows ? dims[0] : dims[1];
  const int64_t terms = outputs == 0 ? 0 : weights.num_elements() / outputs;
  Ints shape = {outputs};
  if (conv) shape.insert(shape.begin(), 1), shape.resize(graph.type(node.outputs[0]).shape.size(), 1);
  Tensor sums(DType::kI32, shape);
  for (int64_t o = 0; o < outputs; ++o) {
    uint32_t sum = 0;
    for (int64_t k = 0; k < terms; ++k)
      sum += static_cast<uint32_t>(values[static_cast<size_t>(rows ? o * terms + k : k * outputs + o)]);
    sums.as_mutable<int32_t>()[static_cast<size_t>(o)] = static_cast<int32_t>(sum);
  }
  return sums;
}

// `weights` with zeros behind dimension `axis`, up to a multiple of `unit`.
Tensor filled_up(const Tensor& weights, size_t axis, int64_t unit) {
  Ints dims = weights.dims();
  const int64_t own = dims[axis], more = (own + unit - 1) / unit * unit;
  int64_t before = 1, behind = 1;
  for (size_t d = 0; d < dims.size(); ++d) (d < axis ? before : behind) *= d == axis ? 1 : dims[d];
  dims[axis] = more;
  Tensor result(DType::kI32, dims);
  const auto from = weights.as<int32_t>();
  const auto to = result.as_mutable<int32_t>();
  for (int64_t i = 0; i < before; ++i)
    std::copy_n(from.begin() + i * own * behind, own * behind, to.begin() + i * more * behind);
  return result;
}

// A convolution whose channels are too few to be stored side by side in blocks, a model's first, sums groups of columns
// of its window instead.
bool groups_columns(const Node& node, const Tensor& weights, const KernelFamily& family) {
  const Ints& w = weights.dims();
  return w.size() == 4 && node.attrs.get_int("groups") == 1 && w[1] < family.least_summed_channels() && w[3] > 1 &&
         all_of_list(node, "dilations", 1);
}

// Whether tiles are filled: sums of columns of few channels are not long enough.
bool fills_tiles(const Graph& graph, const Node& node, const Tensor& weights, const KernelFamily& family) {
  constexpr int64_t kColumns = 32, kRows = 16;  // schedule/rules/matrix_tile.cpp takes no fewer
  const bool conv = is_op(&node, "conv");
  const bool rows_are_outputs = conv || node.attrs.get_or<bool>("transpose_b", false);
  const int64_t outputs = weights.dims()[rows_are_outputs ? 0 : 1];
  int64_t rows = 1;
  const Shape& result = graph.type(node.outputs[0]).shape;
  for (size_t d = 0; d < result.size(); ++d)
    if (d != (conv ? 1 : result.size() - 1)) rows *= typical_size(result[d]);
  return outputs >= kColumns && rows >= kRows && !(conv && groups_columns(node, weights, family));
}

class Mover {
 public:
  Mover(const Graph& graph, const PassContext& ctx)
      : graph_(graph), ctx_(ctx), rewriter_(graph), builder_(rewriter_.target()) {}

  Graph run() {
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      std::string why;
      std::vector<ValueId> results = move(node, inputs, why);
      if (!why.empty() && ctx_.remarks) ctx_.remarks->refused("hoist_zero_points", node.loc, why);
      return results;
    });
  }

 private:
  // Nothing where the node stays as it is, for a reason if it multiplies bytes.
  std::vector<ValueId> move(const Node& node, const std::vector<ValueId>& inputs, std::string& why) {
    const bool conv = is_op(&node, "conv");
    if (!conv && !is_op(&node, "matmul")) return {};
    const auto shifted = shifted_bytes(graph_, node.inputs[0]);
    if (!shifted) return {};
    const Tensor* weights = constant_value(graph_, node.inputs[1]);
    if (!weights || weights->dtype() != DType::kI32) why = "its second factor is not constant";
    else if (!conv && weights->dims().size() != 2) why = "its weights are not one matrix";
    else if (conv && !all_of_list(node, "input_dilations", 1)) why = "it is transposed";
    else if (!conv && node.attrs.get_or<bool>("transpose_a", false)) why = "its first factor is transposed";
    else if (shifted->zero >= 0 && graph_.type(shifted->zero).rank() > graph_.type(node.outputs[0]).rank())
      why = "its zero point has more dimensions than its result";
    if (!why.empty()) return {};
    if (const auto moved = moved_weights(node, *weights)) {
      const ValueId lower = product(node, *shifted, moved->weights, std::nullopt, why);
      if (lower < 0) return {};
      const ValueId sums = product(node, *shifted, ones_for(node, *weights), std::nullopt, why);
      check(sums >= 0, "a product with ones is refused");
      const ValueId share = builder_.add(ctx_.ops.get("mul"), {sums, number(moved->by, node)}, {});
      return {builder_.add(ctx_.ops.get("add"), {lower, share}, {})};
    }
    const ValueId result = product(node, *shifted, *weights, inputs[1], why);
    return result < 0 ? std::vector<ValueId>{} : std::vector{result};
  }

  // Bytes less a zero point, which fit 8 bits when `by` is taken off all of them.
  struct MovedWeights {
    Tensor weights;
    int64_t by = 0;
  };
  static std::optional<MovedWeights> moved_weights(const Node& node, const Tensor& weights) {
    if (weights.num_elements() == 0 || all_within(weights, -128, 127) || all_within(weights, 0, 255))
      return std::nullopt;
    if (is_op(&node, "conv") && node.attrs.get_int("groups") != 1) return std::nullopt;
    const auto values = weights.as<int32_t>();
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const bool rows = is_op(&node, "conv") || node.attrs.get_or<bool>("transpose_b", false);
    const bool one_output = weights.dims()[rows ? 0 : 1] == 1;  // the ones would be half of the work
    if (one_output || *least < -255 || *most > 255 || *most - *least > 255) return std::nullopt;
    MovedWeights moved{Tensor(DType::kI32, weights.dims()), int64_t{*least} + 128};
    std::transform(values.begin(), values.end(), moved.weights.as_mutable<int32_t>().begin(),
                   [&](int32_t value) { return static_cast<int32_t>(value - moved.by); });
    return moved;
  }
  // For the sums of what a product multiplies: one output.
  static Tensor ones_for(const Node& node, const Tensor& weights) {
    Ints dims = weights.dims();
    const bool rows = is_op(&node, "conv") || node.attrs.get_or<bool>("transpose_b", false);
    dims[rows ? 0 : 1] = 1;
    Tensor ones(DType::kI32, dims);
    std::ranges::fill(ones.as_mutable<int32_t>(), 1);
    return ones;
  }

  // The product of the bytes as they are, and what their zero point takes off it; -1 where the node stays as it is.
  // `matrix`: the weights as a value, if they are one.
  ValueId product(const Node& node, const Shifted& shifted, const Tensor& weights, std::optional<ValueId> matrix,
                  std::string& why) {
    const bool conv = is_op(&node, "conv"), transposed = !conv && node.attrs.get_or<bool>("transpose_b", false);
    const DType own = graph_.type(shifted.bytes).dtype;
    const bool depthwise = conv && node.attrs.get_int("groups") != 1 && weights.dims()[1] == 1;
    const Tensor* known = shifted.zero < 0 ? nullptr : constant_value(graph_, shifted.zero);
    auto factors = factors_of_device(ctx_, node, weights);
    if (!factors)
      factors = choose_factors(ctx_.family, own, weights, depthwise, known && known->as<int32_t>()[0] == INT8_MIN,
                               fills_tiles(graph_, node, weights, ctx_.family), why);
    if (!factors) return -1;
    const bool in_columns = conv && factors->depth > 1 && groups_columns(node, weights, ctx_.family);
    const size_t summed = conv ? 3 : transposed ? 1 : 0;  // the dimension of the weights that is filled up
    const bool fills_up = (in_columns || (!conv && factors->depth > 1)) && weights.dims()[summed] % factors->depth != 0;
    const bool changes_type = factors->bytes != own;
    if (matrix && shifted.zero < 0 && !changes_type && !fills_up && !in_columns) return -1;

    // What the bytes that are multiplied are more than the numbers that they stand for.
    builder_.set_loc(node.loc);
    const int64_t more = !changes_type ? 0 : own == DType::kI8 ? 128 : -128;
    const std::optional<int64_t> zero = shifted.zero < 0 ? std::optional<int64_t>(0)
                                        : known          ? std::optional<int64_t>(known->as<int32_t>()[0])
                                                         : std::nullopt;
    ValueId border = -1;
    Attrs attrs = node.attrs;
    Ints low(graph_.type(node.inputs[0]).shape.size(), 0), high = low;
    const bool padded = conv && (!all_of_list(node, "pads_begin", 0) || !all_of_list(node, "pads_end", 0));
    if (padded && (in_columns || zero != -more)) {
      ConvPadding padding = take_padding(node);
      low = std::move(padding.low);
      high = std::move(padding.high);
      attrs = std::move(padding.others);
      border = border_value(shifted, zero, factors->bytes, more, node, why);
      if (border < 0) return -1;
    }
    Tensor stored = weights;
    if (fills_up) {
      stored = filled_up(weights, summed, factors->depth);
      high.back() += stored.dims()[summed] - weights.dims()[summed];
      if (border < 0) border = constant(Tensor(factors->bytes, {}), "border", node);
    }
    const OpDef &cast = ctx_.ops.get("cast"), &add = ctx_.ops.get("add"), &pad = ctx_.ops.get("pad");
    ValueId bytes = rewriter_.mapped(shifted.bytes);
    for (const NodeId view : shifted.views)
      bytes = builder_.add(*graph_.node(view).op, {bytes}, graph_.node(view).attrs);
    if (changes_type) {
      const ValueId wide = builder_.add(cast, {bytes}, {{"to", DType::kI32}});
      bytes = builder_.add(add, {wide, number(more, node)}, {});
      bytes = builder_.add(cast, {bytes}, {{"to", factors->bytes}});
    }
    if (border >= 0)
      bytes = builder_.add(pad, {bytes, border}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
    const ValueId wide = builder_.add(cast, {bytes}, {{"to", DType::kI32}});
    if (fills_up || !matrix) matrix = constant(stored, "weights", node);
    const ValueId product = builder_.add(*node.op, {wide, *matrix}, attrs);
    if (zero == -more) return product;
    ValueId excess = shifted.zero < 0 ? number(more, node) : rewriter_.mapped(shifted.zero);
    if (shifted.zero >= 0 && more != 0) excess = builder_.add(add, {excess, number(more, node)}, {});
    const ValueId sums = constant(sums_of_weights(graph_, node, weights), "sums", node);
    const ValueId share = builder_.add(ctx_.ops.get("mul"), {excess, sums}, {});
    return builder_.add(ctx_.ops.get("sub"), {product, share}, {});
  }

  // What stands for zero, in the type of the bytes that are multiplied; -1 with a reason where it is none of them.
  ValueId border_value(const Shifted& shifted, std::optional<int64_t> zero, DType dtype, int64_t more, const Node& node,
                       std::string& why) {
    if (!zero) {
      // A zero point that only a run knows is a byte by its making.
      const Node* wide = graph_.producer(shifted.zero);
      const bool is_byte =
          is_op(wide, "cast") && graph_.type(wide->inputs[0]).dtype == graph_.type(shifted.bytes).dtype;
      if (is_byte && more == 0 && graph_.type(wide->inputs[0]).rank() == 0) return rewriter_.mapped(wide->inputs[0]);
      why = "it is padded with a zero point that only a run knows";
      return -1;
    }
    const int64_t value = *zero + more;
    if (dtype == DType::kU8 ? value < 0 || value > 255 : value < -128 || value > 127) {
      why = "it is padded with a zero point that is no byte";
      return -1;
    }
    Tensor number(dtype, {});
    number.set_double(0, static_cast<double>(value));
    return constant(std::move(number), "border", node);
  }

  ValueId constant(Tensor value, const std::string& name, const Node& node) {
    return add_constant(rewriter_.target(), ctx_.ops, std::move(value), name, node.loc);
  }
  ValueId number(int64_t value, const Node& node) {
    Tensor tensor(DType::kI32, {});
    tensor.as_mutable<int32_t>()[0] = static_cast<int32_t>(value);
    return constant(std::move(tensor), "more", node);
  }

  const Graph& graph_;
  const PassContext& ctx_;
  GraphRewriter rewriter_;
  GraphBuilder builder_;
};

}  // namespace

Graph hoist_zero_points(const Graph& graph, const PassContext& ctx) {
  return ctx.family.multiplies_bytes() ? Mover(graph, ctx).run() : graph;
}

}  // namespace tessera::inline graph_passes
