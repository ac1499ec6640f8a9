// Buffers whose values all fit a narrower type are stored in it.
//
// Where every kernel that writes an arena buffer of f32 ends in a conversion from bf16 or f16, or one of i32 in a
// conversion from i8 or u8, the buffer holds the narrow values and its readers convert. So does a weight whose every
// value is one of that type, of the other type of 8 bits, or of i16, where a sum multiplies it with such a buffer. Constants of
// i64 that multiply numbers of i32 are stored as i32 where they fit: fixed-point scales. Nothing changes but bytes:
// results are the same bit for bit.
#pragma once

#include "program/program.h"

namespace tessera::inline lower {

// REQUIRES: lowered and not scheduled: kernels are naive loops of their definitions, and each is called once.
void narrow_values(Program& program);

}  // namespace tessera::inline lower
