#include "loop/fresh.h"

namespace tessera::inline loop {
namespace {

struct Renaming {
  VarMap vars;
  std::unordered_map<const Buffer*, BufferPtr> buffers;

  Expr apply(const Expr& e) const {
    if (!e) return e;
    return transform(e, [&](const Expr& node) -> Expr {
      if (node->kind == ExprKind::kVar) {
        const auto it = vars.find(node.get());
        return it == vars.end() ? Expr() : it->second;
      }
      if (node->kind == ExprKind::kLoad) {
        const auto it = buffers.find(node->buffer.get());
        return it == buffers.end() ? Expr() : load(it->second, node->operands);
      }
      return {};
    });
  }
};

Stmt copy(const Stmt& s, Renaming& names) {
  auto node = std::make_shared<StmtNode>(*s.get());
  node->begin = names.apply(s->begin);
  node->extent = names.apply(s->extent);
  node->condition = names.apply(s->condition);
  node->value = names.apply(s->value);
  if (s->kind == StmtKind::kFor) {
    node->var = make_var(s->var->name, s->var.dtype());
    names.vars[s->var.get()] = node->var;
  }
  for (Expr& index : node->indices) index = names.apply(index);
  if (s->kind == StmtKind::kAlloc) {
    std::vector<Expr> shape;
    for (const Expr& dim : s->buffer->shape) shape.push_back(names.apply(dim));
    node->buffer = make_buffer(s->buffer->name, s->buffer->dtype, std::move(shape), s->buffer->scope);
    names.buffers[s->buffer.get()] = node->buffer;
  }
  if (s->kind == StmtKind::kStore || (s->kind == StmtKind::kFor && s->buffer))
    if (const auto it = names.buffers.find(s->buffer.get()); it != names.buffers.end()) node->buffer = it->second;
  for (Stmt& child : node->stmts) child = copy(child, names);
  return Stmt(std::move(node));
}

}  // namespace

Stmt with_fresh_definitions(const Stmt& s) {
  Renaming names;
  return copy(s, names);
}

}  // namespace tessera::inline loop
