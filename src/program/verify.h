// The invariants of program.h, checked, those of its kernels included. Each violation names the program, the thing and
// the rule.
//
// - Buffers: sizes fit their types; aliases lead to a root of the same size; inputs and outputs have their numbers in
//   the signature; weights have contents of their size.
// - Calls: parameters have the types and physical shapes that the kernel declares; outputs are not inputs or weights of
//   the program, and share no bytes with the call's other parameters; nothing is read before it is written; every
//   output of the program is written.
// - Once planned: offsets are multiples of 64 and inside the arena or the weights; buffers alive together do not
// overlap.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tessera {

std::vector<std::string> verify(const Program& program);
// InternalError with the violations, naming the step that broke the program.
void verify_or_throw(const Program& program, std::string_view after_step);

}  // namespace tessera
