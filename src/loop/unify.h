// Unification of a nest of loops with a pattern, which is a loop program:
// - the pattern's parameters stand for places in buffers: each for one buffer, different ones for different buffers;
// - its symbols stand for numbers: extents of loops, and strides where a parameter's shape uses them;
// - its loops run from 0; the nest's may begin anywhere, and be of any kind but parallel.
// Everything else must be the same: statements, operators, numbers and types, and how each loop steps through each
// buffer's memory. Operands of commutative operators may change places, and an fma of the nest stands for a sum with a
// product of the pattern. A pattern is made of loops, sequences and stores, and its indices are affine.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline loop {

// Where a parameter of the pattern lies: the nest's first access of it, while all loops of the nest are at their begin
// (`first`), and in terms of the pattern's loop variables (`at`). `pattern_at`: the pattern's access that this answers.
struct PatternRegion {
  BufferPtr buffer;
  std::vector<Expr> first, at, pattern_at;
};

struct PatternMatch {
  std::string problem;                 // empty: the nest matches
  std::vector<PatternRegion> regions;  // for each parameter; without a buffer where the pattern does not use it
  std::vector<int64_t> symbols;        // values, in the pattern's order
  std::vector<Stmt> loops;             // the nest's, in the order of the pattern's loops in the text
};

PatternMatch unify(const LoopProgram& pattern, const Stmt& nest);

// Why the program cannot be a pattern; empty when it can.
std::string pattern_problem(const LoopProgram& program);

// Without loops of one iteration, but parallel ones.
Stmt without_single_iterations(const Stmt& s);

// Number of loops that stand directly in each other at the top of the statement.
size_t nest_depth(const Stmt& s);

}  // namespace tessera::inline loop
