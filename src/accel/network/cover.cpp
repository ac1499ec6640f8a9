#include "accel/network/cover.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace tessera::inline network {

namespace {

bool is_commutative(BinaryOp op) {
  return op == BinaryOp::kAdd || op == BinaryOp::kMul || op == BinaryOp::kMin || op == BinaryOp::kMax ||
         op == BinaryOp::kAnd || op == BinaryOp::kOr || op == BinaryOp::kXor;
}

struct Bound {
  std::vector<Expr> operands;  // by parameter
  std::vector<int64_t> immediates;
  std::vector<bool> known;  // of the immediates
};

// Holds expressions against the value of an instruction.
class Matcher {
 public:
  Matcher(const UnitMap& map) : map_(map), kernel_(*map.instruction->intrinsic->pattern()) {}

  std::optional<Bound> match(const Expr& e) {
    Bound bound;
    bound.operands.resize(kernel_.params.size());
    bound.immediates.assign(kernel_.symbols.size(), 0);
    bound.known.assign(kernel_.symbols.size(), false);
    if (!match(map_.value, e, bound)) return std::nullopt;
    return bound;
  }

 private:
  bool match(const Expr& pattern, const Expr& e, Bound& bound) {
    const bool is_moved = pattern->kind == ExprKind::kLoad && map_.instruction->intrinsic->patterns[0].rules.any_type;
    if (is_moved ? dtype_bits(pattern.dtype()) != dtype_bits(e.dtype()) : pattern.dtype() != e.dtype()) return false;
    if (pattern->kind == ExprKind::kLoad) {
      for (size_t p = 0; p < kernel_.params.size(); ++p)
        if (kernel_.params[p] == pattern->buffer) {
          if (bound.operands[p]) return structurally_equal(bound.operands[p], e);
          bound.operands[p] = e;
          return true;
        }
      return false;
    }
    if (const auto symbol = symbol_of(pattern)) return match_symbol(*symbol, e, bound);
    if (pattern->kind != e->kind) return false;
    switch (pattern->kind) {
      case ExprKind::kConst: return structurally_equal(pattern, e);
      case ExprKind::kUnary:
        if (pattern->unary != e->unary) return false;
        break;
      case ExprKind::kBinary: {
        if (pattern->binary != e->binary) return false;
        if (!is_commutative(pattern->binary)) break;
        const Bound before = bound;
        if (match_all(pattern, e, bound)) return true;
        bound = before;
        return match(pattern->operands[0], e->operands[1], bound) && match(pattern->operands[1], e->operands[0], bound);
      }
      case ExprKind::kCast:
      case ExprKind::kSelect:
      case ExprKind::kFma: break;
      default: return false;
    }
    return match_all(pattern, e, bound);
  }

  bool match_all(const Expr& pattern, const Expr& e, Bound& bound) {
    for (size_t i = 0; i < pattern->operands.size(); ++i)
      if (!match(pattern->operands[i], e->operands[i], bound)) return false;
    return true;
  }

  std::optional<size_t> symbol_of(const Expr& pattern) const {
    const Expr& var = pattern->kind == ExprKind::kCast ? pattern->operands[0] : pattern;
    for (size_t s = 0; s < kernel_.symbols.size(); ++s)
      if (kernel_.symbols[s].same_node(var)) return s;
    return std::nullopt;
  }

  bool match_symbol(size_t symbol, const Expr& e, Bound& bound) const {
    if (e->kind != ExprKind::kConst) return false;
    int64_t value = e->int_value;
    if (is_float(e.dtype())) {
      if (!(e->float_value >= -1e9 && e->float_value <= 1e9)) return false;
      value = static_cast<int64_t>(e->float_value);
      if (static_cast<double>(value) != e->float_value) return false;
    }
    const auto& [least, most] = map_.instruction->intrinsic->patterns[0].rules.ranges.at(kernel_.symbols[symbol]->name);
    if (value < least || value > most || (bound.known[symbol] && bound.immediates[symbol] != value)) return false;
    bound.immediates[symbol] = value;
    bound.known[symbol] = true;
    return true;
  }

  const UnitMap& map_;
  const LoopProgram& kernel_;
};

class Coverer {
 public:
  Coverer(const UnitRoles& roles, const Contraction& of) : roles_(roles), of_(of) {}

  std::variant<Cover, NotOffloaded> run() {
    struct Way {
      const UnitMap* map = nullptr;
      Bound bound;
      size_t cost = 0;
    };
    std::optional<Way> best;
    for (const UnitMap& store : roles_.stores) {
      auto bound = Matcher(store).match(of_.value);
      if (!bound) continue;
      const auto cost = cost_of(*bound, store);
      if (cost && (!best || *cost < best->cost)) best = Way{&store, std::move(*bound), *cost};
    }
    if (!best) return NotOffloaded{why_.empty() ? fmt::format("nothing stores {}", shown(of_.value)) : why_};
    cover_.store = step_of(*best->map, best->bound);
    return std::move(cover_);
  }

 private:
  struct Choice {
    const UnitMap* map = nullptr;
    Bound bound;
    size_t cost = 0;
  };

  static std::string shown(const Expr& e) {
    std::string text = to_string(e);
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
  }

  std::optional<size_t> cost_of(const Bound& bound, const UnitMap& map) {
    size_t cost = 1;
    const size_t inputs = bound.operands.size() - 1;
    for (size_t p = 0; p < inputs; ++p) {
      if (!bound.operands[p]) return std::nullopt;  // an operand that its value does not read
      const auto own = cost_of(bound.operands[p]);
      if (!own) return std::nullopt;
      cost += *own;
    }
    static_cast<void>(map);
    return cost;
  }

  std::optional<size_t> cost_of(const Expr& e) {
    if (leaf_of(e)) return 0;
    const auto [it, is_new] = choices_.try_emplace(e.get());
    if (!is_new) return it->second ? std::optional(it->second->cost) : std::nullopt;
    std::optional<Choice> best;
    for (const UnitMap& map : roles_.maps) {
      auto bound = Matcher(map).match(e);
      if (!bound) continue;
      const auto cost = cost_of(*bound, map);
      if (cost && (!best || *cost < best->cost)) best = Choice{&map, std::move(*bound), *cost};
    }
    if (!best && why_.empty()) why_ = fmt::format("no instruction computes {}", shown(e));
    choices_[e.get()] = best;
    return best ? std::optional(best->cost) : std::nullopt;
  }

  bool is_sum(const Expr& e) const {
    return of_.reduction && e->kind == ExprKind::kLoad && e->buffer == of_.reduction->out;
  }

  std::optional<CoverOperand> leaf_of(const Expr& e) {
    using Kind = CoverOperand::Kind;
    if (is_sum(e)) return CoverOperand{Kind::kSum, 0};
    if (e->kind == ExprKind::kConst && dtype_bits(e.dtype()) == 32) return row({e, e.dtype()});
    if (e->kind != ExprKind::kLoad || dtype_bits(e.dtype()) != 32) return std::nullopt;
    size_t param = SIZE_MAX;
    for (size_t p = 0; p < of_.kernel->params.size(); ++p)
      if (of_.kernel->params[p].buffer == e->buffer) param = p;
    if (param == SIZE_MAX) return std::nullopt;
    const auto& axes = of_.output().body.axes;
    const TensorParam& of = of_.kernel->params[param];
    // An element for each of the output.
    bool same = e->operands.size() == axes.size();
    for (size_t d = 0; same && d < axes.size(); ++d)
      same = (e->operands[d].same_node(axes[d].var) ||
              (is_const_int(e->operands[d], 0) && is_const_int(axes[d].extent, 1))) &&
             is_const_int(of.buffer->shape[d], *as_int(axes[d].extent));
    if (same && !of.is_constant()) {
      if (!roles_.load_sums || (!roles_.moves_any_type && !loads(e.dtype()))) return std::nullopt;
      const auto it = std::find(cover_.streams.begin(), cover_.streams.end(), param);
      if (it == cover_.streams.end()) cover_.streams.push_back(param);
      return CoverOperand{Kind::kStream, param};
    }
    if (!of.is_constant()) {
      if (why_.empty()) why_ = fmt::format("it reads '{}' otherwise than it writes", of.buffer->name);
      return std::nullopt;
    }
    CoverRow result{e, e.dtype(), param, SIZE_MAX};
    for (size_t d = 0; d < e->operands.size(); ++d) {
      if (as_int(e->operands[d])) continue;
      if (!e->operands[d].same_node(axes[of_.channel_axis].var) || result.dim != SIZE_MAX) {
        if (why_.empty()) why_ = fmt::format("'{}' is no number for each channel", of.buffer->name);
        return std::nullopt;
      }
      result.dim = d;
    }
    return row(result);
  }

  bool loads(DType dtype) const { return roles_.load_sums->intrinsic->pattern()->params.back()->dtype == dtype; }

  std::optional<CoverOperand> row(const CoverRow& wanted) {
    if (!roles_.load_sums || (!roles_.moves_any_type && !loads(wanted.dtype))) {
      if (why_.empty()) why_ = "nothing brings known numbers to where sums are";
      return std::nullopt;
    }
    for (size_t r = 0; r < cover_.rows.size(); ++r)
      if (structurally_equal(cover_.rows[r].value, wanted.value)) return CoverOperand{CoverOperand::Kind::kRow, r};
    cover_.rows.push_back(wanted);
    return CoverOperand{CoverOperand::Kind::kRow, cover_.rows.size() - 1};
  }

  CoverOperand place(const Expr& e) {
    if (const auto leaf = leaf_of(e)) return *leaf;
    if (const auto it = made_.find(e.get()); it != made_.end()) return {CoverOperand::Kind::kStep, it->second};
    const Choice choice = *choices_.at(e.get());
    CoverStep step = step_of(*choice.map, choice.bound);
    cover_.steps.push_back(std::move(step));
    made_[e.get()] = cover_.steps.size() - 1;
    return {CoverOperand::Kind::kStep, cover_.steps.size() - 1};
  }

  CoverStep step_of(const UnitMap& map, const Bound& bound) {
    CoverStep step;
    step.map = &map;
    step.immediates = bound.immediates;
    for (size_t p = 0; p + 1 < bound.operands.size(); ++p) step.operands.push_back(place(bound.operands[p]));
    return step;
  }

  const UnitRoles& roles_;
  const Contraction& of_;
  Cover cover_;
  std::string why_;
  std::unordered_map<const ExprNode*, std::optional<Choice>> choices_;
  std::unordered_map<const ExprNode*, size_t> made_;
};

}  // namespace

std::variant<Cover, NotOffloaded> cover(const UnitRoles& roles, const Contraction& of) {
  auto made = Coverer(roles, of).run();
  auto* result = std::get_if<Cover>(&made);
  if (!result) return made;
  // Ways that were looked at and not taken have left rows and streams that nobody reads.
  std::vector<bool> row(result->rows.size(), false);
  std::vector<size_t> streams;
  const auto each = [&](const auto& visit) {
    for (CoverStep& step : result->steps)
      for (CoverOperand& operand : step.operands) visit(operand);
    for (CoverOperand& operand : result->store.operands) visit(operand);
  };
  each([&](const CoverOperand& operand) {
    if (operand.kind == CoverOperand::Kind::kRow) row[operand.number] = true;
    if (operand.kind == CoverOperand::Kind::kStream &&
        std::find(streams.begin(), streams.end(), operand.number) == streams.end())
      streams.push_back(operand.number);
  });
  std::vector<size_t> renumber(row.size(), 0);
  std::vector<CoverRow> rows;
  for (size_t r = 0; r < row.size(); ++r) {
    renumber[r] = rows.size();
    if (row[r]) rows.push_back(result->rows[r]);
  }
  each([&](CoverOperand& operand) {
    if (operand.kind == CoverOperand::Kind::kRow) operand.number = renumber[operand.number];
  });
  result->rows = std::move(rows);
  result->streams = std::move(streams);
  return made;
}

}  // namespace tessera::inline network
