// carry_in_place: what a loop carries from iteration to iteration is not copied. Where nobody reads the old contents
// once the new ones are being written (or the kernel that writes them proves it safe, in_place.h), the block writes the
// new contents over the old: the two are one buffer. Else, of whole arena buffers that are not tiny, the two change
// places after each iteration.
//
// before:
//   program @main(%x) -> (%h) {
//     plan arena 0 weights 0 scratch 0
//     index t < 9
//     buffer %x: f32[8] input 0
//     buffer %h: f32[8] output 0
//     buffer %a: f32[8] arena
//     buffer %h_next: f32[8] arena
//     define rule "naive"
//     kernel @copy(x: f32[8]) -> (y: f32[8]) {
//       for i in 0..8 { y[i] = x[i] }
//     }
//     define rule "naive"
//     kernel @turn(x: f32[8]) -> (y: f32[8]) {
//       for i in 0..8 { y[i] = x[(7 - i)] }
//     }
//     call @copy(%x, %h)
//     loop t < 9 carry %h = %h_next {
//       call @turn(%h, %a)
//       call @copy(%a, %h_next)
//     }
//   }
// after: the steps
//     call @copy(%x, %h)
//     loop t < 9 {
//       call @turn(%h, %a)
//       call @copy(%a, %h)
//     }
#pragma once

#include "program/program.h"

namespace tessera::inline program {

void carry_in_place(Program& program);

}  // namespace tessera::inline program
