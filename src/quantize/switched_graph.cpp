#include "quantize/switched_graph.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "ops/composites/composites.h"
#include "quantize/byte_nodes.h"

namespace tessera::inline quantize {
namespace {

class Switches {
 public:
  Switches(const Graph& graph, const QuantizeOptions& options, const OpTable& ops)
      : graph_(graph), options_(options), ops_(ops), rewriter_(graph), builder_(rewriter_.target()) {}

  Graph run(const std::vector<QuantizedProduct>& products) {
    std::map<const Node*, size_t> places;
    for (size_t i = 0; i < products.size(); ++i) places[&graph_.node(products[i].product.node)] = i;
    Graph& target = rewriter_.target();
    switches_ = target.add_input(std::string(kSwitches), {DType::kBool, {static_cast<int64_t>(products.size())}, {}});
    Graph result = rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      const auto found = places.find(&node);
      if (found == places.end()) return std::vector<ValueId>{};
      const QuantizedProduct& product = products[found->second];
      builder_.set_loc(node.loc);
      const ValueId on = switch_of(found->second);
      std::vector<ValueId> operands = inputs;
      if (options_.scheme != Scheme::kWeightOnly) operands[0] = op("select", {on, data(product, inputs[0]), inputs[0]});
      operands[1] = op("select", {on, weights(product), inputs[1]});
      std::vector<ValueId> results = rewriter_.copy(node, operands);
      if (!product.correction.empty())
        results[0] = op("add", {results[0], op("select", {on, correction(product), zero()})});
      return results;
    });
    // It came first; it stands behind the graph's own inputs, in front of its states.
    const auto first = result.inputs.begin();
    std::rotate(first, first + 1, first + static_cast<int64_t>(result.num_own_inputs()));
    return result;
  }

 private:
  ValueId op(const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
    return builder_.add(ops_.get(name), std::move(operands), std::move(attrs));
  }
  ValueId constant(Tensor tensor) { return constant_node(builder_, ops_, std::move(tensor)); }
  ValueId zero() { return constant(Tensor::scalar_f32(0)); }

  ValueId switch_of(size_t place) {
    const auto i = static_cast<int64_t>(place);
    const ValueId one =
        op("slice", {switches_}, {{"starts", Shape{i}}, {"sizes", Shape{1}}, {"steps", std::vector<int64_t>{1}}});
    return op("reshape", {one}, {{"shape", Shape{}}});
  }

  ValueId data(const QuantizedProduct& product, ValueId x) {
    const auto key = std::make_tuple(product.product.data, product.range.low, product.range.high);
    if (const auto known = data_.find(key); known != data_.end()) return known->second;
    return data_[key] = through_bytes(builder_, ops_, product, options_, x);
  }

  ValueId weights(const QuantizedProduct& product) {
    const WeightedProduct& p = product.product;
    return constant(real_tensor(*product.weights, constant_tensor(graph_, p.weights).dims(), p.outputs_axis));
  }

  ValueId correction(const QuantizedProduct& product) {
    std::vector<int64_t> dims = {static_cast<int64_t>(product.correction.size())};
    if (product.product.is_conv) dims.resize(constant_tensor(graph_, product.product.weights).dims().size() - 1, 1);
    Tensor tensor(DType::kF32, std::move(dims));
    std::copy(product.correction.begin(), product.correction.end(), tensor.as_mutable<float>().begin());
    return constant(std::move(tensor));
  }

  const Graph& graph_;
  const QuantizeOptions& options_;
  const OpTable& ops_;
  GraphRewriter rewriter_;
  GraphBuilder builder_;
  ValueId switches_ = -1;
  std::map<std::tuple<ValueId, double, double>, ValueId> data_;
};

}  // namespace

Graph switched_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                     const OpTable& ops) {
  return Switches(graph, options, ops).run(products);
}

}  // namespace tessera::inline quantize
