#include "loop/loop_range.h"

#include <unordered_set>

namespace tessera::inline loop {

bool changes_range(const Stmt& loop, const Stmt& by) {
  std::unordered_set<const Buffer*> read;
  for (const Expr& e : {loop->begin, loop->extent})
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad) read.insert(node->buffer.get());
    });
  if (read.empty()) return false;
  bool changed = false;
  const auto is_change = [&](const Stmt& s) { return s->kind == StmtKind::kStore && read.count(s->buffer.get()) > 0; };
  walk(by, [&](const Stmt& s) { changed |= is_change(s); }, nullptr);
  return changed;
}

}  // namespace tessera::inline loop
