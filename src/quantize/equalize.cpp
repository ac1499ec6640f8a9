#include "quantize/equalize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "arith/simplify.h"
#include "quantize/quantize_graph.h"

namespace tessera::inline quantize {
namespace {

// Numbers of a constant as [outer, channels, inner].
struct Channels {
  ValueId constant = -1;
  size_t axis = 0;
};

// Two products and what lies between; `constants` are scaled down, `second` is scaled up.
struct Pair {
  std::vector<Channels> constants;  // the first product's weights in front, then what is added
  Channels second;
};

class Equalizer {
 public:
  explicit Equalizer(const Graph& graph) : graph_(graph), users_(graph.users()) {
    for (const WeightedProduct& product : weighted_products(graph)) products_[product.node] = product;
    for (const ValueId output : graph.outputs) is_output_[output] = true;
  }

  Equalized run() {
    std::vector<Pair> pairs;
    for (const auto& [node, product] : products_)
      if (auto pair = pair_from(product)) pairs.push_back(std::move(*pair));
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
      double most = 1;
      for (const Pair& pair : pairs) most = std::max(most, equalize(pair));
      if (most < 1.01) break;
    }
    Graph result = graph_;
    for (const auto& [constant, tensor] : numbers_) {
      Node& node = result.node(graph_.value(constant).producer);
      Tensor copy(DType::kF32, constant_tensor(graph_, constant).dims());
      std::copy(tensor.begin(), tensor.end(), copy.as_mutable<float>().begin());
      node.attrs.set("value", TensorPtr(std::make_shared<const Tensor>(std::move(copy))));
    }
    return {std::move(result), pairs.size()};
  }

 private:
  // Its one reader.
  const Node* reader_of(ValueId value) const {
    const auto& users = users_[static_cast<size_t>(value)];
    if (users.size() != 1 || is_output_.contains(value)) return nullptr;
    return &graph_.node(users[0]);
  }

  bool is_own_constant(ValueId value) const {
    const Node* producer = graph_.producer(value);
    return producer && producer->op->kind == OpKind::kConstant && graph_.type(value).dtype == DType::kF32 &&
           users_[static_cast<size_t>(value)].size() == 1 && !is_output_.contains(value) &&
           producer->attrs.get<TensorPtr>("value")->has_data();
  }

  std::optional<Pair> pair_from(const WeightedProduct& first) const {
    if (!is_own_constant(first.weights)) return std::nullopt;
    Pair pair{{{first.weights, first.outputs_axis}}, {}};
    ValueId value = graph_.node(first.node).outputs[0];
    const size_t channels_axis = first.is_conv ? 1 : graph_.type(value).shape.size() - 1;
    for (const Node* node = reader_of(value); node; node = reader_of(value)) {
      const auto id = static_cast<NodeId>(node - graph_.nodes().data());
      if (const auto second = products_.find(id); second != products_.end())
        return with_second(std::move(pair), first, second->second, value);
      if (!keeps_channels(*node, value, channels_axis, pair)) return std::nullopt;
      value = node->outputs[0];
    }
    return std::nullopt;
  }

  // Whether `node` makes s times the result of s times the value, channel by channel; a constant that is added has to
  // be scaled as well.
  bool keeps_channels(const Node& node, ValueId value, size_t channels_axis, Pair& pair) const {
    if (node.op->kind == OpKind::kComposite) {
      const std::string& name = node.attrs.get<std::string>("name");
      constexpr std::string_view kNames[] = {"relu",         "leaky_relu",          "max_pool",
                                             "average_pool", "global_average_pool", "global_max_pool"};
      const bool is_pool = name.find("pool") != std::string::npos;
      return (!is_pool || channels_axis == 1) &&
             std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
    }
    if (node.op->name != "add") return false;
    const ValueId other = node.inputs[0] == value ? node.inputs[1] : node.inputs[0];
    if (!is_own_constant(other)) return false;
    // One number for each channel.
    const std::vector<int64_t>& dims = constant_tensor(graph_, other).dims();
    const size_t rank = graph_.type(value).shape.size();
    if (rank - channels_axis > dims.size()) return false;
    const size_t axis = dims.size() - (rank - channels_axis);
    for (size_t d = 0; d < dims.size(); ++d)
      if (d != axis && dims[d] != 1) return false;
    const auto channels = as_int(graph_.type(value).shape[channels_axis]);
    if (!channels || dims[axis] != *channels) return false;
    pair.constants.push_back({other, axis});
    return true;
  }

  std::optional<Pair> with_second(Pair pair, const WeightedProduct& first, const WeightedProduct& second,
                                  ValueId value) const {
    if (second.data != value || !is_own_constant(second.weights) || first.is_conv != second.is_conv)
      return std::nullopt;
    const int64_t outputs = constant_tensor(graph_, first.weights).dims()[first.outputs_axis];
    const std::vector<int64_t>& dims = constant_tensor(graph_, second.weights).dims();
    // The terms of a product of matrices, the channels that a convolution reads, or those of a depthwise one.
    const bool depthwise = second.is_conv && dims[1] == 1 && dims[0] == outputs &&
                           graph_.node(second.node).attrs.get_int("groups") == outputs;
    pair.second = {second.weights, second.is_conv ? (depthwise ? size_t{0} : size_t{1}) : 1 - second.outputs_axis};
    if (dims[pair.second.axis] != outputs) return std::nullopt;
    return pair;
  }

  std::vector<float>& numbers_of(ValueId constant) {
    std::vector<float>& numbers = numbers_[constant];
    if (numbers.empty()) {
      const auto given = constant_tensor(graph_, constant).as<float>();
      numbers.assign(given.begin(), given.end());
    }
    return numbers;
  }

  template <typename Visit>
  void for_each(const Channels& channels, const Visit& visit) {
    const std::vector<int64_t>& dims = constant_tensor(graph_, channels.constant).dims();
    int64_t inner = 1;
    for (size_t d = channels.axis + 1; d < dims.size(); ++d) inner *= dims[d];
    std::vector<float>& numbers = numbers_of(channels.constant);
    for (size_t i = 0; i < numbers.size(); ++i)
      visit(static_cast<size_t>(static_cast<int64_t>(i) / inner % dims[channels.axis]), numbers[i]);
  }

  std::vector<double> largest(const Channels& channels) {
    std::vector<double> most(static_cast<size_t>(constant_tensor(graph_, channels.constant).dims()[channels.axis]));
    for_each(channels,
             [&](size_t channel, float number) { most[channel] = std::max<double>(most[channel], std::abs(number)); });
    return most;
  }

  // By how much the channel that changes most changes.
  double equalize(const Pair& pair) {
    const std::vector<double> first = largest(pair.constants[0]), second = largest(pair.second);
    std::vector<double> scale(first.size(), 1);
    double most = 1;
    for (size_t i = 0; i < scale.size(); ++i) {
      const double wanted = std::sqrt(first[i] / second[i]);
      // A channel without weights, or that no one reads, stays as it is.
      if (!(wanted > 1e-4 && wanted < 1e4)) continue;
      scale[i] = wanted;
      most = std::max({most, wanted, 1 / wanted});
    }
    for (const Channels& constant : pair.constants)
      for_each(constant, [&](size_t channel, float& number) { number = static_cast<float>(number / scale[channel]); });
    for_each(pair.second, [&](size_t channel, float& number) { number = static_cast<float>(number * scale[channel]); });
    return most;
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>> users_;
  std::map<NodeId, WeightedProduct> products_;
  std::map<ValueId, bool> is_output_;
  std::map<ValueId, std::vector<float>> numbers_;  // of constants that change
};

}  // namespace

Equalized equalized(const Graph& graph) { return Equalizer(graph).run(); }

}  // namespace tessera::inline quantize
