// The conditions of algebra_rules.cpp. Names are those of the rules' patterns; what a condition gives to the
// replacement (attributes of labelled nodes, further values) stands beside it.
#pragma once

#include "graph_passes/support/pattern.h"

namespace tessera::inline graph_passes {

// ---- types: of the result, or of x ----
bool floats(Match& m);
bool ints(Match& m);
bool unsigned_ints(Match& m);
bool not_unsigned(Match& m);
bool wide(Match& m);  // f64, f32, integers: types whose rounding is far below what a network notices
bool x_bool(Match& m);
bool x_int(Match& m);

// ---- values ----
// Never negative and never -0, whatever the inputs are; NaN does not count. Looks at a few operators above `id`.
bool never_negative(const Graph& graph, ValueId id);
bool x_not_negative(Match& m);
bool wide_x_not_negative(Match& m);
bool constants_do_not_grow(Match& m);  // c and d broadcast to no more elements than the larger one has
bool d_not_above_c(Match& m);
bool sums_of_constants(Match& m);       // wide, finite, do not grow, and x has the result's shape
bool products_of_constants(Match& m);   // the same with 2^-60 <= |c|, |d| <= 2^60 for floats
bool quotients_of_constants(Match& m);  // products_of_constants on floats
bool powers_of_two(Match& m);

// ---- truth values ----
bool swap_arms(Match& m);       // gives y2 = z, z2 = y
bool cast_to_result(Match& m);  // gives k

// ---- moves ----
bool keeps_order(Match& m);
bool steps_forward(Match& m);
bool pads_nothing(Match& m);
bool keep_outer(Match& m);               // o: the outer node's attributes
bool compose_transposes(Match& m);       // o
bool transposes_only_ones(Match& m);     // o: a reshape
bool compose_slices(Match& m);           // o
bool compose_pads(Match& m);             // o
bool slice_inside_pad(Match& m);         // o
bool slice_of_one_piece(Match& m);       // o, p: the piece
bool flatten_concat(Match& m);           // o, the operands
bool join_neighbour_slices(Match& m);    // o, the operands
bool gather_one(Match& m);               // s, o
bool reduces_ones(Match& m);             // o: a reshape
bool inner_cast_keeps_values(Match& m);  // o
// Whether values of type `from` stay what they are, and distinct, as `to`.
bool cast_keeps_values(DType from, DType to);
bool skip_broadcast(Match& m);     // o, the operands
bool both_transposed(Match& m);    // p, o
bool worth_transposing(Match& m);  // p, o
bool turned_by_product(Match& m);  // p
bool swaps_factors(Match& m);      // p

}  // namespace tessera::inline graph_passes
