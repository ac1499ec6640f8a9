// The rules of loop/stmt.h, checked. Each violation names the kernel, the statement and the rule:
// "kernel conv_0: acc[p, l] = ...: index 1 of acc is 0..16, outside its extent 16".
//
// - Variables and buffers are used inside what defines them; each has one definition in the program.
// - Expressions are well typed; accesses have one i64 index per dimension; stored values have the buffer's type.
// - Loops are over i64; parallel loops are not nested; unrolled and vectorized loops have constant extents.
// - Allocations are local or register; those in registers have constant shapes.
// - A tensorized body matches its intrinsic's pattern.
// - No access is provably outside its buffer. Only accesses that certainly happen are judged (no condition around them,
//   loops with constant extents): what conditions guard is left to the interpreter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline loop {

// Empty when the program is legal.
std::vector<std::string> verify(const LoopProgram& program);
// InternalError with the violations, naming the pass that broke the program.
void verify_or_throw(const LoopProgram& program, std::string_view after_pass);

}  // namespace tessera::inline loop
