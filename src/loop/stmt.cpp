#include "loop/stmt.h"

#include "support/error.h"

namespace tessera::inline loop {

const char* for_kind_name(ForKind kind) {
  static constexpr const char* kNames[] = {"serial",     "unrolled",   "vectorized",  "parallel",    "blockIdx.x",
                                           "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"};
  return kNames[static_cast<int>(kind)];
}

bool may_nest(ForKind outer, ForKind inner) {
  if (!is_concurrent(outer) || !is_concurrent(inner)) return true;
  if (outer == ForKind::kParallel || inner == ForKind::kParallel || outer == inner) return false;
  return !(is_thread_axis(outer) && is_block_axis(inner));
}

namespace {

std::shared_ptr<StmtNode> new_stmt(StmtKind kind) {
  auto node = std::make_shared<StmtNode>();
  node->kind = kind;
  return node;
}

}  // namespace

Stmt seq(std::vector<Stmt> stmts) {
  auto node = new_stmt(StmtKind::kSeq);
  for (Stmt& s : stmts) {
    if (!s) continue;
    if (s->kind == StmtKind::kSeq) node->stmts.insert(node->stmts.end(), s->stmts.begin(), s->stmts.end());
    else node->stmts.push_back(std::move(s));
  }
  if (node->stmts.size() == 1) return node->stmts[0];
  return Stmt(std::move(node));
}

Stmt for_loop(Var var, Expr begin, Expr extent, ForKind kind, Stmt body) {
  check(var && var->kind == ExprKind::kVar, "loop without a variable");
  auto node = new_stmt(StmtKind::kFor);
  node->var = std::move(var);
  node->begin = std::move(begin);
  node->extent = std::move(extent);
  node->for_kind = kind;
  node->stmts = {std::move(body)};
  return Stmt(std::move(node));
}

Stmt prefetching(const Stmt& loop, BufferPtr buffer, std::vector<Expr> indices) {
  if (loop->kind != StmtKind::kFor || loop->for_kind != ForKind::kSerial) return loop;
  check(buffer->shape.size() == indices.size(), "prefetch with a wrong number of indices of " + buffer->name);
  auto node = std::make_shared<StmtNode>(*loop.get());
  node->buffer = std::move(buffer);
  node->indices = std::move(indices);
  return Stmt(std::move(node));
}

Stmt keep_prefetch(const Stmt& loop, const Stmt& old, const std::function<Expr(const Expr&)>& rewrite_index) {
  if (old->kind != StmtKind::kFor || !old->buffer) return loop;
  std::vector<Expr> indices;
  for (const Expr& index : old->indices) indices.push_back(rewrite_index(index));
  return prefetching(loop, old->buffer, std::move(indices));
}

Stmt if_then(Expr condition, Stmt then, Stmt otherwise) {
  if (is_true(condition)) return then;
  if (is_false(condition)) return otherwise ? otherwise : seq({});
  auto node = new_stmt(StmtKind::kIf);
  node->condition = std::move(condition);
  node->stmts = {std::move(then)};
  if (otherwise) node->stmts.push_back(std::move(otherwise));
  return Stmt(std::move(node));
}

Stmt store(BufferPtr buffer, std::vector<Expr> indices, Expr value) {
  check(buffer->shape.size() == indices.size(), "store with a wrong number of indices to " + buffer->name);
  check(buffer->dtype == value.dtype(), "store of a value of another type to " + buffer->name);
  auto node = new_stmt(StmtKind::kStore);
  node->buffer = std::move(buffer);
  node->indices = std::move(indices);
  node->value = std::move(value);
  return Stmt(std::move(node));
}

Stmt alloc(BufferPtr buffer, Stmt body) {
  auto node = new_stmt(StmtKind::kAlloc);
  node->buffer = std::move(buffer);
  node->stmts = {std::move(body)};
  return Stmt(std::move(node));
}

Stmt tensorized(const TensorIntrinsic* intrinsic, Stmt body) {
  auto node = new_stmt(StmtKind::kTensorized);
  node->intrinsic = intrinsic;
  node->stmts = {std::move(body)};
  return Stmt(std::move(node));
}

Stmt transform(const Stmt& s, const std::function<Expr(const Expr&)>& rewrite_expr,
               const std::function<Stmt(const Stmt&)>& rewrite_stmt) {
  auto copy = std::make_shared<StmtNode>(*s.get());
  for (Stmt& child : copy->stmts) child = transform(child, rewrite_expr, rewrite_stmt);
  if (rewrite_expr) {
    for (Expr* e : {&copy->begin, &copy->extent, &copy->condition, &copy->value})
      if (*e) *e = transform(*e, rewrite_expr);
    for (Expr& index : copy->indices) index = transform(index, rewrite_expr);
  }
  Stmt result;
  // Through the constructors, so that folding and flattening happen.
  if (copy->kind == StmtKind::kSeq) result = seq(copy->stmts);
  else if (copy->kind == StmtKind::kIf)
    result = if_then(copy->condition, copy->stmts[0], copy->stmts.size() > 1 ? copy->stmts[1] : Stmt());
  else result = Stmt(std::move(copy));
  if (rewrite_stmt)
    if (Stmt replacement = rewrite_stmt(result)) return replacement;
  return result;
}

Stmt substitute(const Stmt& s, const VarMap& map) {
  return transform(
      s,
      [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kVar) return {};
        const auto it = map.find(node.get());
        return it == map.end() ? Expr() : it->second;
      },
      nullptr);
}

void walk(const Stmt& s, const std::function<void(const Stmt&)>& visit_stmt,
          const std::function<void(const Expr&)>& visit_expr) {
  if (visit_stmt) visit_stmt(s);
  if (visit_expr) {
    for (const Expr* e : {&s->begin, &s->extent, &s->condition, &s->value})
      if (*e) walk(*e, visit_expr);
    for (const Expr& index : s->indices) walk(index, visit_expr);
  }
  for (const Stmt& child : s->stmts) walk(child, visit_stmt, visit_expr);
}

}  // namespace tessera::inline loop
