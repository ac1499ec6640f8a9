// Splits loops at the places where conditions on their variable change, so that inside each piece the conditions are
// constants: padding and concatenation lose the selects of their inner loops, tails their masks.
//
//   for i in 0..8 {                                              for i in 0..3 { y[i] = a[i] }
//     y[i] = select((i < 3), a[i], b[(i - 3)])                   for i_1 in 3..8 { y[i_1] = b[(i_1 - 3)] }
//   }
//
// A condition counts when it compares sums that are affine in the variable; what else it depends on may vary, then the
// piece where it is undecided keeps it. Serial loops become consecutive loops; in a parallel loop the pieces become
// branches of one `if` chain, because every parallel loop costs a meeting of all threads. Vectorized and unrolled loops
// are never split. A split is made only when it removes a tenth of the work of the loop and the code does not grow out
// of proportion.
#pragma once

#include "loop/stmt.h"
#include "loop_passes/pass.h"

namespace tessera::inline loop_passes {

LoopProgram partition_loops(const LoopProgram& program, const LoopPassContext& ctx);

}  // namespace tessera::inline loop_passes
