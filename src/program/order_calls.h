// order_calls: brings calls into an order in which less memory is alive at once, each run of calls between branches and
// loops for itself. Finding the best order is NP-hard;
// three are compared, and the given one stays unless another has a lower peak:
//   - the given order;
//   - list scheduling: of the calls whose operands are there, the one after which least memory is alive (the usual
//     greedy heuristic of instruction schedulers that watch register pressure, with bytes for registers);
//   - depth first from the outputs, where of a call's operands the one comes first that needs most memory beyond its
//     result: optimal on trees of equal sizes by Sethi and Ullman, "The Generation of Optimal Code for Arithmetic
//     Expressions", J. ACM 17 (1970), and for sizes by Liu, "An Application of Generalized Tree Pebbling to Sparse
//     Matrix Factorization", SIAM J. Algebraic Discrete Methods 8 (1987), whose simpler form is used here.
//
// before:
//   program @main(%x) -> (%y) {
//     plan arena 0 weights 0 scratch 0
//     buffer %x: f32[64] input 0
//     buffer %y: f32[1] output 0
//     buffer %a: f32[64] arena
//     buffer %b: f32[64] arena
//     buffer %c: f32[1] arena
//     buffer %d: f32[1] arena
//     define rule "naive"
//     kernel @copy(x: f32[64]) -> (y: f32[64]) {
//       for i in 0..64 { y[i] = x[i] }
//     }
//     define rule "naive"
//     kernel @first(x: f32[64]) -> (y: f32[1]) {
//       y[0] = x[0]
//     }
//     define rule "naive"
//     kernel @add(x: f32[1], z: f32[1]) -> (y: f32[1]) {
//       y[0] = (x[0] + z[0])
//     }
//     call @copy(%x, %a)
//     call @copy(%x, %b)
//     call @first(%a, %c)
//     call @first(%b, %d)
//     call @add(%c, %d, %y)
//   }
// after: the calls
//     call @copy(%x, %a)
//     call @first(%a, %c)
//     call @copy(%x, %b)
//     call @first(%b, %d)
//     call @add(%c, %d, %y)
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

void order_calls(Program& program);

// Of a program without steps: for each call the calls that must run before it, since they write what it reads or
// overwrites, or read what it overwrites. Ascending, without repetitions. Views that do not overlap are independent.
std::vector<std::vector<int32_t>> call_dependencies(const Program& program);

}  // namespace tessera::inline program
