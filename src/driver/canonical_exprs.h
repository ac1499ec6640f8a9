// Expressions of several programs, numbered so that equal ones have equal numbers: what canonical_sizes.h compares.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline driver {

// A value that expressions load from by its flat place; equal ones are one object.
using LeafPtr = BufferPtr;

class CanonicalExprs {
 public:
  CanonicalExprs();

  // The value with this description, made when it is new.
  LeafPtr leaf(const std::string& key, DType dtype, int64_t count);
  int64_t number_of(const LeafPtr& leaf) const;

  // The variables of a value's places and of what is summed for each.
  const Var& place() const { return place_; }
  const Var& summed() const { return summed_; }

  // Simplified where `place` is below `count` and `summed` below `sum`.
  Expr tidy(const Expr& e, int64_t count, int64_t sum) const;
  static size_t nodes(const Expr& e);

  // Of an expression of place(), summed(), and leaves.
  int64_t number(const Expr& e);
  // Of loops over parameters; their names, kinds of loops and memory inside do not count.
  int64_t number(const Stmt& s, const std::vector<BufferPtr>& params);

 private:
  class Loops;

  int64_t number_of(const std::string& line) { return lines_.try_emplace(line, std::ssize(lines_)).first->second; }
  std::string line(const Expr& e);
  void split(const Expr& e, BinaryOp op, std::vector<int64_t>& terms);

  Var place_, summed_;
  std::map<std::string, LeafPtr> leaves_;
  std::unordered_map<const Buffer*, int64_t> leaf_numbers_;
  std::unordered_map<std::string, int64_t> lines_;
  std::unordered_map<const ExprNode*, int64_t> numbers_;
  std::vector<Expr> kept_;
};

}  // namespace tessera::inline driver
