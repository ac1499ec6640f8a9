#include "loop/loop_range.h"

#include <unordered_set>

namespace tessera {

bool changes_own_range(const Stmt& loop) {
  std::unordered_set<const Buffer*> read;
  for (const Expr& e : {loop->begin, loop->extent})
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad) read.insert(node->buffer.get());
    });
  if (read.empty()) return false;
  bool changed = false;
  walk(
      loop->stmts[0], [&](const Stmt& s) { changed |= s->kind == StmtKind::kStore && read.count(s->buffer.get()); },
      nullptr);
  return changed;
}

}  // namespace tessera
