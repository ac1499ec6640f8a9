#include <algorithm>
#include <unordered_map>

#include "graph/control_flow.h"
#include "graph_passes/fusion/concat_in_place.h"
#include "graph_passes/fusion/fuse_groups.h"
#include "graph_passes/fusion/merge_matmuls.h"
#include "graph_passes/layout/assign_layouts.h"
#include "graph_passes/layout/conv1x1_to_matmul.h"
#include "graph_passes/layout/merge_conv_groups.h"
#include "graph_passes/layout/pre_pad_conv.h"
#include "graph_passes/pass.h"
#include "graph_passes/quantized/byte_activations.h"
#include "graph_passes/quantized/cancel_quantisation.h"
#include "graph_passes/quantized/copy_dequantisations.h"
#include "graph_passes/quantized/hoist_zero_points.h"
#include "graph_passes/quantized/lower_precision.h"
#include "graph_passes/quantized/lower_qdq_matmul.h"
#include "graph_passes/quantized/scale_sums_once.h"
#include "graph_passes/rewrite/cse.h"
#include "graph_passes/rewrite/dce.h"
#include "graph_passes/rewrite/decompose.h"
#include "graph_passes/rewrite/fold_batch_norm.h"
#include "graph_passes/rewrite/fold_batch_norm_forward.h"
#include "graph_passes/rewrite/fold_constants.h"
#include "graph_passes/rewrite/fold_pads.h"
#include "graph_passes/rewrite/hoist_loop_invariants.h"
#include "graph_passes/rewrite/lower_conv_transpose.h"
#include "graph_passes/rewrite/propagate_transposes.h"
#include "graph_passes/rewrite/raise_to_composites.h"
#include "graph_passes/rewrite/separate_max_pool.h"
#include "graph_passes/rewrite/simplify_algebra.h"
#include "graph_passes/rewrite/sink_casts.h"
#include "graph_passes/rewrite/sink_reshapes.h"
#include "graph_passes/rewrite/split_resizes.h"
#include "graph_passes/rewrite/trim_taps.h"
#include "graph_passes/rewrite/unroll_loops.h"

namespace tessera::inline graph_passes {
namespace {

constexpr GraphPass kPipeline[] = {
    {"cancel_quantisation", "Leaves bytes that are dequantised and quantised again as they were", 1, Numerics::kExact,
     cancel_quantisation},
    {"decompose", "Replaces composites by their primitives, those excepted that passes know", 0, Numerics::kExact,
     decompose},
    {"lower_qdq_matmul", "Makes products of dequantised bytes products of bytes, where the machine multiplies such", 1,
     Numerics::kRounding, lower_qdq_matmul},
    {"fold_constants", "Evaluates nodes whose operands are constants", 1, Numerics::kExact, fold_constants},
    {"unroll_loops", "Writes loops of few iterations out", 1, Numerics::kExact, unroll_loops},
    {"dce", "Removes nodes that no output needs", 0, Numerics::kExact, dce},
    {"simplify_algebra", "Removes nodes that change nothing and merges neighbours", 1, Numerics::kRounding,
     simplify_algebra, true},
    {"cse", "Merges equal nodes", 1, Numerics::kExact, cse},
    {"hoist_loop_invariants", "Computes before a loop what all its iterations would compute alike", 1, Numerics::kExact,
     hoist_loop_invariants},
    {"raise_to_composites", "Puts operators together that an exporter took apart", 2, Numerics::kRounding,
     raise_to_composites},
    {"sink_casts", "Moves casts to where they convert least", 2, Numerics::kExact, sink_casts},
    {"propagate_transposes", "Moves transposes until they meet and cancel", 2, Numerics::kExact, propagate_transposes},
    {"sink_reshapes", "Moves reshapes behind what is computed element by element", 2, Numerics::kExact, sink_reshapes},
    {"fold_pads", "Turns pads into the padding of convolutions and pooling", 1, Numerics::kExact, fold_pads},
    {"merge_matmuls", "Makes one product of those that share their left operand", 2, Numerics::kExact, merge_matmuls},
    {"fold_batch_norm_forward", "Merges scales and shifts by constants into the convolutions behind them", 1,
     Numerics::kRounding, fold_batch_norm_forward},
    {"fold_batch_norm", "Merges scales and shifts by constants into convolutions", 1, Numerics::kRounding,
     fold_batch_norm},
    {"decompose_all", "Replaces the composites that are left", 0, Numerics::kExact, decompose_all},
    {"lower_conv_transpose", "Turns transposed convolutions without overlap into 1x1 convolutions", 1,
     Numerics::kRounding, lower_conv_transpose},
    {"trim_taps", "Takes out of filters what only ever meets padding", 1, Numerics::kExact, trim_taps},
    {"lower_precision", "Rounds what convolutions and products read to the precision that was asked for", 0,
     Numerics::kAlgorithm, lower_precision},
    {"byte_activations", "Rounds what products with weights in blocks read to bytes, where that was asked for", 0,
     Numerics::kAlgorithm, byte_activations},
    {"hoist_zero_points", "Takes zero points out of products of bytes, where the machine multiplies them", 1,
     Numerics::kExact, hoist_zero_points},
    {"split_resizes", "Turns an interpolation along several dimensions into one along each", 2, Numerics::kRounding,
     split_resizes},
    {"separate_max_pool", "Turns the maximum over a wide window into one along each of its dimensions", 2,
     Numerics::kExact, separate_max_pool},
    {"conv1x1_to_matmul", "Makes 1x1 convolutions that stand alone products of matrices", 2, Numerics::kExact,
     conv1x1_to_matmul},
    {"merge_conv_groups", "Joins groups of convolutions that are narrower than a block of channels", 2,
     Numerics::kRounding, merge_conv_groups},
    {"pre_pad_conv", "Pads images before convolutions whose windows have many columns", 1, Numerics::kExact,
     pre_pad_conv},
    {"simplify_algebra", "Removes nodes that change nothing and merges neighbours", 1, Numerics::kRounding,
     simplify_algebra, true},
    {"fold_constants", "Evaluates nodes whose operands are constants", 1, Numerics::kExact, fold_constants},
    {"scale_sums_once", "Scales sums of products of bytes by one multiply-add before they become bytes", 1,
     Numerics::kRounding, scale_sums_once},
    {"cse", "Merges equal nodes", 1, Numerics::kExact, cse},
    {"dce", "Removes nodes that no output needs", 0, Numerics::kExact, dce},
    {"assign_layouts", "Gives images the channel-blocked layout that kernels want", 2, Numerics::kRounding,
     assign_layouts},
    {"dce", "Removes nodes that no output needs", 0, Numerics::kExact, dce},
    {"concat_in_place", "Makes concatenations and slices of contiguous parts views", 1, Numerics::kExact,
     concat_in_place},
    {"copy_dequantisations", "Gives each reader of weights in blocks a dequantisation of its own", 1, Numerics::kExact,
     copy_dequantisations},
    {"fuse_groups", "Collects the nodes that become one kernel", 1, Numerics::kExact, fuse_groups},
};

using Rewritten = std::unordered_map<GraphPtr, GraphPtr>;  // regions, by what they were

Graph rewrite_all(const GraphPass& pass, const Graph& graph, const PassContext& ctx, Rewritten& rewritten) {
  Graph result = pass.rewrite(graph, ctx);
  for (NodeId id = 0; id < std::ssize(result.nodes()); ++id) {
    if (!is_control_flow(result.node(id))) continue;
    for (GraphPtr& region : result.node(id).regions) {
      auto known = rewritten.find(region);
      if (known == rewritten.end()) {
        auto made = std::make_shared<const Graph>(rewrite_all(pass, *region, ctx, rewritten));
        known = rewritten.emplace(region, std::move(made)).first;
      }
      region = known->second;
    }
  }
  return result;
}

}  // namespace

Graph GraphPass::run(const Graph& graph, const PassContext& ctx) const {
  Rewritten rewritten;
  return rewrite_all(*this, graph, ctx, rewritten);
}

std::span<const GraphPass> graph_pipeline() { return kPipeline; }

const GraphPass* find_graph_pass(std::string_view name) {
  const auto it =
      std::find_if(std::begin(kPipeline), std::end(kPipeline), [&](const GraphPass& p) { return p.name == name; });
  return it == std::end(kPipeline) ? nullptr : it;
}

}  // namespace tessera::inline graph_passes
