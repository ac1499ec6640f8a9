// Numbers that are rounded to bytes: by one addition instead of a rounding, a saturation and a conversion; as floats
// where they are read as floats; and without the division by a scale where a multiplication gives the same.
//
// before:  y[i] = cast:u8(min(max(round(x[i]) + 3:f32, 0:f32), 255:f32))
// after:   y[i] = cast:u8(bitcast:i32(min(select(x[i] > -3:f32, x[i], -3:f32), 252:f32) + 12582912:f32) + 3:i32)
//
// Rounding is monotone, so limits that are integers may be taken before it; 1.5 * 2^23 has room for no fraction, so a
// sum with it is the nearest integer, halves to even, in its lowest bits. NaN becomes 0, as in the conversion.
//
// before:  cast:u8(cast:i32(cast:i8(cast:i32(b) - 128:i32)) + 128:i32)    with a byte b without a sign
// after:   b
//
// before:  cast:f32(cast:i32(cast:u8(f)) - 3:i32) * s    with f as above
// after:   round(min(select(x[i] > -3:f32, x[i], -3:f32), 252:f32)) * s
//
// before:  (a * s + b * t) / u                           with a and b of at most 256 values each
// after:   fma(e, 1/u, e * (1/u's error))                with e = a * s + b * t, where all pairs of values were tried
//          fma(a, s/u, b * (t/u))                        where that is rounded to a byte, and all pairs give the same
//          one
//
// before:  min(max(x, 0:f32), 6:f32) / u                 with any x, where that is rounded to a byte
// after:   fma(x, 1/u, x * (1/u's error))                within the byte's limits: which goes on from byte to byte at
// the
//                                                        same x, as was tried
#pragma once

#include "loop_passes/pass.h"

namespace tessera::inline loop_passes {

LoopProgram byte_rounding(const LoopProgram& program, const LoopPassContext& ctx);

}  // namespace tessera::inline loop_passes
