#include "schedule/primitives/dependence.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "schedule/primitives/linear_system.h"
#include "schedule/primitives/loop_tree.h"

namespace tessera::inline schedule {
namespace {

class Collector {
 public:
  std::vector<Access> run(const LoopProgram& program) {
    visit(program.body);
    return std::move(found_);
  }

 private:
  void add(const Stmt& s, const Buffer* buffer, const std::vector<Expr>& indices, bool is_write) {
    Access access{s, buffer, indices, is_write, loops_, conditions_, position_, 0};
    if (const auto it = depths_.find(buffer); it != depths_.end()) access.private_depth = it->second;
    found_.push_back(std::move(access));
  }
  void loads(const Stmt& s, const Expr& e) {
    if (!e) return;
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad) add(s, node->buffer.get(), node->operands, false);
    });
  }
  void visit(const Stmt& s) {
    ++position_;
    for (const Expr* e : {&s->begin, &s->extent, &s->condition, &s->value}) loads(s, *e);
    for (const Expr& index : s->indices) loads(s, index);
    switch (s->kind) {
      case StmtKind::kStore: add(s, s->buffer.get(), s->indices, true); return;
      case StmtKind::kFor: loops_.push_back(s); break;
      case StmtKind::kAlloc: depths_[s->buffer.get()] = loops_.size(); break;
      default: break;
    }
    for (size_t i = 0; i < s->stmts.size(); ++i) {
      if (s->kind == StmtKind::kIf) conditions_.emplace_back(s->condition, i == 0);
      visit(s->stmts[i]);
      if (s->kind == StmtKind::kIf) conditions_.pop_back();
    }
    if (s->kind == StmtKind::kFor) loops_.pop_back();
  }

  std::vector<Access> found_;
  std::vector<Stmt> loops_;
  std::vector<std::pair<Expr, bool>> conditions_;
  std::unordered_map<const Buffer*, size_t> depths_;
  int position_ = 0;
};

// Constraints of two accesses at once; each has its own iteration.
class ConflictSystem {
 public:
  struct Side {
    std::unordered_map<const ExprNode*, int> vars;
    std::unordered_map<const ExprNode*, std::optional<LinearForm>> known;  // quotients by node
  };

  int fresh() { return next_++; }

  std::optional<LinearForm> linear(Side& side, const Expr& e) {
    if (const auto c = as_int(e)) return LinearForm{*c, {}};
    if (e->kind == ExprKind::kVar) {
      if (const auto it = side.vars.find(e.get()); it != side.vars.end()) return LinearForm::variable(it->second);
      // A symbol: the same on both sides.
      const auto [it, is_new] = symbols_.try_emplace(e.get(), next_);
      next_ += is_new;
      return LinearForm::variable(it->second);
    }
    if (e.dtype() != DType::kI64 || e->kind != ExprKind::kBinary) return std::nullopt;
    const Expr& a = e->operands[0];
    const Expr& b = e->operands[1];
    switch (e->binary) {
      case BinaryOp::kAdd:
      case BinaryOp::kSub: {
        auto x = linear(side, a);
        const auto y = linear(side, b);
        if (!x || !y || !x->add(*y, e->binary == BinaryOp::kAdd ? 1 : -1)) return std::nullopt;
        return x;
      }
      case BinaryOp::kMul: {
        const auto ca = as_int(a);
        const auto cb = as_int(b);
        if (!ca && !cb) return std::nullopt;
        const auto x = linear(side, cb ? a : b);
        LinearForm scaled;
        if (!x || !scaled.add(*x, cb ? *cb : *ca)) return std::nullopt;
        return scaled;
      }
      case BinaryOp::kFloorDiv:
      case BinaryOp::kFloorMod: {
        const auto divisor = as_int(b);
        if (!divisor || *divisor <= 0) return std::nullopt;
        const auto it = side.known.find(e.get());
        if (it != side.known.end()) return it->second;
        auto result = divided(side, a, *divisor, e->binary == BinaryOp::kFloorDiv);
        side.known.emplace(e.get(), result);
        return result;
      }
      default: return std::nullopt;
    }
  }

  // e >= 0
  void not_negative(std::optional<LinearForm> form) {
    if (form) system_.require_not_negative(std::move(*form));
  }
  // a - b - slack >= 0
  void at_least(std::optional<LinearForm> a, const std::optional<LinearForm>& b, int64_t slack) {
    if (!a || !b || !a->add(*b, -1) || !a->add({1, {}}, -slack)) return;
    system_.require_not_negative(std::move(*a));
  }
  void equal(std::optional<LinearForm> a, const std::optional<LinearForm>& b) {
    if (a && b && a->add(*b, -1)) system_.require_zero(std::move(*a));
  }

  void loop(Side& side, const Stmt& s, int var) {
    const LinearForm v = LinearForm::variable(var);
    const auto begin = linear(side, s->begin);
    at_least(v, begin, 0);
    upper(side, v, s->begin, s->extent);
  }

  void condition(Side& side, const Expr& e, bool holds) {
    if (e->kind == ExprKind::kUnary && e->unary == UnaryOp::kNot) return condition(side, e->operands[0], !holds);
    if (e->kind != ExprKind::kBinary) return;
    const Expr& a = e->operands[0];
    const Expr& b = e->operands[1];
    if (e->binary == (holds ? BinaryOp::kAnd : BinaryOp::kOr)) {
      condition(side, a, holds);
      condition(side, b, holds);
      return;
    }
    if (a.dtype() != DType::kI64) return;
    const auto x = linear(side, a);
    const auto y = linear(side, b);
    const BinaryOp op = e->binary;
    if (op == (holds ? BinaryOp::kLt : BinaryOp::kGe)) at_least(y, x, 1);
    if (op == (holds ? BinaryOp::kLe : BinaryOp::kGt)) at_least(y, x, 0);
    if (op == (holds ? BinaryOp::kGt : BinaryOp::kLe)) at_least(x, y, 1);
    if (op == (holds ? BinaryOp::kGe : BinaryOp::kLt)) at_least(x, y, 0);
    if (op == (holds ? BinaryOp::kEq : BinaryOp::kNe)) equal(x, y);
  }

  bool may_have_solution() const { return system_.may_have_solution(); }

 private:
  std::optional<LinearForm> divided(Side& side, const Expr& dividend, int64_t divisor, bool quotient) {
    const auto x = linear(side, dividend);
    if (!x) return std::nullopt;
    // x = divisor * q + r with 0 <= r < divisor
    const LinearForm q = LinearForm::variable(fresh());
    LinearForm r = *x;
    if (!r.add(q, -divisor)) return std::nullopt;
    LinearForm room{divisor - 1, {}};
    if (!room.add(r, -1)) return std::nullopt;
    system_.require_not_negative(r);
    system_.require_not_negative(std::move(room));
    return quotient ? q : r;
  }

  // v < begin + extent; an extent that is a minimum bounds by each of its operands.
  void upper(Side& side, const LinearForm& v, const Expr& begin, const Expr& extent) {
    if (extent->kind == ExprKind::kBinary && extent->binary == BinaryOp::kMin) {
      upper(side, v, begin, extent->operands[0]);
      upper(side, v, begin, extent->operands[1]);
      return;
    }
    at_least(linear(side, begin + extent), v, 1);
  }

  LinearSystem system_;
  std::unordered_map<const ExprNode*, int> symbols_;
  int next_ = 0;
};

}  // namespace

std::vector<Access> accesses_of(const LoopProgram& program) { return Collector().run(program); }

size_t common_loops(const Access& a, const Access& b) {
  size_t n = 0;
  while (n < a.loops.size() && n < b.loops.size() && a.loops[n].same_node(b.loops[n])) ++n;
  return n;
}

bool same_reduction(const Access& a, const Access& b) {
  return a.stmt.same_node(b.stmt) && a.stmt->kind == StmtKind::kStore && a.buffer == a.stmt->buffer.get() &&
         b.buffer == a.buffer && is_reduction_update(a.stmt);
}

bool may_conflict(const Access& a, const Access& b, const std::vector<Relation>& relations, bool ignore_conditions) {
  if (a.buffer != b.buffer || (!a.is_write && !b.is_write)) return false;
  const size_t common = common_loops(a, b);
  ConflictSystem system;
  ConflictSystem::Side sides[2];
  const Access* accesses[] = {&a, &b};
  for (size_t i = 0; i < common; ++i) {
    Relation relation = i < relations.size() ? relations[i] : Relation::kAny;
    if (i < a.private_depth) {
      if (relation == Relation::kLess || relation == Relation::kGreater) return false;
      relation = Relation::kEqual;
    }
    const ExprNode* var = a.loops[i]->var.get();
    const int first = system.fresh();
    sides[0].vars[var] = first;
    sides[1].vars[var] = relation == Relation::kEqual ? first : system.fresh();
    const LinearForm x = LinearForm::variable(sides[0].vars[var]);
    const LinearForm y = LinearForm::variable(sides[1].vars[var]);
    if (relation == Relation::kLess) system.at_least(y, x, 1);
    if (relation == Relation::kGreater) system.at_least(x, y, 1);
  }
  for (int s = 0; s < 2; ++s) {
    for (const Stmt& loop : accesses[s]->loops) {
      const auto [it, fresh] = sides[s].vars.try_emplace(loop->var.get(), -1);
      if (fresh) it->second = system.fresh();
      system.loop(sides[s], loop, it->second);
    }
    if (!ignore_conditions)
      for (const auto& [condition, holds] : accesses[s]->conditions) system.condition(sides[s], condition, holds);
  }
  for (size_t d = 0; d < a.indices.size(); ++d)
    system.equal(system.linear(sides[0], a.indices[d]), system.linear(sides[1], b.indices[d]));
  return system.may_have_solution();
}

}  // namespace tessera::inline schedule
