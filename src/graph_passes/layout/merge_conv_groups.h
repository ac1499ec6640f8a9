// merge_conv_groups: convolutions in groups narrower than a block of channels (assign_layouts) get wider groups, with
// zeros in the weights between channels that were in different groups. Kernels compute whole blocks of output channels
// from whole blocks of input channels, so the zeros cost less than the groups did: 16 channels in groups of 4 take four
// times the products in vectors, where the groups left nothing but scalars. Where the groups do not come out even,
// those that are left over become a convolution of their own on a slice of the channels; element-by-element work with
// constants behind it is done on both parts, before they are put together.
//
// Applies to convolutions with static channels and neither one group nor one channel in each.
// Where a product with zero is not zero (an infinite or NaN pixel) the result differs, as with minimal filtering: such
// a pixel reaches the other channels of the wider group.
//
// before:
//   graph @main(%x: f32[1,32,8,8], %w: f32[32,8,3,3]) -> (%y: f32[1,32,8,8]) {
//     %y = conv(%x, %w) {dilations = [1, 1], groups = 4, input_dilations = [1, 1], pads_begin = [1, 1],
//                        pads_end = [1, 1], strides = [1, 1]} : f32[1,32,8,8]
//   }
// after (16 lanes):
//   graph @main(%x: f32[1,32,8,8], %w: f32[32,8,3,3]) -> (%y: f32[1,32,8,8]) {
//     %y.groups = reshape(%w) {shape = [2, 2, 8, 1, 72]} : f32[2,2,8,1,72]
//     %y.same_group = constant {value = dense<bool[2,1,2,1] true false false true>} : bool[2,1,2,1]
//     %y.zero = constant {value = dense<f32[] 0>} : f32[]
//     %y.wide = select(%y.same_group, %y.groups, %y.zero) : f32[2,2,8,2,72]
//     %y.weights = reshape(%y.wide) {shape = [32, 16, 3, 3]} : f32[32,16,3,3]
//     %y = conv(%x, %y.weights) {dilations = [1, 1], groups = 2, input_dilations = [1, 1], pads_begin = [1, 1],
//                                pads_end = [1, 1], strides = [1, 1]} : f32[1,32,8,8]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph merge_conv_groups(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
