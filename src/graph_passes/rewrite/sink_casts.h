// sink_casts: casts go to where they convert least. Behind a reshape, transpose, slice, gather or concat when they
// widen (fewer bytes are moved), in front of a transpose when they narrow; behind a slice in any case. Comparisons and
// choices are made before the cast where it keeps every value. Pairs that meet are merged by simplify_algebra. The
// rules are data in the language of pattern.h, listed in docs/passes.md.
//
// before:
//   graph @main(%x: i32[2,3]) -> (%y: bool[1,3]) {
//     %zero = constant {value = dense<i64[] 0>} : i64[]
//     %a = cast(%x) {to = i64} : i64[2,3] loc("Cast_0")
//     %s = slice(%a) {sizes = [1, 3], starts = [1, 0], steps = [1, 1]} : i64[1,3] loc("Slice_1")
//     %y = lt(%s, %zero) : bool[1,3] loc("Less_2")
//   }
// after (dce):
//   graph @main(%x: i32[2,3]) -> (%y: bool[1,3]) {
//     %zero = constant {value = dense<i64[] 0>} : i64[]
//     %s.slice = slice(%x) {sizes = [1, 3], starts = [1, 0], steps = [1, 1]} : i32[1,3] loc("Cast_0+Slice_1")
//     %s = cast(%s.slice) {to = i64} : i64[1,3] loc("Cast_0+Slice_1")
//     %y = lt(%s, %zero) : bool[1,3] loc("Less_2")
//   }
#pragma once

#include "graph_passes/pass.h"
#include "graph_passes/rewrite/algebra_rules.h"

namespace tessera::inline graph_passes {

Graph sink_casts(const Graph& graph, const PassContext& ctx);
std::span<const AlgebraRule> cast_rules();

}  // namespace tessera::inline graph_passes
