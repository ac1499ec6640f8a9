// assign_layouts: images get the layout their kernels want: channels in blocks of a vector register, so that one
// vector load fetches L channels of one pixel and neighbouring pixels follow each other. Where producer and consumer
// disagree, one `relayout` is inserted per value and layout. Applies to f32 values of ranks 3 to 5 of graphs with
// convolutions.
//
//   convolution (groups 1, depthwise, or groups of whole blocks)  reads and writes blocks; an operand of few channels
//                                                                 that is row-major already is read as it is
//   elementwise                                                   follows its blocked full-shape operands
//   channelwise (pooling, sums over space, resize)                follows its operand; blocks, too, when its result is
//                                                                 larger and a convolution reads it, at once or through
//                                                                 operators that follow their operands
//   concat of channels                                            blocks, when a piece is blocked and the result has
//                                                                 at least a block of channels
//   slice of channels                                             blocks, when it is whole blocks of a blocked image,
//                                                                 its last channels behind whole blocks, or at least a
//                                                                 block of channels
//   channels split in groups, turned and joined                   one `channel_shuffle`, when they are blocked
//   other operators without a reduction                           read any layout and write row-major
//   everything else, views, graph inputs and outputs              row-major
//
// before:
//   graph @main(%x: f32[1,16,8,8], %w: f32[32,16,1,1]) -> (%y: f32[1,8,8,32]) {
//     %c = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,32,8,8] loc("Conv_0")
//     %y = transpose(%c) {perm = [0, 2, 3, 1]} : f32[1,8,8,32] loc("Transpose_1")
//   }
// after (16 lanes):
//   graph @main(%x: f32[1,16,8,8], %w: f32[32,16,1,1]) -> (%y: f32[1,8,8,32]) {
//     %x.blocked = relayout(%x) {layout = {0,1/16,2,3,1%16}} : f32[1,16,8,8]{0,1/16,2,3,1%16} loc("Conv_0")
//     %c = conv(%x.blocked, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                                pads_end = [0, 0], strides = [1, 1]} : f32[1,32,8,8]{0,1/16,2,3,1%16} loc("Conv_0")
//     %y = transpose(%c) {perm = [0, 2, 3, 1]} : f32[1,8,8,32] loc("Transpose_1")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph assign_layouts(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
