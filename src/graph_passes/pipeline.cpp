#include <algorithm>

#include "graph_passes/assign_layouts.h"
#include "graph_passes/cse.h"
#include "graph_passes/dce.h"
#include "graph_passes/fold_batch_norm.h"
#include "graph_passes/fold_batch_norm_forward.h"
#include "graph_passes/fold_constants.h"
#include "graph_passes/fold_pads.h"
#include "graph_passes/fuse_groups.h"
#include "graph_passes/integer_products.h"
#include "graph_passes/lower_conv_transpose.h"
#include "graph_passes/lower_precision.h"
#include "graph_passes/merge_products.h"
#include "graph_passes/move_casts.h"
#include "graph_passes/move_reshapes.h"
#include "graph_passes/move_transposes.h"
#include "graph_passes/move_zero_points.h"
#include "graph_passes/multiply_pixels.h"
#include "graph_passes/open_composites.h"
#include "graph_passes/pad_wide_windows.h"
#include "graph_passes/pass.h"
#include "graph_passes/place_slices.h"
#include "graph_passes/recognize_composites.h"
#include "graph_passes/simplify_algebra.h"
#include "graph_passes/split_resizes.h"
#include "graph_passes/split_windows.h"
#include "graph_passes/widen_groups.h"

namespace tessera {
namespace {

constexpr GraphPass kPipeline[] = {
    {"open_composites", "Replaces composites by their primitives, those excepted that passes know", 0, open_composites},
    {"integer_products", "Makes products of dequantised bytes products of bytes, where the machine multiplies such", 1,
     integer_products},
    {"fold_constants", "Evaluates nodes whose operands are constants", 1, fold_constants},
    {"dce", "Removes nodes that no output needs", 0, dce},
    {"simplify_algebra", "Removes nodes that change nothing and merges neighbours", 1, simplify_algebra},
    {"cse", "Merges equal nodes", 1, cse},
    {"recognize_composites", "Puts operators together that an exporter took apart", 2, recognize_composites},
    {"move_casts", "Moves casts to where they convert least", 2, move_casts},
    {"move_transposes", "Moves transposes until they meet and cancel", 2, move_transposes},
    {"move_reshapes", "Moves reshapes behind what is computed element by element", 2, move_reshapes},
    {"fold_pads", "Turns pads into the padding of convolutions and pooling", 1, fold_pads},
    {"merge_products", "Makes one product of those that share their left operand", 2, merge_products},
    {"fold_batch_norm_forward", "Merges scales and shifts by constants into the convolutions behind them", 1,
     fold_batch_norm_forward},
    {"fold_batch_norm", "Merges scales and shifts by constants into convolutions", 1, fold_batch_norm},
    {"open_all_composites", "Replaces the composites that are left", 0, open_all_composites},
    {"lower_conv_transpose", "Turns transposed convolutions without overlap into 1x1 convolutions", 1,
     lower_conv_transpose},
    {"lower_precision", "Rounds what convolutions and products read to the precision that was asked for", 0,
     lower_precision},
    {"move_zero_points", "Takes zero points out of products of bytes, where the machine multiplies them", 1,
     move_zero_points},
    {"split_resizes", "Turns an interpolation along several dimensions into one along each", 2, split_resizes},
    {"split_windows", "Turns the maximum over a wide window into one along each of its dimensions", 2, split_windows},
    {"multiply_pixels", "Makes 1x1 convolutions that stand alone products of matrices", 2, multiply_pixels},
    {"widen_groups", "Joins groups of convolutions that are narrower than a block of channels", 2, widen_groups},
    {"pad_wide_windows", "Pads images before convolutions whose windows have many columns", 1, pad_wide_windows},
    {"simplify_algebra", "Removes nodes that change nothing and merges neighbours", 1, simplify_algebra},
    {"fold_constants", "Evaluates nodes whose operands are constants", 1, fold_constants},
    {"cse", "Merges equal nodes", 1, cse},
    {"dce", "Removes nodes that no output needs", 0, dce},
    {"assign_layouts", "Gives images the channel-blocked layout that kernels want", 2, assign_layouts},
    {"dce", "Removes nodes that no output needs", 0, dce},
    {"place_slices", "Makes concatenations and slices of contiguous parts views", 1, place_slices},
    {"fuse_groups", "Collects the nodes that become one kernel", 1, fuse_groups},
};

}  // namespace

std::span<const GraphPass> graph_pipeline() { return kPipeline; }

const GraphPass* find_graph_pass(std::string_view name) {
  const auto it =
      std::find_if(std::begin(kPipeline), std::end(kPipeline), [&](const GraphPass& p) { return p.name == name; });
  return it == std::end(kPipeline) ? nullptr : it;
}

}  // namespace tessera
