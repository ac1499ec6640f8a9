// Simplifies every index, condition and value with the bounds of the loops and conditions around it; drops loops that
// run zero times, replaces loops that run once by their body, and drops branches that are never taken.
//
//   for i in 0..4 {                            for i in 0..4 {
//     for j in 3..4 {                            y[i] = x[(i + 3)]
//       if (i + j < 9) {                       }
//         y[floordiv(i * 8, 8)] = x[i + j]
//       } else { y[i] = 0:f32 }
//     }
//   }
//
// The loops of a tensorized nest stay, so that it keeps matching its intrinsic's pattern.
#pragma once

#include "arith/simplify.h"
#include "loop/stmt.h"
#include "loop_passes/pass.h"

namespace tessera::inline loop_passes {

LoopProgram simplify_loops(const LoopProgram& program, const LoopPassContext& ctx);

// The same for a statement inside loops whose variables have these bounds.
Stmt simplify_statement(const Stmt& s, const Bounds& bounds);

// `bounds` narrowed by the knowledge that the bool expression holds (or, with `holds` false, does not).
Bounds narrowed(const Bounds& bounds, const Expr& condition, bool holds);

// The values that the variable of a loop takes.
Interval loop_range(const Stmt& loop, const Bounds& bounds);

}  // namespace tessera::inline loop_passes
