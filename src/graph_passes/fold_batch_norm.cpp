#include "graph_passes/fold_batch_norm.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph_passes/graph_util.h"

namespace tessera {
namespace {

// y = scale * x + shift, one entry for each channel, or a single one for the whole tensor.
struct Affine {
  std::vector<double> scale{1.0}, shift{0.0};

  void widen(size_t channels) {
    if (scale.size() == 1) scale.assign(channels, scale[0]);
    if (shift.size() == 1) shift.assign(channels, shift[0]);
  }
  // This function first, then `next`.
  void then(const Affine& next) {
    const size_t channels = std::max({scale.size(), shift.size(), next.scale.size(), next.shift.size()});
    const auto at = [](const std::vector<double>& v, size_t i) { return v.size() == 1 ? v[0] : v[i]; };
    widen(channels);
    for (size_t i = 0; i < channels; ++i) {
      scale[i] *= at(next.scale, i);
      shift[i] = shift[i] * at(next.scale, i) + at(next.shift, i);
    }
  }
  bool scales() const {
    return std::any_of(scale.begin(), scale.end(), [](double s) { return s != 1; });
  }
  bool shifts() const {
    return std::any_of(shift.begin(), shift.end(), [](double s) { return s != 0; });
  }
};

std::vector<double> elements(const Tensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.get_double(i));
  return values;
}

// The elements of a constant that broadcasts to `shape` without varying along any axis but 1; empty otherwise.
std::optional<std::vector<double>> per_channel(const Graph& graph, ValueId id, const Shape& shape) {
  const Tensor* tensor = constant_value(graph, id);
  if (!tensor || tensor->dims().size() > shape.size()) return std::nullopt;
  const size_t skip = shape.size() - tensor->dims().size();
  for (size_t i = 0; i < tensor->dims().size(); ++i) {
    const int64_t extent = tensor->dims()[i];
    if (extent != 1 && !(i + skip == 1 && is_const_int(shape[1], extent))) return std::nullopt;
  }
  return elements(*tensor);
}

std::optional<Affine> batch_norm_step(const Graph& graph, const Node& node) {
  std::vector<std::vector<double>> params;
  for (size_t i = 1; i < 5; ++i) {
    const Tensor* tensor = node.inputs.size() == 5 ? constant_value(graph, node.inputs[i]) : nullptr;
    if (!tensor) return std::nullopt;
    params.push_back(elements(*tensor));
  }
  const double epsilon = node.attrs.get_or<double>("epsilon", 1e-5);
  Affine step;
  step.widen(params[0].size());
  for (size_t c = 0; c < params[0].size(); ++c) {
    step.scale[c] = params[0][c] / std::sqrt(params[3][c] + epsilon);
    step.shift[c] = params[1][c] - params[2][c] * step.scale[c];
  }
  return step;
}

// What `node` does to its operand `value`, when that is scaling and shifting by constants.
std::optional<Affine> step_of(const Graph& graph, const Node& node, ValueId value) {
  const DType dtype = graph.type(value).dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64) return std::nullopt;
  if (is_composite(&node, "batch_norm")) return node.inputs[0] == value ? batch_norm_step(graph, node) : std::nullopt;
  const std::string& op = node.op->name;
  if (op == "neg") return Affine{.scale = {-1.0}};
  if (op != "add" && op != "sub" && op != "mul" && op != "div") return std::nullopt;
  const bool first = node.inputs[0] == value;
  const ValueId other = node.inputs[first ? 1 : 0];
  const TensorType& result = graph.type(node.outputs[0]);
  if (other == value || !same_shape(graph.type(value).shape, result.shape)) return std::nullopt;
  const auto constant = per_channel(graph, other, result.shape);
  if (!constant || constant->empty()) return std::nullopt;
  Affine step;
  if (op == "add") {
    step.shift = *constant;
  } else if (op == "mul") {
    step.scale = *constant;
  } else if (op == "sub") {
    step.shift = *constant;
    if (first)
      for (double& s : step.shift) s = -s;
    else step.scale = {-1.0};
  } else {
    if (!first) return std::nullopt;
    step.scale = *constant;
    for (double& s : step.scale) s = 1 / s;
  }
  const auto finite = [](double s) { return std::isfinite(s); };
  if (!std::all_of(step.scale.begin(), step.scale.end(), finite)) return std::nullopt;
  return step;
}

struct Chain {
  ValueId start = -1;         // x
  NodeId conv = -1;           // the producer of x when it takes part
  std::vector<NodeId> steps;  // from x to the last value
  Affine affine;
};

class ChainFinder {
 public:
  explicit ChainFinder(const Graph& graph) : graph_(graph), users_(graph.users()), uses_(use_counts(graph)) {}

  // The longest chain whose first step is `first`.
  std::optional<Chain> find(NodeId first) const {
    const Node& node = graph_.node(first);
    Chain chain;
    std::optional<Affine> step;
    for (const ValueId input : node.inputs) {
      if (constant_value(graph_, input)) continue;
      step = step_of(graph_, node, input);
      chain.start = input;
      break;
    }
    if (!step) return std::nullopt;
    NodeId at = first;
    while (step) {
      chain.affine.then(*step);
      chain.steps.push_back(at);
      const ValueId result = graph_.node(at).outputs[0];
      step.reset();
      if (uses_[static_cast<size_t>(result)] != 1 || users_[static_cast<size_t>(result)].empty()) break;
      at = users_[static_cast<size_t>(result)][0];
      step = step_of(graph_, graph_.node(at), result);
    }
    const Node* conv = graph_.producer(chain.start);
    if (is_op(conv, "conv") && uses_[static_cast<size_t>(chain.start)] == 1 && constant_value(graph_, conv->inputs[1]))
      chain.conv = graph_.value(chain.start).producer;
    return chain;
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<int> uses_;
};

// Whether the rewrite makes the graph smaller (the result of a rewrite is never worth another one).
bool worth_it(const Graph& graph, const Chain& chain) {
  const size_t left = (chain.conv < 0 && chain.affine.scales() ? 1u : 0u) + (chain.affine.shifts() ? 1u : 0u);
  const bool has_composite = std::any_of(chain.steps.begin(), chain.steps.end(),
                                         [&](NodeId id) { return graph.node(id).op->kind == OpKind::kComposite; });
  return has_composite || chain.steps.size() > left;
}

Tensor rounded(DType dtype, const std::vector<double>& values, std::vector<int64_t> dims) {
  Tensor tensor(dtype, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

// [C,1,1] for values of rank 4, [1] for one factor: broadcasts along the channel axis.
std::vector<int64_t> channel_dims(size_t channels, int rank) {
  if (channels == 1) return {1};
  std::vector<int64_t> dims(static_cast<size_t>(rank) - 1, 1);
  dims[0] = static_cast<int64_t>(channels);
  return dims;
}

// The weights w[O,...] with output channel o multiplied by scale[o].
Tensor scaled_weights(const Tensor& weights, Affine affine) {
  const auto channels = weights.dims()[0];
  affine.widen(static_cast<size_t>(channels));
  Tensor result(weights.dtype(), weights.dims());
  const int64_t per_channel = channels ? weights.num_elements() / channels : 0;
  const auto scale = [&]<typename T>(T) {
    const std::span<const T> from = weights.as<T>();
    const std::span<T> to = result.as_mutable<T>();
    for (int64_t i = 0; i < weights.num_elements(); ++i) {
      const auto k = static_cast<size_t>(i);
      to[k] = static_cast<T>(from[k] * affine.scale[static_cast<size_t>(i / per_channel)]);
    }
  };
  weights.dtype() == DType::kF32 ? scale(float{}) : scale(double{});  // step_of takes no other types
  return result;
}

class Folder {
 public:
  Folder(const Graph& graph, const OpTable& ops) : graph_(graph), ops_(ops) {
    const ChainFinder finder(graph);
    place_.assign(graph.nodes().size(), -1);
    inner_.assign(graph.nodes().size(), false);
    std::vector<bool> done(graph.nodes().size(), false);
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (done[i]) continue;
      auto chain = finder.find(static_cast<NodeId>(i));
      if (!chain) continue;
      for (const NodeId step : chain->steps) done[static_cast<size_t>(step)] = true;
      if (!worth_it(graph, *chain)) continue;
      for (const NodeId step : chain->steps) inner_[static_cast<size_t>(step)] = true;
      if (chain->conv >= 0) inner_[static_cast<size_t>(chain->conv)] = true;
      const auto last = static_cast<size_t>(chain->steps.back());
      inner_[last] = false;
      place_[last] = static_cast<int>(chains_.size());
      chains_.push_back(std::move(*chain));
    }
  }

  Graph run() {
    NodeId next = 0;
    return GraphRewriter(graph_).run(
        [&](GraphRewriter& rewriter, const Node&, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
          const auto id = static_cast<size_t>(next++);
          // Only the chain reads the results of its inner nodes, and the chain is rewritten: any value will do.
          if (inner_[id]) return {inputs[0]};
          if (place_[id] < 0) return {};
          return {rewrite(rewriter, chains_[static_cast<size_t>(place_[id])])};
        });
  }

 private:
  ValueId rewrite(GraphRewriter& rewriter, const Chain& chain) {
    GraphBuilder builder(rewriter.target());
    const Value& last = graph_.value(graph_.node(chain.steps.back()).outputs[0]);
    std::vector<std::string> locs;
    if (chain.conv >= 0) locs.push_back(graph_.node(chain.conv).loc);
    for (const NodeId step : chain.steps) locs.push_back(graph_.node(step).loc);
    builder.set_loc(join_locs(locs));

    const Affine& affine = chain.affine;
    const bool add_shift = affine.shifts();
    ValueId value = -1;
    if (chain.conv >= 0) {
      const Node& conv = graph_.node(chain.conv);
      const std::string& name = graph_.value(conv.outputs[0]).name;
      ValueId weights = rewriter.mapped(conv.inputs[1]);
      if (affine.scales())
        weights = add_constant(builder.graph(), ops_, scaled_weights(*constant_value(graph_, conv.inputs[1]), affine),
                               name + ".weights", builder.loc());
      value =
          builder.add(*conv.op, {rewriter.mapped(conv.inputs[0]), weights}, conv.attrs, add_shift ? name : last.name);
    } else {
      value = rewriter.mapped(chain.start);
      if (affine.scales() || !add_shift)
        value = apply(builder, "mul", value, affine.scale, last, last.name + ".scale",
                      add_shift ? last.name + ".scaled" : last.name);
    }
    if (add_shift) value = apply(builder, "add", value, affine.shift, last, last.name + ".shift", last.name);
    return value;
  }

  ValueId apply(GraphBuilder& builder, const char* op, ValueId value, std::vector<double> factors, const Value& like,
                const std::string& constant_name, const std::string& name) {
    const bool all_equal = std::all_of(factors.begin(), factors.end(), [&](double f) { return f == factors[0]; });
    if (all_equal) factors.resize(1);
    const ValueId constant = add_constant(
        builder.graph(), ops_, rounded(like.type.dtype, factors, channel_dims(factors.size(), like.type.rank())),
        constant_name, builder.loc());
    return builder.add(ops_.get(op), {value, constant}, {}, name);
  }

  const Graph& graph_;
  const OpTable& ops_;
  std::vector<Chain> chains_;
  std::vector<int> place_;   // of a chain's last node: the chain; -1 elsewhere
  std::vector<bool> inner_;  // nodes of chains other than the last
};

}  // namespace

Graph fold_batch_norm(const Graph& graph, const PassContext& ctx) { return Folder(graph, ctx.ops).run(); }

}  // namespace tessera
