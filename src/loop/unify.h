// Unification of a nest of loops with a pattern, which is a loop program:
// - the pattern's parameters stand for places in buffers: each for one buffer, different ones for different buffers;
// - its symbols stand for numbers: extents of loops, and strides where a parameter's shape uses them;
// - its loops run from 0; the nest's may begin anywhere, and be of any kind but parallel.
// Everything else must be the same: statements, operators, numbers and types, and how each loop steps through each
// buffer's memory. Operands of commutative operators may change places, and an fma of the nest stands for a sum with a
// product of the pattern. A pattern is made of loops, sequences and stores, and its indices are affine.
//
// What a loop steps by through a buffer, or how long it is, may be a multiple of a symbol and a number besides: `st` is
// 3 where the pattern has (2 * st) + 1 and the nest 7. A number among a nest's values is an *immediate* where the
// pattern has a symbol, or the conversion of one. PatternRules say what else must hold, and what may be otherwise.
//
// Two parameters that the pattern only reads may be one buffer. Different places of what it stores to are different
// elements of the nest's buffer, whatever the strides are.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline loop {

// Beside the pattern; parameters, symbols and loops by their names in it.
struct PatternRules {
  // Where buffers must be. Of a parameter that is in neither set it does not count.
  std::set<std::string> in_registers, in_memory;
  // The pattern reads such a parameter everywhere; the nest may read 0 where a condition does not hold, which loads
  // nothing: select(condition, x[..], 0).
  std::set<std::string> padded;
  // The nest may read 16-bit floats and convert them.
  std::set<std::string> widened;
  // What symbols may be, both ends included.
  std::map<std::string, std::pair<int64_t, int64_t>> ranges;
  // Symbols that only say how large a parameter is, which the nest need not tell.
  std::set<std::string> open;
  // The nest is the whole of what the pattern has: kinds of loops are as they stand there (a serial one may be
  // unrolled), extents are at least 1, and loops begin at 0, those of these names at any number that is not negative.
  bool exact = false;
  std::set<std::string> shifted;
  // Elements are of any type as wide as the pattern's: they are moved.
  bool any_type = false;
};

// Where a parameter of the pattern lies: the nest's first access of it, while all loops of the nest are at their begin
// (`first`), and in terms of the pattern's loop variables (`at`). `pattern_at`: the pattern's access that this answers.
struct PatternRegion {
  BufferPtr buffer;
  std::vector<Expr> first, at, pattern_at;
  // Of a padded parameter: where it is read, in terms of the pattern's loop variables; null: everywhere.
  Expr inside = {};
};

// A load of the pattern, the nest's that stands for it, and that one with its conversion or condition, if it has one.
struct PatternLoad {
  const Buffer* param;
  Expr load, value;
};

struct PatternMatch {
  std::string problem;                 // empty: the nest matches
  std::vector<PatternRegion> regions;  // for each parameter; without a buffer where the pattern does not use it
  std::vector<int64_t> symbols;        // values, in the pattern's order; 0 for open ones
  std::vector<Stmt> loops;             // the nest's, in the order of the pattern's loops in the text
  std::vector<PatternLoad> loads;      // in the order in which expressions are read, operands from first to last
};

PatternMatch unify(const LoopProgram& pattern, const Stmt& nest, const PatternRules& rules = {});

// Why the program cannot be a pattern; empty when it can.
std::string pattern_problem(const LoopProgram& program);

// Without loops of one iteration, but parallel ones.
Stmt without_single_iterations(const Stmt& s);

// Number of loops that stand directly in each other at the top of the statement.
size_t nest_depth(const Stmt& s);

}  // namespace tessera::inline loop
