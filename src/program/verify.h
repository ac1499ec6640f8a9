// The invariants of program.h, checked, those of its kernels included. Each violation names the program, the thing and
// the rule.
//
// - Buffers: sizes fit their types; views lie within their roots; `over` names an arena buffer of the same size that
//   no other takes over; inputs and outputs have their numbers in the signature; weights have contents of their size.
// - Calls: parameters have the types and physical shapes that the kernel declares; outputs are not inputs or weights of
//   the program, and share no bytes with the call's other parameters, except that an output may be, or be over, an
//   input when the kernel proves it safe.
// - Steps: they name each call once, in order; a condition is one bool, a count one i64; indices have names of their
//   own and are used inside their loops; carried values are of one size and type and carried once.
// - Bytes: nothing is read before it is written, or after another buffer has been written over it. This is found by
//   following every byte of memory from call to call, apart from the lifetimes that the memory plan goes by; into both
//   blocks of a branch, and through the block of a loop twice. Behind a branch counts what both blocks leave; behind a
//   loop, what its block writes. Every output of the program is written in full.
// - Once planned: offsets are multiples of 64 (of views: where their root says) and inside the arena or the weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

std::vector<std::string> verify(const Program& program);
// InternalError with the violations, naming the step that broke the program.
void verify_or_throw(const Program& program, std::string_view after_step);

}  // namespace tessera::inline program
