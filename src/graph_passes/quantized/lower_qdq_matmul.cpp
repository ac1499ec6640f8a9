#include "graph_passes/quantized/lower_qdq_matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

// The greatest magnitudes of a byte less its zero point and of a weight that fits i8.
constexpr int64_t kMostOfByte = 255, kMostOfWeight = 128;

// cast:f32(cast:i32(bytes) - zero) * scale
struct Dequantized {
  ValueId integers = -1;  // less the zero point
  ValueId bytes = -1;
  ValueId zero = -1;  // -1: none
  ValueId scale = -1;
};

std::optional<Dequantized> dequantized(const Graph& graph, ValueId id) {
  const Node* mul = graph.producer(id);
  if (!is_op(mul, "mul") || graph.type(id).dtype != DType::kF32) return std::nullopt;
  const Node* real = graph.producer(mul->inputs[0]);
  if (!is_op(real, "cast") || graph.type(real->inputs[0]).dtype != DType::kI32) return std::nullopt;
  Dequantized result;
  result.integers = real->inputs[0];
  result.scale = mul->inputs[1];
  const Node* wide = graph.producer(result.integers);
  if (is_op(wide, "sub")) {
    result.zero = wide->inputs[1];
    wide = graph.producer(wide->inputs[0]);
  }
  if (!is_op(wide, "cast")) return std::nullopt;
  result.bytes = wide->inputs[0];
  const DType dtype = graph.type(result.bytes).dtype;
  return dtype == DType::kI8 || dtype == DType::kU8 ? std::optional(result) : std::nullopt;
}

// The constant of which `id` is a conversion to a wider type or another shape.
const Tensor* known_integers(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  while (is_op(node, "cast") || is_op(node, "reshape")) {
    id = node->inputs[0];
    node = graph.producer(id);
  }
  return constant_value(graph, id);
}

// The one value of a zero point; empty when it is not known or there are several.
std::optional<int64_t> known_zero(const Graph& graph, ValueId zero) {
  if (zero < 0) return 0;
  const Tensor* tensor = known_integers(graph, zero);
  const auto value = tensor && tensor->has_data() ? splat_value(*tensor) : std::nullopt;
  return value ? std::optional(static_cast<int64_t>(*value)) : std::nullopt;
}

class Products {
 public:
  Products(const Graph& graph, const PassContext& ctx)
      : graph_(graph), ctx_(ctx), rewriter_(graph), builder_(rewriter_.target()) {}

  Graph run() {
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>&) {
      if (!is_op(&node, "conv") && !is_op(&node, "matmul")) return std::vector<ValueId>{};
      const auto x = dequantized(graph_, node.inputs[0]), w = dequantized(graph_, node.inputs[1]);
      if (!x || !w) return std::vector<ValueId>{};
      const std::string why = problem(node, *x, *w);
      if (why.empty()) return rewritten(node, *x, *w);
      if (ctx_.remarks) ctx_.remarks->refused("lower_qdq_matmul", node.loc, why);
      return std::vector<ValueId>{};
    });
  }

 private:
  // Whether the machine sums no more than two products of bytes at once.
  bool only_pairs() const {
    const auto more = [&](DType x) {
      const auto products = ctx_.family.narrow_products(x, DType::kI8);
      return products && (products->in_tiles || products->depth > 2);
    };
    return !more(DType::kU8) && !more(DType::kI8);
  }
  bool is_one(ValueId id) const { return graph_.type(id).num_elements() == 1; }
  // Of the weights: the dimension that has one entry for each output.
  static size_t outputs_of(const Node& node) {
    return is_op(&node, "conv") || node.attrs.get_or<bool>("transpose_b", false) ? 0 : 1;
  }

  // Why the node stays as it is; empty when it need not.
  std::string problem(const Node& node, const Dequantized& x, const Dequantized& w) const {
    const bool conv = is_op(&node, "conv");
    const Tensor* weights = constant_value(graph_, w.bytes);
    const auto x_zero = known_zero(graph_, x.zero), w_zero = known_zero(graph_, w.zero);
    if (!weights || !weights->has_data()) return "its second factor is not constant";
    const Ints& dims = weights->dims();
    if (!conv && dims.size() != 2) return "its weights are not one matrix";
    if (weights->num_elements() == 0) return "it has no weights";
    if (conv && !all_of_list(node, "input_dilations", 1)) return "it is transposed";
    if (!is_one(x.scale) || (x.zero >= 0 && !is_one(x.zero)))
      return "its first factor has several scales or zero points";
    if (!x_zero) return "the zero point of its first factor is not constant";
    if (!w_zero) return "its weights have several zero points";
    if (!is_one(w.scale)) {
      const auto scale = static_dims(graph_.type(w.scale).shape);
      Ints along(dims.size(), 1);
      along[outputs_of(node)] = dims[outputs_of(node)];
      if (!scale || *scale != along) return "its weights' scales are not those of outputs";
    }
    if (conv && only_pairs() && suits_minimal_filtering(graph_, node))
      return "minimal filtering in f32 does less work than pairs of products of bytes";
    const int64_t terms = weights->num_elements() / dims[outputs_of(node)];
    if (terms > INT32_MAX / (kMostOfByte * kMostOfWeight))
      return fmt::format("sums of {} products may leave i32", terms);
    for (int64_t i = 0; i < weights->num_elements(); ++i) {
      const double value = weights->get_double(i) - static_cast<double>(*w_zero);
      if (value < -kMostOfWeight || value > kMostOfWeight - 1)
        return "its weights, less their zero point, do not fit i8";
    }
    return "";
  }

  std::vector<ValueId> rewritten(const Node& node, const Dequantized& x, const Dequantized& w) {
    builder_.set_loc(node.loc);
    const auto op = [&](const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
      return builder_.add(ctx_.ops.get(name), std::move(inputs), std::move(attrs));
    };
    const auto in_shape = [&](ValueId id, const Ints& shape) {
      return static_dims(builder_.graph().type(id).shape) == shape ? id : op("reshape", {id}, {{"shape", shape}});
    };
    const ValueId product =
        builder_.add(*node.op, {rewriter_.mapped(x.integers), rewriter_.mapped(w.integers)}, node.attrs);
    const ValueId real = op("cast", {product}, {{"to", DType::kF32}});
    Ints outputs;
    if (!is_one(w.scale)) {
      outputs = {*as_int(graph_.type(w.bytes).shape[outputs_of(node)])};
      if (is_op(&node, "conv")) {
        outputs.insert(outputs.begin(), 1);
        outputs.resize(graph_.type(node.outputs[0]).shape.size(), 1);
      }
    }
    const ValueId scale =
        op("mul", {in_shape(rewriter_.mapped(x.scale), {}), in_shape(rewriter_.mapped(w.scale), outputs)});
    return {op("mul", {real, scale})};
  }

  const Graph& graph_;
  const PassContext& ctx_;
  GraphRewriter rewriter_;
  GraphBuilder builder_;
};

}  // namespace

Graph lower_qdq_matmul(const Graph& graph, const PassContext& ctx) {
  return ctx.family.multiplies_bytes() ? Products(graph, ctx).run() : graph;
}

}  // namespace tessera::inline graph_passes
