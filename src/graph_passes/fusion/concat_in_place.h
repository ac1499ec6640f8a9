// concat_in_place: concatenations and slices that move no bytes. Where the parts of a concat are contiguous in its
// buffer (graph/slices.h), the kernels that compute them write there, and the concat itself is nothing; likewise a
// contiguous slice of a stored tensor is a view of it. The pass marks such nodes with `in_place`; fusion leaves them
// alone, and lower_graph makes views of buffers. A concat that begins with the operands of an earlier one takes that as
// an operand (each step of a dense block is the one before and one more), so that all of them share one buffer.
//
// An output that is an input with more behind it (a cache of keys and values) is in place, too: given the same memory
// as the input, it needs no copy.
//
// Left as they are: concats of few parts that fuse with what reads them when these would have been computed there too,
// those of which most bytes would have to be copied (graph inputs, constants, parts of other concats), and slices of
// tensors that are computed element by element, which fuse instead.
//
// before:
//   graph @main(%x: f32[1,16,4,4], %w: f32[16,16,1,1], %v: f32[16,48,1,1]) -> (%y: f32[1,16,4,4],
//                                                                                     %z: f32[1,1,4,4]) {
//     %a = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,16,4,4]
//     %b = conv(%a, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                        pads_end = [0, 0], strides = [1, 1]} : f32[1,16,4,4]
//     %two = concat(%a, %b) {axis = 1} : f32[1,32,4,4]
//     %c = reduce_window(%b) {dilations = [1, 1], kind = "max", pads_begin = [1, 1], pads_end = [1, 1],
//                             strides = [1, 1], window = [3, 3]} : f32[1,16,4,4]
//     %three = concat(%a, %b, %c) {axis = 1} : f32[1,48,4,4]
//     %y = conv(%three, %v) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//                            pads_end = [0, 0], strides = [1, 1]} : f32[1,16,4,4]
//     %z = reduce(%two) {axes = [1], keepdims = true, kind = "sum"} : f32[1,1,4,4]
//   }
// after:
//   graph @main(%x: f32[1,16,4,4], %w: f32[16,16,1,1], %v: f32[16,48,1,1]) -> (%y: f32[1,16,4,4], %z: f32[1,1,4,4]) {
//     %a = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//         pads_end = [0, 0], strides = [1, 1]} : f32[1,16,4,4]
//     %b = conv(%a, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//         pads_end = [0, 0], strides = [1, 1]} : f32[1,16,4,4]
//     %two = concat(%a, %b) {axis = 1, in_place = 1} : f32[1,32,4,4]
//     %c = reduce_window(%b) {dilations = [1, 1], kind = "max", pads_begin = [1, 1], pads_end = [1, 1],
//         strides = [1, 1], window = [3, 3]} : f32[1,16,4,4]
//     %three = concat(%two, %c) {axis = 1, in_place = 1} : f32[1,48,4,4]
//     %y = conv(%three, %v) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
//         pads_end = [0, 0], strides = [1, 1]} : f32[1,16,4,4]
//     %z = reduce(%two) {axes = [1], keepdims = true, kind = "sum"} : f32[1,1,4,4]
//   }
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

Graph concat_in_place(const Graph& graph, const PassContext& ctx);

}  // namespace tessera::inline graph_passes
