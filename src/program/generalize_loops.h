// Loop programs of several sizes as one of all sizes.
#pragma once

#include <deque>
#include <vector>

#include "loop/stmt.h"
#include "program/generalize_exprs.h"

namespace tessera::inline program {

// Throws SizesDiffer.
class LoopGeneralizer {
 public:
  // `params` are those of the result. If the last program is that of the largest sizes, memory inside of it may depend
  // on the sizes.
  LoopGeneralizer(SizeFinder& finder, const std::vector<BufferPtr>& params, bool last_is_largest)
      : exprs_(finder), params_(params), last_is_largest_(last_is_largest) {}

  // A variable that stands in all programs and is defined by none of them.
  void same_var(const Var& var, size_t count) { exprs_.declare(std::vector<const Expr*>(count, &var)); }

  Stmt run(const std::vector<const LoopProgram*>& programs);

 private:
  using Stmts = std::vector<const Stmt*>;

  Stmt stmt(const Stmts& all);
  Stmt conditional(const Stmts& all);
  Stmt in_vectors(const Var& var, const Expr& begin, const Expr& extent, const Stmt& body);
  BufferPtr local(const std::vector<const BufferPtr*>& buffers);

  ExprGeneralizer exprs_;
  std::deque<Expr> kept_;
  const std::vector<BufferPtr>& params_;
  bool last_is_largest_;
};

}  // namespace tessera::inline program
