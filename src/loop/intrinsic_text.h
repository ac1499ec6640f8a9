// Tensor intrinsics that a text declares, and what stands for them in code:
//
//   intrinsic "user.axpy" {
//     needs "avx2"                            // features of the target; may be left out
//     shape [16, 1]                           // numbers for schedules (`lanes, depth = intrinsic(..)`)
//     pattern kernel @axpy(a: f32[], x: f32[16]) -> (y: f32[16]) {
//       for l in 0..16 { y[l] = (y[l] + (a[] * x[l])) }
//     }
//     call "axpy16" from "axpy.o"             // one of: call, body, emit
//     use always                              // of a call for a whole kernel; else only where it is measured faster
//   }
//
// - `call "SYMBOL" from "FILE"[, "FILE"]`: a C function in object files (.o, .a; what they need of each other and no
//   more) or shared libraries (.so, which must be there when the module is loaded). Files are relative to the text's
//   folder. What it is called with: loop/intrinsic.h.
// - `body kernel @..`: another loop program of the same parameters. What it allocates is in registers.
// - `emit "NAME"`: as the intrinsic NAME of the table, whose pattern it must match.
//
// Behind a pattern may stand what else must hold, or may be otherwise (PatternRules in loop/unify.h):
//
// - `register c`, `memory a, b`: where the nest's buffers must be;
// - `padded x`: the nest may read 0 instead, where a condition does not hold; the body then does so, too;
// - `range n 0..7`: what a symbol may be: an immediate of the instruction, a stride that it knows;
// - `moves`: elements may be of any type as wide (any_type).
//
// Those of the compiler's own table (target/*/intrinsics.cpp) say besides
//
// - `code NAME`: what a back end has for it (IntrinsicCode), instead of the three above;
// - `doc "TEXT"`; `registers N`: vectors of sums, of the second factor and one of the first that must fit;
// - several patterns, each followed by its rules: `exactly`, `shifted p`, `widened a` and `open A`;
// - `clears kernel @..`: the nest that clears the sums of tiles; `sums TYPE` of one without a pattern.
//
// Without `shape` the numbers are the constant extents of the pattern's loops.
#pragma once

#include <string>
#include <string_view>

#include "loop/intrinsic.h"

namespace tessera::inline loop {

// All declarations of a text. They live as long as the process; the same text gives the same ones again. UserErrors
// TSR-31xx of the text at file:line:column; TSR-3130 for what a declaration may not be, TSR-3131 for a file that is not
// there. Thread-safe.
Intrinsics parse_intrinsics(std::string_view text, const std::string& file);

// Those of a text of the compiler's own.
std::vector<TensorIntrinsic> parse_table_intrinsics(std::string_view text, const std::string& file);

// What a schedule gets as numbers.
std::vector<int64_t> intrinsic_shape(const TensorIntrinsic& intrinsic);

// For an intrinsic with a body: `tensorized`'s nest with the body in the pattern's place. REQUIRES: it matches.
Stmt intrinsic_body(const TensorIntrinsic& intrinsic, const Stmt& nest);

}  // namespace tessera::inline loop
