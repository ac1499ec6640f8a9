#include "loop_passes/simplify_loops.h"

#include <algorithm>

#include "arith/int_ops.h"
#include "loop/loop_range.h"
#include "support/error.h"

namespace tessera::inline loop_passes {
namespace {

void narrow_var(Bounds& bounds, const Var& var, const Interval& by) {
  Interval known = bounds.of(var.get());
  if (by.lo && (!known.lo || *known.lo < *by.lo)) known.lo = by.lo;
  if (by.hi && (!known.hi || *known.hi > *by.hi)) known.hi = by.hi;
  if (known.lo && known.hi && *known.lo > *known.hi) return;  // unreachable code: keep what is consistent
  bounds.set(var, known);
}

// Learns from `difference` <= 0.
void learn_not_positive(Bounds& bounds, const Expr& difference) {
  const Expr sum = simplify(difference, bounds);
  std::vector<Var> vars;
  walk(sum, [&](const Expr& node) {
    if (node->kind == ExprKind::kVar && node.dtype() == DType::kI64) vars.push_back(node);
  });
  const Bounds before = bounds;
  for (const Var& var : vars) {
    const auto c = linear_coefficient(sum, var, before);
    if (!c || *c == 0 || *c == INT64_MIN) continue;
    const Interval rest = bounds_of(sum - var * Expr(*c), before);
    if (!rest.lo || *rest.lo == INT64_MIN) continue;
    // c * var <= -rest.lo
    if (*c > 0) narrow_var(bounds, var, {std::nullopt, floor_div(-*rest.lo, *c)});
    else narrow_var(bounds, var, {-floor_div(-*rest.lo, -*c), std::nullopt});
  }
}

void learn(Bounds& bounds, const Expr& condition, bool holds) {
  if (condition->kind == ExprKind::kUnary && condition->unary == UnaryOp::kNot)
    return learn(bounds, condition->operands[0], !holds);
  if (condition->kind != ExprKind::kBinary) return;
  const Expr& a = condition->operands[0];
  const Expr& b = condition->operands[1];
  if (condition->binary == (holds ? BinaryOp::kAnd : BinaryOp::kOr)) {
    learn(bounds, a, holds);
    learn(bounds, b, holds);
    return;
  }
  if (a.dtype() != DType::kI64) return;
  const BinaryOp op = condition->binary;
  const bool equal = (op == BinaryOp::kEq && holds) || (op == BinaryOp::kNe && !holds);
  if (equal || op == (holds ? BinaryOp::kLe : BinaryOp::kGt)) learn_not_positive(bounds, a - b);
  if (equal || op == (holds ? BinaryOp::kGe : BinaryOp::kLt)) learn_not_positive(bounds, b - a);
  if (op == (holds ? BinaryOp::kLt : BinaryOp::kGe)) learn_not_positive(bounds, a - b + Expr(1));
  if (op == (holds ? BinaryOp::kGt : BinaryOp::kLe)) learn_not_positive(bounds, b - a + Expr(1));
}

bool is_empty(const Stmt& s) { return s->kind == StmtKind::kSeq && s->stmts.empty(); }

Stmt simplify_in(const Stmt& s, const Bounds& bounds, bool tensorized_body) {
  switch (s->kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) stmts.push_back(simplify_in(child, bounds, tensorized_body));
      return seq(std::move(stmts));
    }
    case StmtKind::kStore: {
      std::vector<Expr> indices;
      for (const Expr& index : s->indices) indices.push_back(simplify(index, bounds));
      return store(s->buffer, std::move(indices), simplify(s->value, bounds));
    }
    case StmtKind::kIf: {
      const Expr condition = simplify(s->condition, bounds);
      Stmt then =
          is_false(condition) ? seq({}) : simplify_in(s->stmts[0], narrowed(bounds, condition, true), tensorized_body);
      Stmt otherwise;
      if (s->stmts.size() > 1 && !is_true(condition))
        otherwise = simplify_in(s->stmts[1], narrowed(bounds, condition, false), tensorized_body);
      if (otherwise && is_empty(otherwise)) otherwise = Stmt();
      // Expressions have no effects, so the condition can go with its branches.
      if (is_empty(then) && !otherwise) return seq({});
      return if_then(condition, std::move(then), std::move(otherwise));
    }
    case StmtKind::kAlloc: {
      Stmt body = simplify_in(s->stmts[0], bounds, tensorized_body);
      return is_empty(body) ? body : alloc(s->buffer, std::move(body));
    }
    case StmtKind::kTensorized: return tensorized(s->intrinsic, simplify_in(s->stmts[0], bounds, true));
    case StmtKind::kFor: break;
  }
  Expr begin = simplify(s->begin, bounds);
  Expr extent = simplify(s->extent, bounds);
  Bounds inner = bounds;
  if (tensorized_body) {
    // The pattern needs its loops and variables, also those that run once: pretend that they run twice.
    Interval range = loop_range(s, bounds);
    if (range.is_point()) range.hi = *range.hi + 1;
    inner.set(s->var, range);
    const Stmt loop = for_loop(s->var, begin, extent, s->for_kind, simplify_in(s->stmts[0], inner, true));
    return keep_prefetch(loop, s, [&](const Expr& index) { return simplify(index, inner); });
  }
  const Interval trips = bounds_of(extent, bounds);
  if (trips.hi && *trips.hi <= 0) return seq({});
  // One that prefetches stays: several around one body ask for several cache lines in each step.
  if (is_const_int(extent, 1) && !s->buffer && !changes_own_range(s))
    return simplify_in(substitute(s->stmts[0], {{s->var.get(), begin}}), bounds, false);
  inner.set(s->var, loop_range(s, bounds));
  Stmt body = simplify_in(s->stmts[0], inner, false);
  if (is_empty(body)) return body;
  const Stmt result = for_loop(s->var, std::move(begin), std::move(extent), s->for_kind, std::move(body));
  return keep_prefetch(result, s, [&](const Expr& index) { return simplify(index, inner); });
}

}  // namespace

Bounds narrowed(const Bounds& bounds, const Expr& condition, bool holds) {
  Bounds result = bounds;
  learn(result, condition, holds);
  return result;
}

Interval loop_range(const Stmt& loop, const Bounds& bounds) {
  return {bounds_of(loop->begin, bounds).lo, bounds_of(loop->begin + loop->extent - Expr(1), bounds).hi};
}

Stmt simplify_statement(const Stmt& s, const Bounds& bounds) { return simplify_in(s, bounds, false); }

LoopProgram simplify_loops(const LoopProgram& program, const LoopPassContext&) {
  LoopProgram result = program;
  Bounds bounds;
  for (const Var& symbol : program.symbols) bounds.set(symbol, Interval{0, std::nullopt});
  result.body = simplify_statement(program.body, bounds);
  return result;
}

}  // namespace tessera::inline loop_passes
