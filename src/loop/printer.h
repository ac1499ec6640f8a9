// The text form of loop programs, readable like code; parser.h reads it back, and print -> parse -> print is
// identical.
//
//   kernel @scale<n>(x: f32[n,16]) -> (y: f32[n,16]) {
//     parallel for i in 0..n {
//       alloc acc: f32[16] register
//       vectorized for l in 0..16 { acc[l] = (x[i, l] * 2:f32) }
//       if (i < 4) { ... } else if (i < 7) { ... } else { ... }
//       let $0 = exp((acc[3] + 1:f32))
//       y[i, 0] = ($0 * $0)
//     }
//   }
//
// - `in A..B` is a loop over [A, B); `in A..+N` one of N iterations from A. Serial loops are plain `for`.
// - `for k in 0..8 prefetch w[(k * 16)] { ... }` asks for the cache line of that element in each iteration.
// - An allocation lives to the end of the braces around it.
// - `let $N = e` is textual sharing only: it stands before a statement and names a sub-expression that the statement
//   uses more than once (or that would be nested too deep); the expression is evaluated where it is used.
// - Names are made unique in the text (v, v_1, ...) and reduced to letters, digits and '_'; the program is unchanged.
#pragma once

#include <string>
#include <unordered_set>

#include "loop/stmt.h"

namespace tessera::inline loop {

std::string print(const LoopProgram& program);

// The name that the text gives to what wishes to be called `wish`: letters, digits and '_', no word of the language,
// and not yet in `taken`, which it then is.
std::string unique_name(const std::string& wish, std::unordered_set<std::string>& taken);

// One line that identifies a statement in messages: "for k in 0..64", "acc[p, l] = ...".
std::string summary(const Stmt& s);

}  // namespace tessera::inline loop
