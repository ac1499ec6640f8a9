#include "program/in_place.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::inline program {
namespace {

// Assignments of loop variables that are tried at most, when counting how often a condition holds.
constexpr int64_t kMaxTried = 1 << 16;

using Values = std::unordered_map<const ExprNode*, int64_t>;

int64_t floor_remainder(int64_t a, int64_t b) { return (a % b + b) % b; }

// An integer expression of loop variables and constants; empty when it is anything else. Indices are far from 64 bits.
std::optional<int64_t> evaluate(const Expr& e, const Values& values) {
  switch (e->kind) {
    case ExprKind::kConst: return as_int(e);
    case ExprKind::kVar: {
      const auto it = values.find(e.get());
      return it == values.end() ? std::nullopt : std::optional(it->second);
    }
    case ExprKind::kBinary: break;
    default: return std::nullopt;
  }
  const auto a = evaluate(e->operands[0], values);
  const auto b = evaluate(e->operands[1], values);
  if (!a || !b) return std::nullopt;
  switch (e->binary) {
    case BinaryOp::kAdd: return *a + *b;
    case BinaryOp::kSub: return *a - *b;
    case BinaryOp::kMul: return *a * *b;
    case BinaryOp::kFloorDiv: return *b > 0 ? std::optional((*a - floor_remainder(*a, *b)) / *b) : std::nullopt;
    case BinaryOp::kFloorMod: return *b > 0 ? std::optional(floor_remainder(*a, *b)) : std::nullopt;
    case BinaryOp::kMin: return std::min(*a, *b);
    case BinaryOp::kMax: return std::max(*a, *b);
    case BinaryOp::kAnd: return *a & *b;
    case BinaryOp::kOr: return *a | *b;
    case BinaryOp::kEq: return *a == *b;
    case BinaryOp::kNe: return *a != *b;
    case BinaryOp::kLt: return *a < *b;
    case BinaryOp::kLe: return *a <= *b;
    case BinaryOp::kGt: return *a > *b;
    case BinaryOp::kGe: return *a >= *b;
    default: return std::nullopt;
  }
}

constexpr const char* kIntrinsic = "an intrinsic reads or writes it in an order of its own";

class Proof {
 public:
  Proof(const Buffer* input, const Buffer* output) : input_(input), output_(output) {}

  std::string run(const Stmt& body, int64_t elements) {
    visit(body);
    if (reason_.empty() && !early_.empty())
      reason_ = "it reads the input before it computes the element that goes there";
    if (reason_.empty() && stores_ > elements) reason_ = "an element may be written more than once";
    return reason_;
  }

 private:
  void visit(const Stmt& s) {
    if (!s || !reason_.empty()) return;
    switch (s->kind) {
      case StmtKind::kFor:
        expression(s->begin);
        expression(s->extent);
        loops_.push_back(s.get());
        for (const Stmt& child : s->stmts) visit(child);
        loops_.pop_back();
        return;
      case StmtKind::kIf:
        expression(s->condition);
        for (size_t arm = 0; arm < s->stmts.size(); ++arm) {
          conditions_.push_back({s->condition, arm == 0});
          visit(s->stmts[arm]);
          conditions_.pop_back();
        }
        return;
      case StmtKind::kStore: return store(s);
      case StmtKind::kTensorized:
        walk(s, [](const Stmt&) {}, [&](const Expr& e) { expression(e); });
        walk(
            s,
            [&](const Stmt& inner) {
              if (inner->buffer.get() == output_) reason_ = kIntrinsic;
            },
            [](const Expr&) {});
        if (!reason_.empty()) reason_ = kIntrinsic;
        return;
      default:
        for (const Stmt& child : s->stmts) visit(child);
    }
  }

  // How often the statement at hand runs: the product of the loops around it, less the iterations in which a condition
  // around it does not hold. Not more than that, at least; empty when a loop's extent is unknown.
  std::optional<int64_t> times() const {
    int64_t count = 1;
    std::vector<const StmtNode*> tried;  // loops whose variables stand in conditions
    int64_t combinations = 1;
    for (const StmtNode* loop : loops_) {
      const auto extent = as_int(loop->extent);
      if (!extent) return std::nullopt;
      if (*extent <= 0) return 0;
      const auto uses = [&](const auto& condition) { return uses_var(condition.first, loop->var); };
      const bool conditional = std::any_of(conditions_.begin(), conditions_.end(), uses) && as_int(loop->begin) &&
                               *extent <= kMaxTried / combinations;
      if (conditional) {
        tried.push_back(loop);
        combinations *= *extent;
      } else if (__builtin_mul_overflow(count, *extent, &count)) {
        return std::nullopt;
      }
    }
    int64_t holds = 0;
    Values values;
    for (int64_t i = 0; i < combinations; ++i) {
      int64_t rest = i;
      for (const StmtNode* loop : tried) {
        values[loop->var.get()] = *as_int(loop->begin) + rest % *as_int(loop->extent);
        rest /= *as_int(loop->extent);
      }
      // A condition that cannot be evaluated may hold.
      holds += std::all_of(conditions_.begin(), conditions_.end(), [&](const auto& condition) {
        const auto value = evaluate(condition.first, values);
        return !value || (*value != 0) == condition.second;
      });
    }
    if (__builtin_mul_overflow(count, holds, &count)) return std::nullopt;
    return count;
  }

  void store(const Stmt& s) {
    const bool into_output = s->buffer.get() == output_;
    for (const Expr& index : s->indices) expression(index);
    walk(s->value, [&](const Expr& e) {
      if (e->kind != ExprKind::kLoad) return;
      if (e->buffer.get() == output_) reason_ = "it reads its output";
      if (e->buffer.get() != input_) return;
      if (!into_output) early_.push_back({e->operands, loops_, conditions_});
      else if (!same_place(e->operands, s->indices)) reason_ = "it reads other elements than the one that it writes";
    });
    if (!into_output) return;
    if (!reason_.empty()) return;
    std::erase_if(early_, [&](const EarlyLoad& early) {
      return same_place(early.indices, s->indices) && early.loops == loops_ && same_conditions(early.conditions);
    });
    const auto count = times();
    if (!count || __builtin_add_overflow(stores_, *count, &stores_)) reason_ = "the number of its stores is not known";
  }

  // Loads in bounds, conditions and indices happen apart from the store of their element.
  void expression(const Expr& e) {
    if (!e) return;
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad && (node->buffer.get() == input_ || node->buffer.get() == output_))
        reason_ = "a condition or an index depends on it";
    });
  }

  bool same_conditions(const std::vector<std::pair<Expr, bool>>& others) const {
    return std::equal(others.begin(), others.end(), conditions_.begin(), conditions_.end(),
                      [](const auto& a, const auto& b) { return a.first.same_node(b.first) && a.second == b.second; });
  }

  static bool same_place(const std::vector<Expr>& a, const std::vector<Expr>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!structurally_equal(a[i], b[i])) return false;
    return true;
  }

  const Buffer* input_;
  const Buffer* output_;
  int64_t stores_ = 0;
  std::vector<const StmtNode*> loops_;             // around the statement at hand
  std::vector<std::pair<Expr, bool>> conditions_;  // around it, and whether they hold there
  // Of the input, in a statement that does not store to the output, and not followed by one that does: the same
  // iteration overwrites the element then.
  struct EarlyLoad {
    std::vector<Expr> indices;
    std::vector<const StmtNode*> loops;
    std::vector<std::pair<Expr, bool>> conditions;
  };
  std::vector<EarlyLoad> early_;
  std::string reason_;
};

}  // namespace

std::string why_not_in_place(const LoopProgram& kernel, size_t input, size_t output, int64_t elements) {
  const Buffer& in = *kernel.params.at(input);
  const Buffer& out = *kernel.params.at(output);
  if (in.dtype != out.dtype) return "the element types differ";
  if (in.shape.size() != out.shape.size()) return "the shapes differ";
  for (size_t d = 0; d < in.shape.size(); ++d)
    if (!structurally_equal(in.shape[d], out.shape[d])) return "the shapes differ";
  return Proof(&in, &out).run(kernel.body, elements);
}

}  // namespace tessera::inline program
