// serpentine_order: calls of one kernel that read the same large weights one after another, as the steps of a recurrent
// network do, sweep over them in turns forwards and backwards. What a sweep read last is still in the cache when the
// next begins with it; sweeps in one direction evict, when the weights are a little larger than the cache, each line
// shortly before it is read again. (The order is known as boustrophedon, or serpentine.) The second direction is a copy
// of the kernel whose outermost loop counts down; its iterations are independent, so the values are the same.
// A call that is in a loop sweeps in turns from iteration to iteration: its kernel is given the loop's index.
// For programs of one thread: among several, who computes an iteration follows from its number, and the weights shall
// stay in the cache of the core that read them.
//
// before:
//   program @main(%x) -> (%y) {
//     plan arena 0 weights 0 scratch 0
//     buffer %x: f32[256] input 0
//     buffer %y: f32[256] output 0
//     buffer %w: f32[256,256] weight
//     buffer %t: f32[256] arena
//     define rule "naive"
//     kernel @step(x: f32[256], w: f32[256,256]) -> (y: f32[256]) {
//       parallel for i in 0..256 {
//         y[i] = 0:f32
//         for k in 0..256 { y[i] = (y[i] + (x[k] * w[i, k])) }
//       }
//     }
//     call @step(%x, %w, %t)
//     call @step(%t, %w, %y)
//   }
// after: another kernel, and the second call of it
//     define rule "naive"
//     kernel @step_backwards(x: f32[256], w: f32[256,256]) -> (y: f32[256]) {
//       parallel for i in 0..256 {
//         y[(255 - i)] = 0:f32
//         for k in 0..256 { y[(255 - i)] = (y[(255 - i)] + (x[k] * w[(255 - i), k])) }
//       }
//     }
//     call @step(%x, %w, %t)
//     call @step_backwards(%t, %w, %y)
#pragma once

#include "program/program.h"
#include "target/target.h"

namespace tessera::inline program {

void serpentine_order(Program& program, const Target& target);

}  // namespace tessera::inline program
