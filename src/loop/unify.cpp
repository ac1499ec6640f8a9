#include "loop/unify.h"

#include <algorithm>

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
  Unifier(const LoopProgram& pattern, const PatternRules& rules) : pattern_(pattern), rules_(rules) {
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
      if (it == state_.symbols.end() && rules_.open.contains(symbol->name)) {
        match.symbols.push_back(0);
        continue;
      }
      if (it == state_.symbols.end()) {
        match.problem = fmt::format("nothing says what {} is", symbol->name);
        return match;
      }
      match.symbols.push_back(it->second);
    }
    match.problem = place_outside();
    if (match.problem.empty()) match.problem = places_that_meet();
    if (!match.problem.empty()) return match;
    for (Region& region : state_.regions) match.regions.push_back(std::move(region.found));
    for (const auto& [var, loop] : state_.loops) match.loops.push_back(loop);
    match.loads = std::move(state_.loads);
    return match;
  }

 private:
  // How a loop moves through a region.
  struct Step {
    int64_t stride, extent;
  };
  struct Region {
    PatternRegion found;
    Expr base;                // flat address while loops are at their begin, less the pattern's own
    std::vector<Step> steps;  // of loops whose places the pattern tells from each other, by strides that are symbols
  };
  // What is bound so far; copied where there is a choice.
  struct State {
    std::vector<Region> regions;
    std::unordered_map<const ExprNode*, int64_t> symbols;
    std::vector<std::pair<Var, Stmt>> loops;  // the pattern's variable, the nest's loop; all so far
    std::vector<size_t> open;                 // those around the current place
    std::vector<PatternLoad> loads;
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
        if (is_open(buffer.shape[d])) continue;
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

  bool is_open(const Expr& extent) const {
    return extent->kind == ExprKind::kVar && rules_.open.contains(extent->name);
  }

  // Where strides are such that different places of the pattern would be one element of what is stored to.
  std::string places_that_meet() const {
    for (size_t i = 0; i < state_.regions.size(); ++i) {
      std::vector<Step> steps = state_.regions[i].steps;
      std::erase_if(steps, [](const Step& step) { return step.extent == 1; });
      for (Step& step : steps) step.stride = step.stride < 0 ? -step.stride : step.stride;
      std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.stride < b.stride; });
      int64_t reach = 0;  // of those before
      for (const Step& step : steps) {
        if (step.stride <= reach)
          return fmt::format("places of {} would meet: {} of them lie in steps of {}", pattern_.params[i]->name,
                             reach + 1, step.stride);
        reach += step.stride * (step.extent - 1);
      }
    }
    return "";
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
    for (const Var& symbol : pattern_.symbols) {
      if (known.contains(symbol.get()) || !uses_var(left, symbol)) continue;
      const auto factor = linear_coefficient(left, symbol);
      const auto rest = factor ? as_int(simplify(left - Expr(*factor) * symbol)) : std::nullopt;
      if (!factor || !rest) break;
      if (*factor == 0 || (value - *rest) % *factor != 0)
        return fail(fmt::format("{} is {}, which {} cannot be", what, value, to_string(left)));
      return bind_symbol(symbol, (value - *rest) / *factor);
    }
    return fail(fmt::format("{} is {}, and {} is not known yet", what, value, to_string(left)));
  }

  bool bind_symbol(const Var& symbol, int64_t value) {
    if (const auto range = rules_.ranges.find(symbol->name); range != rules_.ranges.end()) {
      const auto [least, most] = range->second;
      if (value < least || value > most)
        return fail(fmt::format("{} would be {}; {} to {} are legal", symbol->name, value, least, most));
    }
    state_.symbols[symbol.get()] = value;
    return true;
  }

  // Of an exact pattern.
  bool is_loop_of(const Stmt& p, const Stmt& s, int64_t extent) {
    const bool unrolled = p->for_kind == ForKind::kSerial && s->for_kind == ForKind::kUnrolled;
    if (s->for_kind != p->for_kind && !unrolled)
      return fail(fmt::format("loop {} is {}, and {} in the pattern", s->var->name, for_kind_name(s->for_kind),
                              for_kind_name(p->for_kind)));
    const auto begin = as_int(s->begin);
    const bool may_begin = begin && (*begin == 0 || (*begin > 0 && rules_.shifted.contains(p->var->name)));
    if (!may_begin || extent < 1)
      return fail(fmt::format("loop {} does not run from {} over a constant extent", s->var->name,
                              rules_.shifted.contains(p->var->name) ? "a constant" : "0"));
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
        if (rules_.exact && !is_loop_of(p, s, *extent)) return false;
        if (!bind_number(p->extent, *extent, fmt::format("the extent of '{}'", text(s)))) return false;
        state_.open.push_back(state_.loops.size());
        state_.loops.emplace_back(p->var, s);
        if (!statement(p->stmts[0], s->stmts[0])) return false;
        state_.open.pop_back();
        return true;
      }
      case StmtKind::kStore:
        return access(*p->buffer, p->indices, s->buffer, s->indices, p->buffer->dtype, true) &&
               value(p->value, s->value);
      default: return fail(fmt::format("'{}' cannot be part of a pattern", text(p)));
    }
  }

  bool is_output(size_t param) const {
    return param + static_cast<size_t>(pattern_.num_outputs) >= pattern_.params.size();
  }

  // `dtype`: that the nest's buffer must have.
  bool access(const Buffer& p, const std::vector<Expr>& p_indices, const BufferPtr& s,
              const std::vector<Expr>& s_indices, DType dtype, bool stores = false) {
    const size_t number = params_.at(&p);
    Region& region = state_.regions[number];
    if (region.found.buffer && region.found.buffer != s)
      return fail(
          fmt::format("{} stands where {} stood for the pattern's {}", s->name, region.found.buffer->name, p.name));
    const bool same_type = rules_.any_type ? dtype_bits(s->dtype) == dtype_bits(dtype) : s->dtype == dtype;
    if (!same_type)
      return fail(
          fmt::format("{} is {}, the pattern's {} is {}", s->name, dtype_name(s->dtype), p.name, dtype_name(dtype)));
    const bool registers = s->scope == MemoryScope::kRegister;
    if (!registers && rules_.in_registers.contains(p.name))
      return fail(fmt::format("{} is not in registers, and the pattern's {} is", s->name, p.name));
    if (registers && rules_.in_memory.contains(p.name))
      return fail(fmt::format("{} is in registers, and the pattern's {} is in memory", s->name, p.name));
    if (!region.found.buffer)
      for (size_t other = 0; other < state_.regions.size(); ++other)
        if (state_.regions[other].found.buffer == s && (is_output(other) || is_output(number)))
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
    std::vector<Step> steps;
    bool with_symbols = false;
    Expr simple;  // s_address
    for (const size_t i : state_.open) {
      const auto& [var, loop] = state_.loops[i];
      VarMap one = p_zero;
      one[var.get()] = Expr(1);
      std::optional<int64_t> step = 0;
      if (uses_var(s_address, loop->var)) {
        if (!simple) simple = simplify(s_address);
        step = linear_coefficient(simple, loop->var);
      }
      if (!step) return fail(fmt::format("the address of {} is not affine in {}", s->name, loop->var->name));
      const Expr p_step = simplify(substitute(p_address, one) - p_rest);
      if (!bind_number(p_step, *step, fmt::format("the step of {} through {}", loop->var->name, s->name))) return false;
      if (stores && !is_const_int(p_step, 0))
        steps.push_back({*step, *as_int(loop->extent)}), with_symbols |= !as_int(p_step);
    }
    if (with_symbols) region.steps = std::move(steps);
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
    if (p->kind == ExprKind::kLoad) return read(p, e);
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
    if (p->kind == ExprKind::kCast && is_symbol(p->operands[0]) && e->kind == ExprKind::kConst && !is_float(e.dtype()))
      return bind_number(p->operands[0], e->int_value, to_string(e));
    if (p->kind != e->kind)
      return fail(fmt::format("'{}' stands where the pattern has '{}'", to_string(e), to_string(p)));
    switch (p->kind) {
      case ExprKind::kConst:
        return same_constant(p, e) ||
               fail(fmt::format("{} stands where the pattern has {}", to_string(e), to_string(p)));
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

  bool is_symbol(const Expr& e) const {
    return std::any_of(pattern_.symbols.begin(), pattern_.symbols.end(),
                       [&](const Var& symbol) { return symbol.same_node(e); });
  }

  // `e` where the pattern loads.
  bool read(const Expr& p, const Expr& e) {
    const std::string& name = p->buffer->name;
    Expr loaded = e, inside;
    if (rules_.padded.contains(name) && e->kind == ExprKind::kSelect && is_zero(e->operands[2])) {
      inside = e->operands[0];
      loaded = e->operands[1];
    }
    DType dtype = p.dtype();
    if (rules_.widened.contains(name) && loaded->kind == ExprKind::kCast && loaded.dtype() == dtype &&
        is_float(loaded->operands[0].dtype()) && dtype_bits(loaded->operands[0].dtype()) == 16) {
      loaded = loaded->operands[0];
      dtype = loaded.dtype();
    }
    if (loaded->kind != ExprKind::kLoad)
      return fail(fmt::format("'{}' stands where the pattern has '{}'", to_string(e), to_string(p)));
    Region& region = state_.regions[params_.at(p->buffer.get())];
    const bool is_first = !region.found.buffer;
    if (!access(*p->buffer, p->operands, loaded->buffer, loaded->operands, dtype)) return false;
    if (rules_.padded.contains(name) && !pads(region, is_first, inside)) return false;
    state_.loads.push_back({p->buffer.get(), loaded, e});
    return true;
  }

  static bool is_zero(const Expr& e) { return e->kind == ExprKind::kConst && e->int_value == 0 && e->float_value == 0; }

  // All reads of a padded parameter have one condition.
  bool pads(Region& region, bool is_first, const Expr& condition) {
    Expr inside;
    if (condition) {
      bool loads = false;
      walk(condition, [&](const Expr& e) { loads |= e->kind == ExprKind::kLoad; });
      if (loads) return fail(fmt::format("where {} is read depends on what is loaded", region.found.buffer->name));
      VarMap renamed;
      for (const size_t i : state_.open) {
        const auto& [var, loop] = state_.loops[i];
        renamed[loop->var.get()] = loop->begin + var;
      }
      inside = substitute(condition, renamed);
    }
    if (is_first) {
      region.found.inside = inside;
      return true;
    }
    const Expr& before = region.found.inside;
    return (!before && !inside) || (before && inside && structurally_equal(simplify(before), simplify(inside))) ||
           fail(fmt::format("two reads of {} are padded otherwise", region.found.buffer->name));
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
  const PatternRules& rules_;
  std::unordered_map<const Buffer*, size_t> params_;
  State state_;
  int steps_ = 0;
  std::string problem_;
};

}  // namespace

PatternMatch unify(const LoopProgram& pattern, const Stmt& nest, const PatternRules& rules) {
  return Unifier(pattern, rules).run(nest);
}

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
