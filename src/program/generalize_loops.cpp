#include "program/generalize_loops.h"

#include <algorithm>

#include "arith/tensor_type.h"
#include "loop/intrinsic.h"

namespace tessera::inline program {
namespace {

template <typename Member>
auto each(const std::vector<const Stmt*>& all, Member member) {
  std::vector<decltype(&(all[0]->get()->*member))> result;
  for (const Stmt* s : all) result.push_back(&(s->get()->*member));
  return result;
}

std::vector<const Stmt*> children(const std::vector<const Stmt*>& all, size_t i) {
  std::vector<const Stmt*> result;
  for (const Stmt* s : all) result.push_back(&(*s)->stmts.at(i));
  return result;
}

bool same_but_for_threads(ForKind a, ForKind b) {
  const auto without = [](ForKind kind) { return kind == ForKind::kParallel ? ForKind::kSerial : kind; };
  return without(a) == without(b);
}

bool is_if(const Stmt* s) { return (*s)->kind == StmtKind::kIf && (*s)->stmts.size() == 1; }

}  // namespace

Stmt LoopGeneralizer::run(const std::vector<const LoopProgram*>& programs) {
  for (size_t p = 0; p < params_.size(); ++p) {
    std::vector<const BufferPtr*> own;
    for (const LoopProgram* program : programs) own.push_back(&program->params.at(p));
    exprs_.declare(own, params_[p]);
  }
  std::vector<const Stmt*> bodies;
  for (const LoopProgram* program : programs) bodies.push_back(&program->body);
  return stmt(bodies);
}

// A condition that holds for all places of some sizes is not there for those.
Stmt LoopGeneralizer::conditional(const Stmts& all) {
  std::vector<const Expr*> conditions;
  Stmts bodies;
  for (const Stmt* s : all) {
    Expr condition;
    for (; is_if(s); s = &(*s)->stmts[0])
      condition = condition ? logical_and(condition, (*s)->condition) : (*s)->condition;
    conditions.push_back(condition ? &kept_.emplace_back(condition) : nullptr);
    bodies.push_back(s);
  }
  const Expr condition = exprs_.expr(conditions);
  return if_then(condition, stmt(bodies));
}

// Memory inside a kernel is there for the largest sizes.
BufferPtr LoopGeneralizer::local(const std::vector<const BufferPtr*>& buffers) {
  const Buffer& first = **buffers[0];
  std::vector<int64_t> dims;
  bool same = true;
  for (const BufferPtr* b : buffers) {
    const auto own = static_dims((*b)->shape);
    if (!own || (!dims.empty() && own->size() != dims.size())) differ("other memory inside the kernel");
    same &= dims.empty() || dims == *own;
    if (dims.empty()) dims = *own;
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = std::max(dims[d], (*own)[d]);
  }
  if (!same && (!last_is_largest_ || first.scope == MemoryScope::kRegister))
    differ("memory inside the kernel whose size depends on the sizes");
  const BufferPtr result = make_buffer(first.name, first.dtype, make_shape(dims), first.scope);
  exprs_.declare(buffers, result);
  return result;
}

// A vectorized loop of an extent that is open: as many whole vectors as there are, then one step after the other.
Stmt LoopGeneralizer::in_vectors(const Var& var, const Expr& begin, const Expr& extent, const Stmt& body) {
  constexpr int64_t kLanes = 16;
  const Expr vectors = floordiv(extent, Expr(kLanes));
  const Var number = make_var(var->name + "v"), lane = make_var(var->name + "l"), rest = make_var(var->name + "r");
  const auto at = [&](const Expr& place) { return substitute(body, {{var.get(), begin + place}}); };
  return seq({for_loop(number, 0, vectors, ForKind::kSerial,
                       for_loop(lane, 0, kLanes, ForKind::kVectorized, at(number * Expr(kLanes) + lane))),
              for_loop(rest, 0, extent - vectors * Expr(kLanes), ForKind::kSerial, at(vectors * Expr(kLanes) + rest))});
}

Stmt LoopGeneralizer::stmt(const Stmts& all) {
  if (std::any_of(all.begin(), all.end(), is_if)) return conditional(all);
  const StmtNode& first = *all[0]->get();
  for (const Stmt* s : all)
    if ((*s)->kind != first.kind || (*s)->stmts.size() != first.stmts.size() ||
        !same_but_for_threads((*s)->for_kind, first.for_kind) || (*s)->intrinsic != first.intrinsic ||
        (first.kind != StmtKind::kFor && (*s)->indices.size() != first.indices.size()))
      differ("other loops");
  switch (first.kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (size_t i = 0; i < first.stmts.size(); ++i) stmts.push_back(stmt(children(all, i)));
      return seq(std::move(stmts));
    }
    case StmtKind::kFor: {
      const Expr begin = exprs_.expr(each(all, &StmtNode::begin));
      const Expr extent = exprs_.expr(each(all, &StmtNode::extent));
      exprs_.declare(each(all, &StmtNode::var));
      // Its copies are written out: how many there are is a number.
      if (first.for_kind == ForKind::kUnrolled && !as_int(extent)) differ("an unrolled loop of another extent");
      Stmt body = stmt(children(all, 0));
      if (first.for_kind == ForKind::kVectorized && !as_int(extent)) return in_vectors(first.var, begin, extent, body);
      // Where threads do not pay for all sizes, they are left out.
      const bool serial =
          std::any_of(all.begin(), all.end(), [](const Stmt* s) { return (*s)->for_kind == ForKind::kSerial; });
      return for_loop(first.var, begin, extent, serial ? ForKind::kSerial : first.for_kind, std::move(body));
    }
    case StmtKind::kIf: {
      const Expr condition = exprs_.expr(each(all, &StmtNode::condition));
      const Stmt then = stmt(children(all, 0));
      return if_then(condition, then, first.stmts.size() > 1 ? stmt(children(all, 1)) : Stmt());
    }
    case StmtKind::kStore: {
      std::vector<Expr> indices;
      for (size_t i = 0; i < first.indices.size(); ++i) {
        std::vector<const Expr*> same_index;
        for (const Stmt* s : all) same_index.push_back(&(*s)->indices[i]);
        indices.push_back(exprs_.expr(same_index));
      }
      return store(exprs_.buffer(each(all, &StmtNode::buffer)), std::move(indices),
                   exprs_.expr(each(all, &StmtNode::value)));
    }
    case StmtKind::kAlloc: {
      const BufferPtr buffer = local(each(all, &StmtNode::buffer));
      return alloc(buffer, stmt(children(all, 0)));
    }
    case StmtKind::kTensorized: {
      // With a stride that is open now it may not be the intrinsic's pattern any more.
      const Stmt body = stmt(children(all, 0));
      return match_intrinsic(*first.intrinsic, body).empty() ? tensorized(first.intrinsic, body) : body;
    }
  }
  throw InternalError("a statement of another kind");
}

}  // namespace tessera::inline program
