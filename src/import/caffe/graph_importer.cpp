#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "graph/subgraph.h"
#include "import/caffe/caffe_import.h"
#include "import/caffe/layer_table.h"
#include "import/common/failure_list.h"
#include "import/common/finished_graph.h"
#include "import/common/open_inputs.h"
#include "support/error.h"
#include "support/operator_rule_error.h"

namespace tessera::inline caffe {
namespace {

constexpr ValueId kFailed = -1;

[[noreturn]] void refuse_network(const std::string& what, const std::string& legal) {
  throw UserError({"TSR-1131", what, "", legal, ""});
}

Ints dims_of(const proto::BlobShape& shape) { return {shape.dim().begin(), shape.dim().end()}; }

// Inputs of the network itself (as old files have them) and of layers.
std::vector<CaffeInput> inputs_of(const proto::NetParameter& net) {
  std::vector<CaffeInput> inputs;
  for (int i = 0; i < net.input_size(); ++i) {
    Ints dims;
    if (i < net.input_shape_size()) dims = dims_of(net.input_shape(i));
    else if (net.input_dim_size() >= 4 * (i + 1))
      dims.assign(net.input_dim().begin() + 4 * i, net.input_dim().begin() + 4 * (i + 1));
    else refuse_network(fmt::format("input '{}' has no sizes", net.input(i)), "input_shape or four input_dim for each");
    inputs.push_back({net.input(i), dims});
  }
  for (const proto::LayerParameter& layer : net.layer()) {
    if (layer.type() != "Input") continue;
    const auto& shapes = layer.input_param().shape();
    for (int i = 0; i < layer.top_size(); ++i) {
      if (shapes.size() != 1 && i >= shapes.size())
        refuse_network(fmt::format("input '{}' has no sizes", layer.top(i)), "a shape for each top, or one for all");
      inputs.push_back({layer.top(i), dims_of(shapes.Get(shapes.size() == 1 ? 0 : i))});
    }
  }
  std::set<std::string> names;
  for (const CaffeInput& input : inputs)
    if (input.name.empty()) refuse_network("an input without a name", "a name for each");
    else if (!names.insert(input.name).second)
      refuse_network(fmt::format("two inputs '{}'", input.name), "one of a name");
  if (inputs.empty())
    refuse_network("the network has no input", "input: \"data\" or a layer of type Input, as a deploy.prototxt has");
  return inputs;
}

class CaffeImporter {
 public:
  CaffeImporter(const std::shared_ptr<const CaffeNetwork>& network, const ImportOptions& options, const OpTable& ops,
                Evaluator& evaluator)
      : network_(network),
        options_(options),
        ops_(ops),
        builder_(graph_),
        state_{ops, graph_, builder_, ConstantFinder(graph_, evaluator)} {}

  ReadOutcome run() {
    add_inputs();
    for (const proto::LayerParameter& layer : network_->net.layer())
      if (layer.type() != "Input") import(layer);
    if (!failures_.empty()) return failures_.refusal();
    OutputList outputs(builder_, ops_);
    for (const std::string& name : order_) {
      if (read_.contains(name)) continue;
      name_value(values_.at(name), name);
      outputs.add(values_.at(name), name);
    }
    graph_.name = network_->net.name();
    return ImportedModel{needed_part(graph_), nullptr};
  }

 private:
  // Sizes are the file's, or what the options say instead: a network of Caffe takes images of any.
  void add_inputs() {
    std::vector<CaffeInput> inputs = inputs_of(network_->net);
    std::vector<OpenInput> declared;
    for (CaffeInput& input : inputs) {
      const auto given = options_.shapes.find(input.name);
      if (given != options_.shapes.end() && given->second.size() == input.dims.size()) input.dims = given->second;
      declared.push_back({input.name, "f32", {}});
      for (const int64_t dim : input.dims) declared.back().sizes.push_back({.value = dim});
    }
    values_of_symbols(declared, options_, "network");
    for (const CaffeInput& input : inputs) {
      TensorType type{DType::kF32, {}, {}};
      for (const int64_t dim : input.dims) {
        if (dim < 0) refuse_network(fmt::format("input '{}' has an extent of {}", input.name, dim), "0 or more");
        type.shape.push_back(dim);
      }
      require_size(input.name, type.shape);
      bind(input.name, graph_.add_input(graph_.unique_name(input.name), type));
    }
  }

  void bind(const std::string& name, ValueId value) {
    if (!values_.contains(name)) order_.push_back(name);
    values_[name] = value;
  }

  // Several layers may write a value of the same name, each over what it reads: the last one has it.
  void name_value(ValueId value, const std::string& name) {
    const Node* producer = graph_.producer(value);
    if (producer && graph_.value(value).name != name && named_.insert(value).second)
      graph_.rename(value, graph_.unique_name(name));
  }

  void import(const proto::LayerParameter& layer) {
    std::vector<ValueId> bottoms;
    bool failed = false;
    for (const std::string& name : layer.bottom()) {
      const auto found = values_.find(name);
      if (found == values_.end())
        throw UserError({"TSR-1133", fmt::format("{} reads '{}', which no layer before it makes", layer.type(), name),
                         layer.name(), "tops of layers that stand before it", "check the names"});
      bottoms.push_back(found->second);
      failed = failed || found->second == kFailed;
    }
    for (int i = 0; i < layer.top_size(); ++i) {
      const std::string& top = layer.top(i);
      if (top.empty())
        throw UserError({"TSR-1133", fmt::format("{} makes a top without a name", layer.type()), layer.name(),
                         "a name for each", "check the names"});
      const bool in_place = std::find(layer.bottom().begin(), layer.bottom().end(), top) != layer.bottom().end();
      const bool twice = std::find(layer.top().begin(), layer.top().begin() + i, top) != layer.top().begin() + i;
      if (twice || (values_.contains(top) && !in_place))
        throw UserError({"TSR-1133", fmt::format("{} makes '{}', which is there already", layer.type(), top),
                         layer.name(), "one layer for each top, unless it is its bottom as well", "check the names"});
    }
    // What depends on a layer that could not be imported cannot be judged.
    std::vector<ValueId> results(static_cast<size_t>(layer.top_size()), kFailed);
    if (!failed) results = results_of(layer, std::move(bottoms), std::move(results));
    for (const std::string& name : layer.bottom()) read_.insert(name);
    for (int i = 0; i < layer.top_size(); ++i) {
      bind(layer.top(i), results[static_cast<size_t>(i)]);
      read_.erase(layer.top(i));
    }
  }

  std::vector<ValueId> results_of(const proto::LayerParameter& layer, std::vector<ValueId> bottoms,
                                  std::vector<ValueId> failed) {
    const NodeLabel label{layer.type(), layer.name()};
    const auto refuse = [&](auto&&... what) {
      failures_.add(label, std::forward<decltype(what)>(what)...);
      return failed;
    };
    const CaffeLayer* known = find_caffe_layer(layer.type());
    if (!known) return refuse(UnsupportedNode{"the type of layer is not supported"});
    builder_.set_loc(layer.name());
    LayerContext context(state_, network_, layer, std::move(bottoms));
    try {
      known->handler(context);
      for (size_t i = 0; i < context.results().size(); ++i)
        if (context.results()[i] == -1) context.unsupported(fmt::format("its top {}", i));
    } catch (const UnsupportedNode& unsupported) {
      return refuse(unsupported);
    } catch (const OperatorRuleError& error) {
      return refuse(error.diagnostic(), true);
    } catch (const UserError& error) {
      return refuse(error.diagnostic(), false);
    }
    return context.results();
  }

  std::shared_ptr<const CaffeNetwork> network_;
  const ImportOptions& options_;
  const OpTable& ops_;
  Graph graph_;
  GraphBuilder builder_;
  EmitState state_;
  FailureList failures_;
  std::map<std::string, ValueId> values_;  // what has this name now
  std::vector<std::string> order_;         // names in the order in which they came
  std::set<std::string> read_;             // by a layer, since it was written
  std::set<ValueId> named_;
};

}  // namespace

CaffeBorder border_of(const CaffeNetwork& network) {
  CaffeBorder border{inputs_of(network.net), {}};
  std::vector<std::string> order;
  std::set<std::string> read;
  for (const CaffeInput& input : border.inputs) order.push_back(input.name);
  for (const proto::LayerParameter& layer : network.net.layer()) {
    for (const std::string& name : layer.bottom()) read.insert(name);
    for (const std::string& name : layer.top()) {
      read.erase(name);
      if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
    }
  }
  for (const std::string& name : order)
    if (!read.contains(name)) border.outputs.push_back(name);
  return border;
}

ReadOutcome read_caffe(const std::shared_ptr<const CaffeNetwork>& network, const ImportOptions& options,
                       const OpTable& ops, Evaluator& evaluator) {
  return CaffeImporter(network, options, ops, evaluator).run();
}

}  // namespace tessera::inline caffe
