// fuse_groups: nodes that become one kernel move into one `group` node. A group has at most one reduction, to which
// elementwise nodes are attached behind (epilogue) and cheap ones in front (prologue), or is a set of injective nodes
// that are computed where their one result is. Such groups are then merged into groups with several results where that
// saves a pass over memory (merge_groups.h). Constants and views that feed several kernels stay outside; constants
// of one element are copied into the groups.
//
//  epilogue  From a reduction's result on, nodes join as long as every one is elementwise at the result's own index,
//            shape and layout, and all paths from the reduction meet again in one node (hard-swish reads its operand
//            twice). Later reductions choose first: of two convolutions that meet in an addition the later one takes
//            it.
//  injective Remaining nodes without a reduction, last first, join the group of all their readers, unless the reader
//            is a contraction or reads elements of theirs more than once and they are not cheap. Around look-ups that
//            read whole rows a transpose is a kernel of its own: inlined it would make single elements of the rows.
//
// Why the result has no cycles, before groups are merged: every node of a group other than the one that gives its
// result is read only inside the group. So whatever leaves a group leaves its result node, and inside a group every
// node leads to it; a cycle of groups would be a cycle through their result nodes in the graph, which has none. (A node
// outside a group that lies between two of its nodes would be a reader outside of the first of them.)
//
// before:
//   graph @main(%x: f32[1,3,8,8], %w: f32[4,3,1,1]) -> (%y: f32[1,4,8,8]) {
//     %c = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,4,8,8] loc("Conv_0")
//     %zero = constant {value = dense<f32[] 0>} : f32[]
//     %y = max(%c, %zero) : f32[1,4,8,8] loc("Relu_1")
//   }
// after:
//   graph @main(%x: f32[1,3,8,8], %w: f32[4,3,1,1]) -> (%y: f32[1,4,8,8]) {
//     %y = group(%x, %w) ({
//       graph @group(%x: f32[1,3,8,8], %w: f32[4,3,1,1]) -> (%y: f32[1,4,8,8]) {
//         %c = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                            pads_end = [0, 0], strides = [1, 1]} : f32[1,4,8,8] loc("Conv_0")
//         %zero = constant {value = dense<f32[] 0>} : f32[]
//         %y = max(%c, %zero) : f32[1,4,8,8] loc("Relu_1")
//       }
//     }) : f32[1,4,8,8] loc("Conv_0+Relu_1")
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

// Remarks: for two neighbouring nodes that are not in one group, the reason; for every group of several nodes, which.
Graph fuse_groups(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
