#include "loop/unify.h"

#include <fmt/format.h>

#include "arith/int_ops.h"
#include "arith/simplify.h"
#include "loop/printer.h"

namespace tessera::inline loop {
namespace {

Expr flat_address(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr address = 0;
  for (size_t i = 0; i < indices.size(); ++i) address = address * buffer.shape[i] + indices[i];
  return address;
}

bool same_constant(const Expr& a, const Expr& b) {
  return a->dtype == b->dtype && a->int_value == b->int_value &&
         (a->float_value == b->float_value || (a->float_value != a->float_value && b->float_value != b->float_value));
}

constexpr int kMaxSteps = 20'000;

class Unifier {
 public:
  explicit Unifier(const LoopProgram& pattern) : pattern_(pattern) {
    for (size_t i = 0; i < pattern.params.size(); ++i) params_[pattern.params[i].get()] = i;
    state_.regions.resize(pattern.params.size());
  }

  PatternMatch run(const Stmt& nest) {
    PatternMatch match;
    if (!statement(pattern_.body, nest)) {
      match.problem = problem_;
      return match;
    }
    for (const Var& symbol : pattern_.symbols) {
      const auto it = state_.symbols.find(symbol.get());
      if (it == state_.symbols.end()) {
        match.problem = fmt::format("nothing says what {} is", symbol->name);
        return match;
      }
      match.symbols.push_back(it->second);
    }
    match.problem = place_outside();
    if (!match.problem.empty()) return match;
    for (Region& region : state_.regions) match.regions.push_back(std::move(region.found));
    for (const auto& [var, loop] : state_.loops) match.loops.push_back(loop);
    return match;
  }

 private:
  struct Region {
    PatternRegion found;
    Expr base;  // flat address while loops are at their begin, less the pattern's own
  };
  // What is bound so far; copied where there is a choice.
  struct State {
    std::vector<Region> regions;
    std::unordered_map<const ExprNode*, int64_t> symbols;
    std::vector<std::pair<Var, Stmt>> loops;  // the pattern's variable, the nest's loop; all so far
    std::vector<size_t> open;                 // those around the current place
  };

  // With what the symbols stand for, the first place of the pattern that is outside of its buffer, whose elements would
  // not be different ones; empty when there is none.
  std::string place_outside() const {
    VarMap numbers;
    for (const auto& [symbol, number] : state_.symbols) numbers[symbol] = Expr(number);
    const auto known = [&](const Expr& e) { return simplify(substitute(e, numbers)); };
    Bounds bounds;
    std::string problem;
    const auto check = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
      for (size_t d = 0; d < indices.size(); ++d) {
        const Interval at = bounds_of(known(indices[d]), bounds);
        const auto extent = as_int(known(buffer.shape[d]));
        if (problem.empty() && (!at.lo || !at.hi || !extent || *at.lo < 0 || *at.hi >= *extent))
          problem = fmt::format("places of {} would meet: {} of them lie in steps of {}", buffer.name,
                                at.hi ? *at.hi + 1 : 0, extent.value_or(0));
      }
    };
    const std::function<void(const Stmt&)> visit = [&](const Stmt& s) {
      if (s->kind == StmtKind::kFor)
        bounds.set(s->var, Interval{0, std::max<int64_t>(as_int(known(s->extent)).value_or(1), 1) - 1});
      if (s->kind == StmtKind::kStore) {
        check(*s->buffer, s->indices);
        walk(s->value, [&](const Expr& e) {
          if (e->kind == ExprKind::kLoad) check(*e->buffer, e->operands);
        });
      }
      for (const Stmt& child : s->stmts) visit(child);
    };
    visit(pattern_.body);
    return problem;
  }

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  // `value` for an extent or stride `e` of the pattern.
  bool bind_number(const Expr& e, int64_t value, const std::string& what) {
    VarMap known;
    for (const Var& symbol : pattern_.symbols)
      if (const auto it = state_.symbols.find(symbol.get()); it != state_.symbols.end())
        known[symbol.get()] = Expr(it->second);
    const Expr left = simplify(substitute(e, known));
    if (const auto number = as_int(left))
      return *number == value || fail(fmt::format("{} is {}, where the pattern has {}{}", what, value, *number,
                                                  as_int(e) ? "" : " for " + to_string(e)));
    if (left->kind != ExprKind::kVar)
      return fail(fmt::format("{} is {}, and {} is not known yet", what, value, to_string(left)));
    state_.symbols[left.get()] = value;
    return true;
  }

  bool statement(const Stmt& p, const Stmt& s) {
    if (p->kind != s->kind) return fail(fmt::format("'{}' stands where the pattern has '{}'", text(s), text(p)));
    switch (p->kind) {
      case StmtKind::kSeq: {
        if (p->stmts.size() != s->stmts.size())
          return fail(fmt::format("{} statements stand where the pattern has {}", s->stmts.size(), p->stmts.size()));
        for (size_t i = 0; i < p->stmts.size(); ++i)
          if (!statement(p->stmts[i], s->stmts[i])) return false;
        return true;
      }
      case StmtKind::kFor: {
        const auto extent = as_int(s->extent);
        if (is_concurrent(s->for_kind)) return fail(fmt::format("'{}' is {}", text(s), for_kind_name(s->for_kind)));
        if (!extent) return fail(fmt::format("'{}' has no constant extent", text(s)));
        if (!bind_number(p->extent, *extent, fmt::format("the extent of '{}'", text(s)))) return false;
        state_.open.push_back(state_.loops.size());
        state_.loops.emplace_back(p->var, s);
        if (!statement(p->stmts[0], s->stmts[0])) return false;
        state_.open.pop_back();
        return true;
      }
      case StmtKind::kStore: return access(*p->buffer, p->indices, s->buffer, s->indices) && value(p->value, s->value);
      default: return fail(fmt::format("'{}' cannot be part of a pattern", text(p)));
    }
  }

  bool access(const Buffer& p, const std::vector<Expr>& p_indices, const BufferPtr& s,
              const std::vector<Expr>& s_indices) {
    const size_t number = params_.at(&p);
    Region& region = state_.regions[number];
    if (region.found.buffer && region.found.buffer != s)
      return fail(
          fmt::format("{} stands where {} stood for the pattern's {}", s->name, region.found.buffer->name, p.name));
    if (s->dtype != p.dtype)
      return fail(
          fmt::format("{} is {}, the pattern's {} is {}", s->name, dtype_name(s->dtype), p.name, dtype_name(p.dtype)));
    if (!region.found.buffer)
      for (const Region& other : state_.regions)
        if (other.found.buffer == s)
          return fail(fmt::format("{} stands for two different buffers of the pattern", s->name));
    const Expr p_address = flat_address(p, p_indices);
    const Expr s_address = flat_address(*s, s_indices);
    VarMap p_zero, at_begin, renamed;
    for (const size_t i : state_.open) {
      const auto& [var, loop] = state_.loops[i];
      p_zero[var.get()] = Expr(0);
      at_begin[loop->var.get()] = loop->begin;
      renamed[loop->var.get()] = loop->begin + var;
    }
    const Expr p_rest = substitute(p_address, p_zero);
    for (const size_t i : state_.open) {
      const auto& [var, loop] = state_.loops[i];
      VarMap one = p_zero;
      one[var.get()] = Expr(1);
      const auto step = uses_var(s_address, loop->var) ? linear_coefficient(simplify(s_address), loop->var) : 0;
      if (!step) return fail(fmt::format("the address of {} is not affine in {}", s->name, loop->var->name));
      if (!bind_number(simplify(substitute(p_address, one) - p_rest), *step,
                       fmt::format("the step of {} through {}", loop->var->name, s->name)))
        return false;
    }
    VarMap symbols;
    for (const auto& [symbol, number_of] : state_.symbols) symbols[symbol] = Expr(number_of);
    const Expr base = simplify(substitute(s_address, at_begin) - substitute(p_rest, symbols));
    if (!region.found.buffer) {
      region.found.buffer = s;
      region.found.pattern_at = p_indices;
      for (const Expr& index : s_indices) {
        region.found.first.push_back(simplify(substitute(index, at_begin)));
        region.found.at.push_back(substitute(index, renamed));
      }
      region.base = base;
      return true;
    }
    if (!is_const_int(simplify(base - region.base), 0))
      return fail(fmt::format("two accesses of {} are not as far from each other as the pattern's", s->name));
    return true;
  }

  // Tries both; what the first has bound is forgotten when it fails.
  template <typename First, typename Second>
  bool either(const First& first, const Second& second) {
    const State before = state_;
    if (first()) return true;
    const std::string problem = problem_;
    state_ = before;
    if (second()) return true;
    problem_ = problem;
    return false;
  }

  bool value(const Expr& p, const Expr& e) {
    // Commutative operators in each other have very many orders.
    if (++steps_ > kMaxSteps) return fail("its expressions are too large");
    if (p->dtype != e->dtype)
      return fail(
          fmt::format("{} is {}, the pattern has {}", to_string(e), dtype_name(e.dtype()), dtype_name(p.dtype())));
    if (p->kind == ExprKind::kBinary && p->binary == BinaryOp::kAdd && e->kind == ExprKind::kFma) {
      const auto with = [&](const Expr& product, const Expr& other) {
        if (product->kind != ExprKind::kBinary || product->binary != BinaryOp::kMul)
          return fail(fmt::format("an fma stands where the pattern has {}", to_string(p)));
        return either(
            [&] {
              return value(product->operands[0], e->operands[0]) && value(product->operands[1], e->operands[1]) &&
                     value(other, e->operands[2]);
            },
            [&] {
              return value(product->operands[0], e->operands[1]) && value(product->operands[1], e->operands[0]) &&
                     value(other, e->operands[2]);
            });
      };
      return either([&] { return with(p->operands[1], p->operands[0]); },
                    [&] { return with(p->operands[0], p->operands[1]); });
    }
    if (p->kind == ExprKind::kVar) return variable(p, e);
    if (p->kind != e->kind)
      return fail(fmt::format("'{}' stands where the pattern has '{}'", to_string(e), to_string(p)));
    switch (p->kind) {
      case ExprKind::kConst:
        return same_constant(p, e) ||
               fail(fmt::format("{} stands where the pattern has {}", to_string(e), to_string(p)));
      case ExprKind::kLoad: return access(*p->buffer, p->operands, e->buffer, e->operands);
      case ExprKind::kUnary:
        if (p->unary != e->unary)
          return fail(fmt::format("{} stands where the pattern has {}", unary_name(e->unary), unary_name(p->unary)));
        return operands(p, e, false);
      case ExprKind::kBinary:
        if (p->binary != e->binary)
          return fail(
              fmt::format("{} stands where the pattern has {}", binary_name(e->binary), binary_name(p->binary)));
        if (commutes(p->binary))
          return either([&] { return operands(p, e, false); }, [&] { return operands(p, e, true); });
        return operands(p, e, false);
      default: return operands(p, e, false);
    }
  }

  bool variable(const Expr& p, const Expr& e) {
    for (const size_t i : state_.open) {
      const auto& [var, loop] = state_.loops[i];
      if (!var.same_node(p)) continue;
      return is_const_int(simplify(e - (loop->var - loop->begin)), 0) ||
             fail(fmt::format("{} stands where the pattern has {}", to_string(e), p->name));
    }
    const auto number = as_int(e);
    return number ? bind_number(p, *number, to_string(e))
                  : fail(fmt::format("{} stands where the pattern has {}", to_string(e), p->name));
  }

  bool operands(const Expr& p, const Expr& e, bool swapped) {
    if (p->operands.size() != e->operands.size()) return fail("an operator with another number of operands");
    for (size_t i = 0; i < p->operands.size(); ++i)
      if (!value(p->operands[i], e->operands[swapped ? p->operands.size() - 1 - i : i])) return false;
    return true;
  }

  static std::string text(const Stmt& s) { return s->kind == StmtKind::kSeq ? "several statements" : summary(s); }

  const LoopProgram& pattern_;
  std::unordered_map<const Buffer*, size_t> params_;
  State state_;
  int steps_ = 0;
  std::string problem_;
};

}  // namespace

PatternMatch unify(const LoopProgram& pattern, const Stmt& nest) { return Unifier(pattern).run(nest); }

std::string pattern_problem(const LoopProgram& program) {
  std::string problem;
  std::vector<Var> loops;
  const auto affine = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
    VarMap zero;
    for (const Var& var : loops) zero[var.get()] = Expr(0);
    const Expr address = flat_address(buffer, indices);
    bool loads = false;
    walk(address, [&](const Expr& e) { loads |= e->kind == ExprKind::kLoad; });
    if (loads) problem = fmt::format("{} is indexed by what is loaded", buffer.name);
    // Affine: the steps between neighbours are the same everywhere.
    for (const Var& var : loops) {
      VarMap other = zero;
      other.erase(var.get());
      const auto at = [&](int64_t i) {
        VarMap map = other;
        map[var.get()] = Expr(i);
        return substitute(address, map);
      };
      if (!is_const_int(simplify(at(1) - at(0) - (at(6) - at(5))), 0))
        problem = fmt::format("the address of {} is not affine in {}", buffer.name, var->name);
    }
  };
  const std::function<void(const Stmt&)> visit = [&](const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kSeq: break;
      case StmtKind::kFor:
        if (is_concurrent(s->for_kind)) problem = fmt::format("'{}' is {}", summary(s), for_kind_name(s->for_kind));
        if (!is_const_int(s->begin, 0)) problem = fmt::format("'{}' does not begin at 0", summary(s));
        if (!as_int(s->extent) && s->extent->kind != ExprKind::kVar)
          problem = fmt::format("the extent of '{}' is neither a number nor a symbol", summary(s));
        loops.push_back(s->var);
        visit(s->stmts[0]);
        loops.pop_back();
        return;
      case StmtKind::kStore:
        affine(*s->buffer, s->indices);
        walk(s->value, [&](const Expr& e) {
          if (e->kind == ExprKind::kLoad) affine(*e->buffer, e->operands);
        });
        break;
      default: problem = fmt::format("'{}' cannot be part of a pattern", summary(s)); return;
    }
    for (const Stmt& child : s->stmts) visit(child);
  };
  visit(program.body);
  if (problem.empty() && program.body->kind == StmtKind::kSeq && program.body->stmts.empty()) problem = "it is empty";
  return problem;
}

Stmt without_single_iterations(const Stmt& s) {
  return transform(s, nullptr, [](const Stmt& node) -> Stmt {
    if (node->kind != StmtKind::kFor || !is_const_int(node->extent, 1) || is_concurrent(node->for_kind)) return {};
    return substitute(node->stmts[0], {{node->var.get(), node->begin}});
  });
}

size_t nest_depth(const Stmt& s) { return s->kind == StmtKind::kFor ? 1 + nest_depth(s->stmts[0]) : 0; }

}  // namespace tessera::inline loop
