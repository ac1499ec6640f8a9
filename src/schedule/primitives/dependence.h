// Which accesses of a loop program may touch the same element, and in which order iterations would have to be for it.
// The answers are conservative: "no" is a proof, "yes" may be wrong where an index, a bound or a condition is not
// affine in loop variables and symbols (then it says nothing), or where only integers would rule a conflict out.
#pragma once

#include <string>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline schedule {

// A load or a store of one element, and where it stands.
struct Access {
  Stmt stmt;  // the store, or the `for` or `if` whose range or condition loads
  const Buffer* buffer = nullptr;
  std::vector<Expr> indices;
  bool is_write = false;
  std::vector<Stmt> loops;                        // around it, outermost first
  std::vector<std::pair<Expr, bool>> conditions;  // that hold (true) or fail (false) where it happens
  int position = 0;                               // of `stmt` in the text; a statement reads before it writes
  size_t private_depth = 0;  // the first so many loops are around the buffer's allocation: each iteration has its own
};

// In the order of the text.
std::vector<Access> accesses_of(const LoopProgram& program);

// How the iteration of one access lies to that of another at one of the loops that are around both.
enum class Relation : uint8_t { kAny, kEqual, kLess, kGreater };

// Whether `a` and `b` may touch the same element while the loops around both are related as given (missing ones: any).
// With `ignore_conditions` what `if`s rule out counts as possible.
bool may_conflict(const Access& a, const Access& b, const std::vector<Relation>& relations,
                  bool ignore_conditions = false);

size_t common_loops(const Access& a, const Access& b);

// Whether the two belong to one reduction (the same y[i] = y[i] + v), whose updates may happen in any order.
bool same_reduction(const Access& a, const Access& b);

}  // namespace tessera::inline schedule
