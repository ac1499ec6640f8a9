// The text form of programs; parser.h reads it back, and print -> parse -> print is identical.
//
//   program @main(%x) -> (%y) {
//     plan arena 4096 weights 64 scratch 0
//     buffer %x: f32[1,3,8,8] input 0
//     buffer %y: f32[1,4,8,8] output 0
//     buffer %t: f32[1,4,8,8]{0,1/4,2,3,1%4} arena at 0
//     buffer %r: f32[256] arena at 0 alias %t
//     buffer %q: f32[64] arena at 256 alias %t from 256
//     buffer %s: f32[1,4,8,8]{0,1/4,2,3,1%4} arena at 0 over %t
//     buffer %w: f32[4] weight at 0 = dense<f32[4] 1 2 3 4>
//     define rule "naive" flops 512 bytes 1024 loc("Conv_0")
//     kernel @conv_0(x: ...) -> (y: ...) {
//       ...
//     }
//     call @conv_0(%x, %w, %t) loc("Conv_0")
//   }
//
// A value that lives from call to call stands behind `plan`, with its initial value unless that is zeros:
//
//     state "count" = %n
//
// A symbol that data give a value is declared with its bound, and a step binds it:
//
//     program @main[c upto 64](%x) -> (%y) {
//       ...
//       bind c = %count
//
// `define` says of the kernel behind it what is not in the kernel. `at` stands once memory is planned. A kernel's
// TensorProgram has no text form: a program that was read back cannot be scheduled again. Names that occur twice are
// told apart by a suffix.
#pragma once

#include <string>

#include "graph/printer.h"
#include "program/program.h"

namespace tessera::inline program {

std::string print(const Program& program, const PrintOptions& options = {});

}  // namespace tessera::inline program
