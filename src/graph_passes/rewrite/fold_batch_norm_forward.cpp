#include "graph_passes/rewrite/fold_batch_norm_forward.h"

#include <map>

#include "graph_passes/rewrite/channel_chain.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

class Folder {
 public:
  Folder(const Graph& graph, const PassContext& ctx)
      : graph_(graph), ctx_(ctx), users_(graph.users()), uses_(use_counts(graph)), rewriter_(graph) {
    const ChainFinder finder(graph);
    std::vector<bool> done(graph.nodes().size(), false);
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (done[i]) continue;
      auto chain = finder.find(static_cast<NodeId>(i));
      if (!chain) continue;
      for (const NodeId step : chain->steps) done[static_cast<size_t>(step)] = true;
      const NodeId conv = chain->conv < 0 ? next_conv(*chain) : -1;
      if (conv >= 0) chains_.emplace(conv, std::move(*chain));
    }
  }

  Graph run() {
    NodeId next = 0;
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>&) -> std::vector<ValueId> {
      const auto chain = chains_.find(next++);
      if (chain == chains_.end()) return {};
      return {rewrite(node, chain->second)};
    });
  }

 private:
  // The convolution that takes the chain over; -1 when there is none.
  NodeId next_conv(const AffineChain& chain) const {
    const ValueId last = graph_.node(chain.steps.back()).outputs[0];
    if (uses_[static_cast<size_t>(last)] != 1 || users_[static_cast<size_t>(last)].size() != 1) return -1;
    const NodeId id = users_[static_cast<size_t>(last)][0];
    const Node& conv = graph_.node(id);
    if (!is_op(&conv, "conv") || conv.inputs[0] != last || !constant_value(graph_, conv.inputs[1])) return -1;
    if (!same_shape(graph_.type(chain.start).shape, graph_.type(last).shape)) return -1;
    const bool adds_zeros = !all_of_list(conv, "pads_begin", 0) || !all_of_list(conv, "pads_end", 0) ||
                            !all_of_list(conv, "input_dilations", 1);
    return chain.affine.shifts() && adds_zeros ? -1 : id;
  }

  ValueId rewrite(const Node& conv, const AffineChain& chain) {
    const Tensor& weights = *constant_value(graph_, conv.inputs[1]);
    const Ints& dims = weights.dims();
    const int64_t groups = conv.attrs.get_int("groups");
    Affine affine = chain.affine;
    affine.widen(static_cast<size_t>(dims[1] * groups));
    Tensor scaled(weights.dtype(), dims);
    std::vector<double> shifts(static_cast<size_t>(dims[0]), 0.0);
    const int64_t window = dims[0] > 0 && dims[1] > 0 ? weights.num_elements() / (dims[0] * dims[1]) : 0;
    for (int64_t i = 0; i < weights.num_elements(); ++i) {
      const int64_t out = i / (window * dims[1]), in = i / window % dims[1];
      const auto channel = static_cast<size_t>(out / (dims[0] / groups) * dims[1] + in);
      const double w = weights.get_double(i);
      scaled.set_double(i, w * affine.scale[channel]);
      shifts[static_cast<size_t>(out)] += w * affine.shift[channel];
    }
    const std::string& name = graph_.value(conv.outputs[0]).name;
    std::vector<std::string> locs;
    for (const NodeId step : chain.steps) locs.push_back(graph_.node(step).loc);
    locs.push_back(conv.loc);
    Graph& target = rewriter_.target();
    GraphBuilder builder(target);
    builder.set_loc(join_locs(locs));
    if (ctx_.remarks)
      ctx_.remarks->done("fold_batch_norm_forward", builder.loc(),
                         "scales and shifts by constants are in the weights and bias of the convolution behind them");
    const ValueId folded = add_constant(target, ctx_.ops, std::move(scaled), name + ".weights", builder.loc());
    const bool shifted = affine.shifts();
    const ValueId result =
        builder.add(*conv.op, {rewriter_.mapped(chain.start), folded}, conv.attrs, shifted ? name + ".conv" : name);
    if (!shifted) return result;
    Ints shape(dims.size() - 1, 1);
    shape[0] = dims[0];
    Tensor shift(weights.dtype(), shape);
    for (size_t i = 0; i < shifts.size(); ++i) shift.set_double(static_cast<int64_t>(i), shifts[i]);
    const ValueId constant = add_constant(target, ctx_.ops, std::move(shift), name + ".shift", builder.loc());
    return builder.add(ctx_.ops.get("add"), {result, constant}, {}, name);
  }

  const Graph& graph_;
  const PassContext& ctx_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<int> uses_;
  GraphRewriter rewriter_;
  std::map<NodeId, AffineChain> chains_;  // by the convolution that takes each
};

}  // namespace

Graph fold_batch_norm_forward(const Graph& graph, const PassContext& ctx) { return Folder(graph, ctx).run(); }

}  // namespace tessera::inline graph_passes
