#include "train/fake_quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ops/composites/composites.h"
#include "support/error.h"

namespace tessera::inline train {
namespace {

// The layers' names, each its own.
std::vector<std::string> layer_names(const std::vector<WeightedProduct>& products) {
  std::set<std::string> taken;
  std::vector<std::string> names;
  for (const WeightedProduct& product : products) {
    std::string name = product.name;
    for (int i = 1; !taken.insert(name).second; ++i) name = fmt::format("{}_{}", product.name, i);
    names.push_back(name);
  }
  return names;
}

}  // namespace

Graph with_fake_quantization(const Graph& model, const QuantizeOptions& options, const OpTable& ops) {
  const std::vector<WeightedProduct> products = weighted_products(model);
  if (products.empty())
    throw UserError({.id = "TSR-2083",
                     .message = "the model has no convolution or matrix product with constant weights in f32",
                     .node = {},
                     .legal = "a model with layers to quantise",
                     .hint = {}});
  const std::vector<std::string> names = layer_names(products);
  std::map<const Node*, size_t> chosen;
  for (size_t i = 0; i < products.size(); ++i) chosen[&model.node(products[i].node)] = i;
  std::map<ValueId, ValueId> data;  // of the model: what products read in its place
  std::map<std::pair<ValueId, size_t>, ValueId> weights;
  GraphRewriter rewriter(model);
  GraphBuilder builder(rewriter.target());
  return rewriter.run([&](GraphRewriter& to, const Node& node, const std::vector<ValueId>& inputs) {
    const auto found = chosen.find(&node);
    if (found == chosen.end()) return std::vector<ValueId>{};
    const WeightedProduct& product = products[found->second];
    std::vector<ValueId> operands = inputs;
    builder.set_loc(node.loc);
    if (const auto known = data.find(product.data); known != data.end()) {
      operands[0] = known->second;
    } else {
      const auto range = [&](const char* end) {
        return builder.add(ops.get("constant"), {},
                           {{"value", TensorPtr(std::make_shared<const Tensor>(Tensor::scalar_f32(0)))}},
                           fmt::format("{}.{}", names[found->second], end));
      };
      const ValueId low = range("low"), high = range("high");
      operands[0] = data[product.data] =
          add_composite(builder, ops, "fake_quantize", {inputs[0], low, high}, {{"to", options.activations}})[0];
    }
    const auto key = std::make_pair(product.weights, product.outputs_axis);
    if (const auto known = weights.find(key); known != weights.end()) {
      operands[1] = known->second;
    } else {
      Attrs attrs = {{"bits", int64_t{options.weight_bits}}};
      if (options.weights == Granularity::kChannel) attrs.set("axis", static_cast<int64_t>(product.outputs_axis));
      operands[1] = weights[key] =
          add_composite(builder, ops, "fake_quantize_weights", {inputs[1]}, std::move(attrs))[0];
    }
    return to.copy(node, operands);
  });
}

Graph with_integers(const Graph& model, const std::vector<std::string>& names, const std::vector<TensorPtr>& values,
                    const QuantizeOptions& options, const OpTable& ops) {
  const std::vector<WeightedProduct> products = weighted_products(model);
  const std::vector<std::string> layers = layer_names(products);
  std::map<std::string, double> known;
  for (size_t i = 0; i < names.size(); ++i)
    if (values[i]->dims().empty()) known[names[i]] = values[i]->get_double(0);
  std::map<ValueId, Range> ranges;  // of data: the first layer that reads it has seen it
  std::vector<QuantizedProduct> quantized;
  for (size_t i = 0; i < products.size(); ++i) {
    const auto low = known.find(layers[i] + ".low"), high = known.find(layers[i] + ".high");
    if (low != known.end() && high != known.end()) ranges.emplace(products[i].data, Range{low->second, high->second});
    const auto range = ranges.find(products[i].data);
    check(range != ranges.end(), "no range was learnt for " + layers[i]);
    quantized.push_back({products[i], range->second});
  }
  return quantized_graph(model, quantized, options, ops);
}

}  // namespace tessera::inline train
