#include "loop_passes/byte_exprs.h"

#include <utility>
#include <vector>

namespace tessera::inline loop_passes {

Stmt rewrite_statements(const Stmt& s, const std::function<Stmt(const Stmt&)>& change) {
  const auto inner = [&](size_t i) { return rewrite_statements(s->stmts[i], change); };
  switch (s->kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (size_t i = 0; i < s->stmts.size(); ++i) stmts.push_back(inner(i));
      return seq(std::move(stmts));
    }
    case StmtKind::kStore: {
      const Stmt other = change(s);
      return other ? other : s;
    }
    case StmtKind::kIf: return if_then(s->condition, inner(0), s->stmts.size() > 1 ? inner(1) : Stmt());
    case StmtKind::kAlloc: return alloc(s->buffer, inner(0));
    case StmtKind::kTensorized: return s;
    case StmtKind::kFor: break;
  }
  if (const Stmt other = change(s)) return other;
  const Stmt loop = for_loop(s->var, s->begin, s->extent, s->for_kind, inner(0));
  return keep_prefetch(loop, s, [](const Expr& index) { return index; });
}

}  // namespace tessera::inline loop_passes
