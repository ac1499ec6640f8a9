#include "schedule/fusion/join_sweeps.h"

#include <optional>

#include "arith/simplify.h"

namespace tessera::inline schedule {
namespace {

void flatten(const Stmt& s, std::vector<Stmt>& list) {
  if (s->kind != StmtKind::kSeq) return list.push_back(s);
  for (const Stmt& child : s->stmts) flatten(child, list);
}

std::vector<Stmt> flattened(const Stmt& s) {
  std::vector<Stmt> list;
  flatten(s, list);
  return list;
}

bool loads_only_at(const Expr& e, const Buffer* buffer, const std::vector<Expr>& indices) {
  bool ok = true;
  walk(e, [&](const Expr& node) {
    if (node->kind != ExprKind::kLoad || node->buffer.get() != buffer) return;
    for (size_t i = 0; i < indices.size(); ++i) ok &= structurally_equal(simplify(node->operands[i]), indices[i]);
  });
  return ok;
}

bool touches(const Stmt& s, const Buffer* buffer) {
  bool found = false;
  walk(
      s, [&](const Stmt& node) { found |= node->buffer.get() == buffer; },
      [&](const Expr& e) { found |= e->kind == ExprKind::kLoad && e->buffer.get() == buffer; });
  return found;
}

// The two loops as one; null when they are not alike.
Stmt joined_loop(const Stmt& first, const Stmt& second, const Buffer* between) {
  if (first->kind != StmtKind::kFor || second->kind != StmtKind::kFor || first->for_kind != second->for_kind ||
      first->buffer || second->buffer)
    return {};
  const auto extent = as_int(first->extent), begin = as_int(first->begin);
  if (!extent || !begin || as_int(second->extent) != extent || as_int(second->begin) != begin) return {};
  const Stmt& body = first->stmts[0];
  const Stmt other = substitute(second->stmts[0], {{second->var.get(), first->var}});
  if (first->for_kind == ForKind::kSerial) {
    const Stmt inner = joined_loop(body, other, between);
    return inner ? for_loop(first->var, first->begin, first->extent, ForKind::kSerial, inner) : Stmt();
  }
  if (first->for_kind != ForKind::kVectorized || body->kind != StmtKind::kStore || other->kind != StmtKind::kStore ||
      body->buffer.get() != between || other->buffer->scope != MemoryScope::kRegister)
    return {};
  std::vector<Expr> at;
  for (const Expr& index : body->indices) at.push_back(simplify(index));
  if (!loads_only_at(body->value, between, at) || !loads_only_at(other->value, between, at)) return {};
  return seq({first, second});
}

}  // namespace

Stmt join_sweeps(const Stmt& first, const Stmt& second, const Buffer* between) {
  if (second->kind == StmtKind::kAlloc) {
    const Stmt inner = join_sweeps(first, second->stmts[0], between);
    return inner ? alloc(second->buffer, inner) : Stmt();
  }
  if (second->kind != StmtKind::kSeq) return {};
  const std::vector<Stmt> writes = flattened(first);
  std::vector<Stmt> list = flattened(second);
  size_t at = 0;
  while (at < list.size() && !touches(list[at], between)) ++at;
  if (at + writes.size() > list.size()) return {};
  for (size_t i = 0; i < list.size(); ++i) {
    const bool inside = i >= at && i < at + writes.size();
    if (!inside && touches(list[i], between)) return {};
    if (inside && !(list[i] = joined_loop(writes[i - at], list[i], between))) return {};
  }
  return seq(std::move(list));
}

}  // namespace tessera::inline schedule
