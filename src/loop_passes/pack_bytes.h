// pack_bytes: numbers that byte_rounding limits and rounds become bytes several vectors at a time, where the machine
// packs vectors with saturation: the limits cost nothing then, and there is one store for all.
//
// before:  unrolled for p in 0..6 { vectorized for l in 0..16 {
//            y[(p * 16) + l] = cast:u8(bitcast:i32(min(select(x > 0:f32, x, 0:f32), 200:f32) + 12582912:f32))
//          } }
// after:   unrolled for g in 0..1 {
//            alloc numbers: f32[64]
//            unrolled for p in 0..4 { vectorized for l in 0..16 { numbers[(p * 16) + l] = min(x, 200:f32) } }
//            tensorized "x86.avx512.pack.u8" { vectorized for l in 0..64 { y[(g * 64) + l] = (the pattern) numbers[l] }
//            }
//          }
//          unrolled for p in 4..6 { as before }
//
// Only loops whose vectors lie one behind the other: of an unrolled loop as above, or the rows of a tile, which may
// have vectors in several places.
//
// before:  for r in 0..32 { unrolled for v in 0..2 { vectorized for l in 0..16 { y[r * 16 + v * 4096 + l] = ... } } }
//
// after:   for g in 0..8 {
//            unrolled for v in 0..2 { alloc numbers: f32[64] ... y[g * 64 + v * 4096 + l] = ... }
//          }
#pragma once

#include "loop_passes/pass.h"

namespace tessera::inline loop_passes {

LoopProgram pack_bytes(const LoopProgram& program, const LoopPassContext& ctx);

}  // namespace tessera::inline loop_passes
