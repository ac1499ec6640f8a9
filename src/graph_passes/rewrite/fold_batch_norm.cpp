#include "graph_passes/rewrite/fold_batch_norm.h"

#include <algorithm>

#include "graph_passes/rewrite/channel_chain.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

// Whether the rewrite makes the graph smaller (the result of a rewrite is never worth another one).
bool worth_it(const Graph& graph, const AffineChain& chain) {
  const size_t left = (chain.conv < 0 && chain.affine.scales() ? 1u : 0u) + (chain.affine.shifts() ? 1u : 0u);
  const bool has_composite = std::any_of(chain.steps.begin(), chain.steps.end(),
                                         [&](NodeId id) { return graph.node(id).op->kind == OpKind::kComposite; });
  return has_composite || chain.steps.size() > left;
}

// Whether a chain scales sums of products of bytes and divides them by the scale of bytes that they become: these stay
// as they are for scale_sums_once, which would take what has no division for numbers that are asked for to the bit.
bool becomes_bytes(const Graph& graph, const PassContext& ctx, const AffineChain& chain, const std::vector<int>& uses) {
  const Node *cast = chain.conv < 0 ? graph.producer(chain.start) : nullptr, &last = graph.node(chain.steps.back());
  if (!is_op(cast, "cast") || graph.type(cast->inputs[0]).dtype != DType::kI32 || !is_op(&last, "div")) return false;
  const Node* product = graph.producer(cast->inputs[0]);
  if (is_op(product, "add") || is_op(product, "sub")) product = graph.producer(product->inputs[0]);
  if (!is_op(product, "conv") && !is_op(product, "matmul")) return false;
  if (is_of_unit(ctx, *product)) return false;
  return uses[static_cast<size_t>(last.outputs[0])] == 1 && std::ranges::any_of(graph.nodes(), [&](const Node& node) {
           return is_op(&node, "round") && node.inputs[0] == last.outputs[0];
         });
}

Tensor rounded(DType dtype, const std::vector<double>& values, std::vector<int64_t> dims) {
  Tensor tensor(dtype, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

// [C,1,1] for values of rank 4, [1] for one factor: broadcasts along the channel axis.
std::vector<int64_t> channel_dims(size_t channels, int rank) {
  if (rank == 0) return {};
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
  Folder(const Graph& graph, const PassContext& ctx) : graph_(graph), ctx_(ctx), ops_(ctx.ops) {
    const ChainFinder finder(graph);
    const std::vector<int> uses = use_counts(graph);
    place_.assign(graph.nodes().size(), -1);
    inner_.assign(graph.nodes().size(), false);
    std::vector<bool> done(graph.nodes().size(), false);
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (done[i]) continue;
      auto chain = finder.find(static_cast<NodeId>(i));
      if (!chain) continue;
      for (const NodeId step : chain->steps) done[static_cast<size_t>(step)] = true;
      if (!worth_it(graph, *chain) || becomes_bytes(graph, ctx, *chain, uses)) continue;
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
  ValueId rewrite(GraphRewriter& rewriter, const AffineChain& chain) {
    GraphBuilder builder(rewriter.target());
    const Value& last = graph_.value(graph_.node(chain.steps.back()).outputs[0]);
    std::vector<std::string> locs;
    if (chain.conv >= 0) locs.push_back(graph_.node(chain.conv).loc);
    for (const NodeId step : chain.steps) locs.push_back(graph_.node(step).loc);
    builder.set_loc(join_locs(locs));

    if (ctx_.remarks)
      ctx_.remarks->done("fold_batch_norm", builder.loc(),
                         chain.conv >= 0 ? "scales and shifts by constants are in the convolution's weights and bias"
                                         : "scales and shifts by constants are one scale and one shift");
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
  const PassContext& ctx_;
  const OpTable& ops_;
  std::vector<AffineChain> chains_;
  std::vector<int> place_;   // of a chain's last node: the chain; -1 elsewhere
  std::vector<bool> inner_;  // nodes of chains other than the last
};

}  // namespace

Graph fold_batch_norm(const Graph& graph, const PassContext& ctx) { return Folder(graph, ctx).run(); }

}  // namespace tessera::inline graph_passes
