#include "driver/canonical_exprs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "arith/int_ops.h"
#include "arith/simplify.h"
#include "loop/intrinsic.h"
#include "loop_passes/simplify_loops.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

bool is_binary(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }

// What the passes compute of constants, where they are constants.
Expr folded(const Expr& e) {
  if (!is_binary(e, BinaryOp::kDiv) || !is_float(e.dtype())) return {};
  const Expr &a = e->operands[0], &b = e->operands[1];
  if (b->kind != ExprKind::kConst) return {};
  if (a->kind == ExprKind::kConst) return const_of(e.dtype(), a->float_value / b->float_value);
  int exponent = 0;
  const double inverse = 1 / b->float_value;
  if (std::abs(std::frexp(b->float_value, &exponent)) == 0.5 && std::abs(exponent) < 100)
    return binary(BinaryOp::kMul, a, const_of(e.dtype(), inverse));
  return {};
}

// Chosen values, each with what its condition says.
Expr narrowed_selects(const Expr& e, const Bounds& bounds, int depth) {
  if (e->kind != ExprKind::kSelect || depth > 8) return e;
  const Bounds yes = narrowed(bounds, e->operands[0], true), no = narrowed(bounds, e->operands[0], false);
  return simplify(select(e->operands[0], narrowed_selects(simplify(e->operands[1], yes), yes, depth + 1),
                         narrowed_selects(simplify(e->operands[2], no), no, depth + 1)),
                  bounds);
}

}  // namespace

CanonicalExprs::CanonicalExprs() : place_(make_var("place")), summed_(make_var("summed")) {}

LeafPtr CanonicalExprs::leaf(const std::string& key, DType dtype, int64_t count) {
  const auto [it, is_new] = leaves_.try_emplace(fmt::format("{} {} {}", key, dtype_name(dtype), count));
  if (is_new) {
    it->second = make_buffer(fmt::format("l{}", leaves_.size()), dtype, {count});
    leaf_numbers_[it->second.get()] = static_cast<int64_t>(leaves_.size());
  }
  return it->second;
}

int64_t CanonicalExprs::number_of(const LeafPtr& leaf) const { return leaf_numbers_.at(leaf.get()); }

Expr CanonicalExprs::tidy(const Expr& e, int64_t count, int64_t sum) const {
  Bounds bounds;
  bounds.set(place_, 0, std::max<int64_t>(count, 1) - 1);
  bounds.set(summed_, 0, std::max<int64_t>(sum, 1) - 1);
  Expr result = simplify(e, bounds);
  result = transform(result, [&](const Expr& node) -> Expr {
    if (node->kind == ExprKind::kSelect) {
      const Expr narrow = narrowed_selects(node, bounds, 0);
      return narrow.same_node(node) ? Expr() : narrow;
    }
    return folded(node);
  });
  return simplify(result, bounds);
}

size_t CanonicalExprs::nodes(const Expr& e) {
  size_t count = 0;
  walk(e, [&](const Expr&) { ++count; });
  return count;
}

int64_t CanonicalExprs::number(const Expr& e) {
  if (const auto it = numbers_.find(e.get()); it != numbers_.end()) return it->second;
  const int64_t number = number_of(line(e));
  kept_.push_back(e);
  return numbers_[e.get()] = number;
}

void CanonicalExprs::split(const Expr& e, BinaryOp op, std::vector<int64_t>& terms) {
  if (!is_binary(e, op)) return terms.push_back(number(e));
  split(e->operands[0], op, terms);
  split(e->operands[1], op, terms);
}

std::string CanonicalExprs::line(const Expr& e) {
  std::string text(dtype_name(e.dtype()));
  switch (e->kind) {
    case ExprKind::kConst:
      return is_float(e.dtype()) ? fmt::format("{} {:a}", text, e->float_value)
                                 : fmt::format("{} {}", text, e->int_value);
    case ExprKind::kVar:
      return e.same_node(place_) ? "place" : e.same_node(summed_) ? "summed" : fmt::format("v{}", e->int_value);
    case ExprKind::kLoad: {
      const auto leaf = leaf_numbers_.find(e->buffer.get());
      text = leaf != leaf_numbers_.end() ? fmt::format("load {}", leaf->second) : "load " + e->buffer->name;
      break;
    }
    case ExprKind::kUnary: text += fmt::format(" {}", unary_name(e->unary)); break;
    case ExprKind::kBinary: {
      const BinaryOp op = e->binary;
      if (e.dtype() == DType::kBool && (op == BinaryOp::kAnd || op == BinaryOp::kOr)) {
        std::vector<int64_t> terms;
        split(e, op, terms);
        std::sort(terms.begin(), terms.end());
        terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
        if (terms.size() > 1) return fmt::format("{} {}", binary_name(op), fmt::join(terms, " "));
      }
      if (is_comparison(op) && e->operands[0].dtype() == DType::kI64) {
        // Against 0.
        Expr a = e->operands[0], b = e->operands[1];
        if (op == BinaryOp::kGt || op == BinaryOp::kGe) std::swap(a, b);
        if (op == BinaryOp::kEq || op == BinaryOp::kNe) {
          const int64_t x = number(simplify(a - b)), y = number(simplify(b - a));
          return fmt::format("{} {} {}", binary_name(op), std::min(x, y), std::max(x, y));
        }
        const bool strict = op == BinaryOp::kLt || op == BinaryOp::kGt;
        return fmt::format("negative {}", number(simplify(strict ? a - b : a - b - Expr(1))));
      }
      text += fmt::format(" {}", binary_name(op));
      if (commutes(op)) {
        const int64_t a = number(e->operands[0]), b = number(e->operands[1]);
        return fmt::format("{} {} {}", text, std::min(a, b), std::max(a, b));
      }
      break;
    }
    case ExprKind::kSelect: text += " select"; break;
    case ExprKind::kFma: text += " fma"; break;
    case ExprKind::kCast: text += " cast"; break;
  }
  for (const Expr& operand : e->operands) text += fmt::format(" {}", number(operand));
  return text;
}

// Variables and buffers count by where they are met.
class CanonicalExprs::Loops {
 public:
  Loops(CanonicalExprs& all, const std::vector<BufferPtr>& params) : all_(all) {
    for (const BufferPtr& param : params) name(*param, true);
  }

  int64_t number(Stmt s) {
    // Conditions one inside the other are one.
    std::vector<int64_t> conditions;
    for (; s->kind == StmtKind::kIf && s->stmts.size() == 1; s = s->stmts[0]) split(s->condition, conditions);
    if (!conditions.empty()) {
      std::sort(conditions.begin(), conditions.end());
      return all_.number_of(fmt::format("if {} {}", fmt::join(conditions, ","), number(s)));
    }
    std::string line = fmt::format("statement {}", static_cast<int>(s->kind));
    if (s->kind == StmtKind::kAlloc) line += " " + name(*s->buffer, false);
    else if (s->buffer) line += " " + name(*s->buffer, false);
    if (s->kind == StmtKind::kFor) {
      line += fmt::format(" {} {}", expression(s->begin), expression(s->extent));
      vars_.try_emplace(s->var.get(), vars_.size());
    }
    for (const Expr* part : {&s->condition, &s->value})
      if (*part) line += fmt::format(" {}", expression(*part));
    for (const Expr& index : s->indices) line += fmt::format(" {}", expression(index));
    if (s->intrinsic) line += fmt::format(" {}", static_cast<const void*>(s->intrinsic));
    for (const Stmt& child : s->stmts) line += fmt::format(" {}", number(child));
    return all_.number_of(line);
  }

 private:
  std::string name(const Buffer& buffer, bool param) {
    const auto [it, is_new] = buffers_.try_emplace(&buffer, "");
    if (is_new) it->second = fmt::format("{}{}.{}", param ? "p" : "m", buffers_.size(), dtype_name(buffer.dtype));
    return it->second;
  }

  void split(const Expr& e, std::vector<int64_t>& terms) {
    if (!is_binary(e, BinaryOp::kAnd)) return terms.push_back(expression(e));
    split(e->operands[0], terms);
    split(e->operands[1], terms);
  }

  int64_t expression(const Expr& e) {
    if (const auto it = numbers_.find(e.get()); it != numbers_.end()) return it->second;
    std::string line;
    if (e->kind == ExprKind::kVar) {
      line = fmt::format("loop {}", vars_.try_emplace(e.get(), vars_.size()).first->second);
    } else if (e->kind == ExprKind::kConst) {
      return all_.number(e);
    } else {
      line = fmt::format("{} {} {} {} {}", static_cast<int>(e->kind), static_cast<int>(e->unary),
                         static_cast<int>(e->binary), dtype_name(e.dtype()), e->buffer ? name(*e->buffer, false) : "");
      std::vector<int64_t> operands;
      for (const Expr& operand : e->operands) operands.push_back(expression(operand));
      if (e->kind == ExprKind::kBinary && commutes(e->binary)) std::sort(operands.begin(), operands.end());
      line += fmt::format(" {}", fmt::join(operands, " "));
    }
    return numbers_[e.get()] = all_.number_of(line);
  }

  CanonicalExprs& all_;
  std::unordered_map<const Buffer*, std::string> buffers_;
  std::unordered_map<const ExprNode*, size_t> vars_;
  std::unordered_map<const ExprNode*, int64_t> numbers_;
};

int64_t CanonicalExprs::number(const Stmt& s, const std::vector<BufferPtr>& params) {
  return Loops(*this, params).number(s);
}

}  // namespace tessera::inline driver
