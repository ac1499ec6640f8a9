#include "quantize/layer_inputs.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "arith/simplify.h"
#include "ops/composites/composites.h"
#include "quantize/byte_nodes.h"

namespace tessera::inline quantize {
namespace {

// Adds nodes to a copy of a graph, whose outputs become others.
class Beside {
 public:
  Beside(const Graph& graph, const OpTable& ops) : ops_(ops), result_(graph), builder_(result_) {
    own_outputs_ = static_cast<int64_t>(graph.num_own_outputs());
  }

  const Graph& graph() const { return result_; }
  ValueId op(const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
    return builder_.add(ops_.get(name), std::move(operands), std::move(attrs));
  }
  std::vector<ValueId> composite(const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
    return add_composite(builder_, ops_, name, std::move(operands), std::move(attrs));
  }
  ValueId constant(Tensor tensor) { return constant_node(builder_, ops_, std::move(tensor)); }
  ValueId bytes_of(const QuantizedProduct& product, const QuantizeOptions& options, ValueId x) {
    return through_bytes(builder_, ops_, product, options, x);
  }
  ValueId reshape(ValueId value, Shape shape) { return op("reshape", {value}, {{"shape", std::move(shape)}}); }
  ValueId reduce(const char* kind, ValueId value, std::vector<int64_t> axes) {
    return op("reduce", {value}, {{"kind", std::string(kind)}, {"axes", std::move(axes)}, {"keepdims", false}});
  }
  const Shape& shape(ValueId value) const { return result_.type(value).shape; }

  Graph with_outputs(const std::vector<ValueId>& outputs) {
    result_.outputs.erase(result_.outputs.begin(), result_.outputs.begin() + own_outputs_);
    result_.outputs.insert(result_.outputs.begin(), outputs.begin(), outputs.end());
    return std::move(result_);
  }

 private:
  const OpTable& ops_;
  Graph result_;
  GraphBuilder builder_;
  int64_t own_outputs_;
};

Expr product_of(const Shape& shape, size_t begin, size_t end) {
  Expr product = 1;
  for (size_t d = begin; d < end; ++d) product = product * shape[d];
  return simplify(product);
}

// A convolution whose outputs are the terms themselves: [batch, groups, terms, places].
ValueId terms_of_conv(Beside& to, const WeightedProduct& product, const ProductTerms& terms) {
  const Node node = to.graph().node(product.node);
  std::vector<int64_t> dims = constant_tensor(to.graph(), product.weights).dims();
  dims[0] = terms.groups * terms.terms;
  Tensor choices(DType::kF32, dims);
  const std::span<float> numbers = choices.as_mutable<float>();
  for (int64_t o = 0; o < dims[0]; ++o) numbers[static_cast<size_t>(o * terms.terms + o % terms.terms)] = 1;
  const ValueId patches = to.op("conv", {product.data, to.constant(std::move(choices))}, node.attrs);
  const Shape shape = to.shape(patches);
  return to.reshape(patches, {shape[0], terms.groups, terms.terms, product_of(shape, 2, shape.size())});
}

}  // namespace

ProductTerms product_terms(const Graph& graph, const WeightedProduct& product) {
  const Tensor& weights = constant_tensor(graph, product.weights);
  const int64_t outputs = weights.dims()[product.outputs_axis];
  return {outputs > 0 ? weights.num_elements() / outputs : 0,
          product.is_conv ? graph.node(product.node).attrs.get_int("groups") : 1};
}

Graph gram_graph(const Graph& graph, const std::vector<WeightedProduct>& products, const OpTable& ops) {
  Beside to(graph, ops);
  std::vector<ValueId> outputs;
  for (const WeightedProduct& product : products) {
    const ProductTerms terms = product_terms(graph, product);
    if (product.is_conv) {
      const ValueId rows = terms_of_conv(to, product, terms);
      outputs.push_back(to.reduce("sum", to.op("matmul", {rows, rows}, {{"transpose_b", true}}), {0}));
      continue;
    }
    const Shape shape = to.shape(product.data);
    const ValueId rows = to.reshape(product.data, {product_of(shape, 0, shape.size() - 1), shape.back()});
    outputs.push_back(
        to.reshape(to.op("matmul", {rows, rows}, {{"transpose_a", true}}), {1, shape.back(), shape.back()}));
  }
  return to.with_outputs(outputs);
}

Graph shift_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                  const OpTable& ops) {
  Beside to(graph, ops);
  std::vector<ValueId> outputs;
  for (const QuantizedProduct& product : products) {
    const WeightedProduct& p = product.product;
    const Node node = to.graph().node(p.node);
    std::vector<ValueId> operands = node.inputs;
    if (options.scheme != Scheme::kWeightOnly) operands[0] = to.bytes_of(product, options, operands[0]);
    operands[1] = to.constant(real_tensor(*product.weights, constant_tensor(graph, p.weights).dims(), p.outputs_axis));
    const ValueId difference =
        to.op("sub", {node.outputs[0], to.op(p.is_conv ? "conv" : "matmul", operands, node.attrs)});
    const auto rank = static_cast<int64_t>(to.shape(difference).size());
    const int64_t channels = p.is_conv ? 1 : rank - 1;
    std::vector<int64_t> axes;
    for (int64_t d = 0; d < rank; ++d)
      if (d != channels) axes.push_back(d);
    outputs.push_back(to.composite("reduce_mean", {difference}, {{"axes", axes}, {"keepdims", false}})[0]);
  }
  return to.with_outputs(outputs);
}

}  // namespace tessera::inline quantize
