#include "quantize/quantize_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "arith/simplify.h"
#include "ops/composites/composites.h"
#include "support/error.h"

namespace tessera::inline quantize {
namespace {

const Tensor* constant_of(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (!node || node->op->kind != OpKind::kConstant) return nullptr;
  const TensorPtr& value = node->attrs.get<TensorPtr>("value");
  return value->has_data() ? value.get() : nullptr;
}

double count_of(const Shape& shape) {
  double count = 1;
  for (const Expr& extent : shape) count *= static_cast<double>(as_int(extent).value_or(0));
  return count;
}

struct Weights {
  Tensor integers;
  Tensor scales;
};

// Symmetric: the largest magnitude is the largest integer of `bits` bits. As the composite fake_quantize_weights.
Weights quantized_weights(const Tensor& weights, size_t axis, Granularity granularity, int bits,
                          const std::string& name) {
  const auto most_integer = static_cast<float>((1 << (bits - 1)) - 1);
  const std::vector<int64_t>& dims = weights.dims();
  int64_t inner = 1;
  for (size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  const int64_t outputs = dims[axis], scales = granularity == Granularity::kChannel ? outputs : 1;
  const auto scale_of = [&](int64_t i) { return scales == 1 ? 0 : static_cast<size_t>(i / inner % outputs); };
  const std::span<const float> numbers = weights.as<float>();
  std::vector<float> largest(static_cast<size_t>(scales));
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!std::isfinite(numbers[i]))
      throw UserError({.id = "TSR-2091",
                       .message = "a weight is not finite",
                       .node = name,
                       .legal = "finite weights",
                       .hint = "leave the layer out with --keep " + name});
    float& most = largest[scale_of(static_cast<int64_t>(i))];
    most = std::max(most, std::abs(numbers[i]));
  }
  Weights result{Tensor(DType::kI8, dims),
                 Tensor(DType::kF32,
                        granularity == Granularity::kChannel ? std::vector<int64_t>{outputs} : std::vector<int64_t>{})};
  const std::span<float> scale = result.scales.as_mutable<float>();
  for (size_t s = 0; s < scale.size(); ++s) {
    scale[s] = largest[s] / most_integer;
    if (!(scale[s] >= std::numeric_limits<float>::min())) scale[s] = 1;
  }
  const std::span<int8_t> integers = result.integers.as_mutable<int8_t>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float q = std::nearbyint(numbers[i] / scale[scale_of(static_cast<int64_t>(i))]);
    integers[i] = static_cast<int8_t>(std::clamp(q, -most_integer, most_integer));
  }
  return result;
}

class Quantizer {
 public:
  Quantizer(const Graph& graph, const QuantizeOptions& options, const OpTable& ops)
      : graph_(graph), options_(options), ops_(ops), rewriter_(graph), builder_(rewriter_.target()) {}

  Graph run(const std::vector<QuantizedProduct>& products) {
    std::map<const Node*, const QuantizedProduct*> chosen;
    for (const QuantizedProduct& product : products) chosen[&graph_.node(product.product.node)] = &product;
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      const auto found = chosen.find(&node);
      if (found == chosen.end()) return std::vector<ValueId>{};
      const QuantizedProduct& product = *found->second;
      std::vector<ValueId> operands = inputs;
      // Bytes are made where the numbers are, as a rule in the same kernel.
      const Node* producer = graph_.producer(product.product.data);
      builder_.set_loc(producer ? producer->loc : node.loc);
      operands[0] = data(product, inputs[0]);
      builder_.set_loc(node.loc);
      operands[1] = weights(product);
      return rewriter_.copy(node, operands);
    });
  }

 private:
  ValueId constant(Tensor tensor, const std::string& name) {
    return builder_.add(ops_.get("constant"), {},
                        {{"value", TensorPtr(std::make_shared<const Tensor>(std::move(tensor)))}}, name);
  }
  std::string name_of(ValueId id) const { return graph_.value(id).name; }

  // One pair for each value and range.
  ValueId data(const QuantizedProduct& product, ValueId mapped) {
    const auto key = std::make_tuple(product.product.data, product.range.low, product.range.high);
    if (const auto known = data_.find(key); known != data_.end()) return known->second;
    const DType dtype = options_.activations;
    const ByteScale bytes = byte_scale(product.range, dtype);
    Tensor zero(dtype, {});
    zero.set_int(0, bytes.zero);
    const std::string name = name_of(product.product.data);
    const ValueId s = constant(Tensor::scalar_f32(bytes.scale), name + ".scale");
    const ValueId z = constant(std::move(zero), name + ".zero");
    const ValueId q = add_composite(builder_, ops_, "quantize", {mapped, s, z}, {{"to", dtype}})[0];
    return data_[key] = add_composite(builder_, ops_, "dequantize", {q, s, z})[0];
  }

  ValueId weights(const QuantizedProduct& product) {
    const WeightedProduct& p = product.product;
    const auto key = std::make_pair(p.weights, p.outputs_axis);
    if (const auto known = weights_.find(key); known != weights_.end()) return known->second;
    Weights made = quantized_weights(*constant_of(graph_, p.weights), p.outputs_axis, options_.weights,
                                     options_.weight_bits, p.name);
    Attrs attrs;
    if (options_.weights == Granularity::kChannel) attrs.set("axis", static_cast<int64_t>(p.outputs_axis));
    const std::string name = name_of(p.weights);
    Tensor zeros(DType::kI8, made.scales.dims());
    const ValueId q = constant(std::move(made.integers), name + ".integers");
    const ValueId s = constant(std::move(made.scales), name + ".scale");
    const ValueId z = constant(std::move(zeros), name + ".zero");
    return weights_[key] = add_composite(builder_, ops_, "dequantize", {q, s, z}, std::move(attrs))[0];
  }

  const Graph& graph_;
  const QuantizeOptions& options_;
  const OpTable& ops_;
  GraphRewriter rewriter_;
  GraphBuilder builder_;
  std::map<std::tuple<ValueId, double, double>, ValueId> data_;
  std::map<std::pair<ValueId, size_t>, ValueId> weights_;
};

// The model's own name: what was folded into a node stands behind it, after a '+'.
std::string name_of_product(const Graph& graph, const Node& node) {
  return node.loc.empty() ? graph.value(node.outputs[0]).name : node.loc.substr(0, node.loc.find('+'));
}

}  // namespace

std::vector<WeightedProduct> weighted_products(const Graph& graph) {
  std::vector<WeightedProduct> products;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const bool conv = node.op->name == "conv";
    if (!conv && node.op->name != "matmul") continue;
    const Tensor* weights = constant_of(graph, node.inputs[1]);
    if (!weights || weights->dtype() != DType::kF32 || weights->num_elements() == 0) continue;
    if (graph.type(node.inputs[0]).dtype != DType::kF32 || constant_of(graph, node.inputs[0])) continue;
    if (!conv && weights->dims().size() != 2) continue;
    const bool transposed = !conv && node.attrs.get_or<bool>("transpose_b", false);
    const size_t axis = conv || transposed ? 0 : 1;
    const double outputs = count_of(graph.type(node.outputs[0]).shape);
    products.push_back({.node = static_cast<NodeId>(n),
                        .name = name_of_product(graph, node),
                        .data = node.inputs[0],
                        .weights = node.inputs[1],
                        .outputs_axis = axis,
                        .multiply_adds = outputs * static_cast<double>(weights->num_elements()) /
                                         static_cast<double>(weights->dims()[axis])});
  }
  return products;
}

Graph with_outputs(const Graph& graph, const std::vector<ValueId>& values, const OpTable& ops) {
  Graph result = graph;
  result.outputs.resize(graph.num_own_outputs());
  std::vector<ValueId> rest(graph.outputs.begin() + static_cast<int64_t>(graph.num_own_outputs()), graph.outputs.end());
  result.outputs.clear();
  GraphBuilder builder(result);
  for (const ValueId value : values) {
    const bool is_input = !graph.producer(value);
    const bool is_twice = std::find(result.outputs.begin(), result.outputs.end(), value) != result.outputs.end() ||
                          std::find(rest.begin(), rest.end(), value) != rest.end();
    if (!is_input && !is_twice) {
      result.outputs.push_back(value);
      continue;
    }
    auto zero = std::make_shared<Tensor>(graph.type(value).dtype, std::vector<int64_t>{});
    const ValueId none = builder.add(ops.get("constant"), {}, {{"value", TensorPtr(std::move(zero))}});
    result.outputs.push_back(builder.add(ops.get("add"), {value, none}, {}, graph.value(value).name + ".seen"));
  }
  result.outputs.insert(result.outputs.end(), rest.begin(), rest.end());
  return result;
}

Graph quantized_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                      const OpTable& ops) {
  return Quantizer(graph, options, ops).run(products);
}

ByteScale byte_scale(const Range& range, DType dtype) {
  const double low = std::min(range.low, 0.0), high = std::max(range.high, 0.0);
  const bool has_sign = dtype == DType::kI8;
  ByteScale bytes;
  bytes.scale = static_cast<float>(has_sign ? std::max(-low, high) / 127 : (high - low) / 255);
  if (!(bytes.scale >= std::numeric_limits<float>::min())) return {};
  if (!has_sign) bytes.zero = std::clamp<int64_t>(std::llround(-low / bytes.scale), 0, 255);
  return bytes;
}

}  // namespace tessera::inline quantize
