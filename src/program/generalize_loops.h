// Loop programs of several sizes as one of all sizes.
#pragma once

#include <deque>
#include <vector>

#include "loop/stmt.h"
#include "program/generalize_exprs.h"

namespace tessera {

// Throws SizesDiffer.
class LoopGeneralizer {
 public:
  // `params` are those of the result.
  LoopGeneralizer(SizeFinder& finder, const std::vector<BufferPtr>& params) : exprs_(finder), params_(params) {}

  // A variable that stands in all programs and is defined by none of them.
  void same_var(const Var& var, size_t count) { exprs_.declare(std::vector<const Expr*>(count, &var)); }

  Stmt run(const std::vector<const LoopProgram*>& programs);

 private:
  using Stmts = std::vector<const Stmt*>;

  Stmt stmt(const Stmts& all);
  Stmt conditional(const Stmts& all);

  ExprGeneralizer exprs_;
  std::deque<Expr> kept_;
  const std::vector<BufferPtr>& params_;
};

}  // namespace tessera
