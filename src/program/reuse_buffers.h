// reuse_buffers: a kernel writes its result over an input that nobody needs after it, where its loops prove that safe
// (in_place.h): element-wise kernels, and what an epilogue adds to a convolution's sum. It saves memory, and the cache
// lines are there already.
//
// before:
//   program @main(%x) -> (%y) {
//     plan arena 0 weights 0 scratch 0
//     buffer %x: f32[8] input 0
//     buffer %y: f32[8] output 0
//     buffer %t: f32[8] arena
//     buffer %u: f32[8] arena
//     define rule "naive"
//     kernel @relu(x: f32[8]) -> (y: f32[8]) {
//       for i in 0..8 { y[i] = max(x[i], 0:f32) }
//     }
//     call @relu(%x, %t)
//     call @relu(%t, %u)
//     call @relu(%u, %y)
//   }
// after:
//   program @main(%x) -> (%y) {
//     plan arena 0 weights 0 scratch 0
//     buffer %x: f32[8] input 0
//     buffer %y: f32[8] output 0
//     buffer %t: f32[8] arena
//     buffer %u: f32[8] arena over %t
//     define rule "naive"
//     kernel @relu(x: f32[8]) -> (y: f32[8]) {
//       for i in 0..8 { y[i] = max(x[i], 0:f32) }
//     }
//     call @relu(%x, %t)
//     call @relu(%t, %u)
//     call @relu(%u, %y)
//   }
#pragma once

#include "program/program.h"

namespace tessera::inline program {

void reuse_buffers(Program& program);

}  // namespace tessera::inline program
