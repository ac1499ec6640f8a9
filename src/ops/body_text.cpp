#include "ops/body_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "arith/expr_parser.h"
#include "arith/simplify.h"
#include "support/text_reader.h"

namespace tessera::inline ops {
namespace {

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kProd, Combiner::kMin, Combiner::kMax};

// ---- proofs that loads stay inside ----

class LoadCheck {
 public:
  explicit LoadCheck(const Body& body) {
    for (const auto* axes : {&body.axes, &body.reduce_axes})
      for (const Axis& axis : *axes) {
        axes_.emplace_back(axis.var, axis.extent);
        const Interval extent = size_range(axis.extent);
        bounds_.set(axis.var, Interval{0, extent.hi ? std::optional(*extent.hi - 1) : std::nullopt});
        // Where an axis has no elements nothing is loaded.
        known_.push_back(axis.var - axis.extent + Expr(1));
        known_.push_back(Expr(0) - axis.var);
      }
  }

  std::string first_outside(const Expr& e) {
    if (e->kind == ExprKind::kSelect) {
      if (std::string outside = first_outside(e->operands[0]); !outside.empty()) return outside;
      for (const bool holds : {true, false}) {
        const size_t before = known_.size();
        assume(e->operands[0], holds);
        std::string outside = first_outside(e->operands[holds ? 1 : 2]);
        known_.resize(before);
        if (!outside.empty()) return outside;
      }
      return "";
    }
    for (const Expr& operand : e->operands)
      if (std::string outside = first_outside(operand); !outside.empty()) return outside;
    if (e->kind != ExprKind::kLoad) return "";
    for (size_t d = 0; d < e->operands.size(); ++d) {
      const Expr& index = e->operands[d];
      if (!at_most(Expr(0), index) || !at_most(index + Expr(1), e->buffer->shape[d])) return to_string(e);
    }
    return "";
  }

 private:
  // Adds what a condition says to `known_`, as expressions that are at most 0.
  void assume(const Expr& condition, bool holds) {
    if (condition->kind == ExprKind::kUnary && condition->unary == UnaryOp::kNot)
      return assume(condition->operands[0], !holds);
    if (condition->kind != ExprKind::kBinary) return;
    const Expr &a = condition->operands[0], &b = condition->operands[1];
    const BinaryOp op = condition->binary;
    if (op == (holds ? BinaryOp::kAnd : BinaryOp::kOr)) {
      assume(a, holds);
      assume(b, holds);
      return;
    }
    if (!is_comparison(op) || a.dtype() != DType::kI64) return;
    const auto less = [&](const Expr& x, const Expr& y) { known_.push_back(x - y + Expr(1)); };
    const auto not_above = [&](const Expr& x, const Expr& y) { known_.push_back(x - y); };
    switch (op) {
      case BinaryOp::kLt: return holds ? less(a, b) : not_above(b, a);
      case BinaryOp::kLe: return holds ? not_above(a, b) : less(b, a);
      case BinaryOp::kGt: return holds ? less(b, a) : not_above(a, b);
      case BinaryOp::kGe: return holds ? not_above(b, a) : less(a, b);
      case BinaryOp::kEq:
        if (!holds) return;
        not_above(a, b);
        return not_above(b, a);
      default: return;
    }
  }

  static bool is(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }

  // e + c, where e is a minimum, maximum or quotient that the rules below look into; `e` itself is left alone.
  static Expr pushed_in(const Expr& sum) {
    if (!is(sum, BinaryOp::kAdd) || !as_int(sum->operands[1])) return sum;
    const Expr &e = sum->operands[0], &c = sum->operands[1];
    if (is(e, BinaryOp::kMin) || is(e, BinaryOp::kMax))
      return binary(e->binary, pushed_in(e->operands[0] + c), pushed_in(e->operands[1] + c));
    if (is(e, BinaryOp::kFloorDiv) && as_int(e->operands[1]))
      return floordiv(e->operands[0] + c * e->operands[1], e->operands[1]);
    return sum;
  }

  // Whether a <= b wherever the load happens.
  bool at_most(const Expr& sum, const Expr& b) {
    const Expr a = pushed_in(sum);
    // Either may be it; and of two numbers, the lesser one is not above their mean.
    if (is(a, BinaryOp::kMin))
      return at_most(a->operands[0], b) || at_most(a->operands[1], b) ||
             is_at_most(a->operands[0] + a->operands[1], Expr(2) * b + Expr(1));
    if (is(a, BinaryOp::kMax)) return at_most(a->operands[0], b) && at_most(a->operands[1], b);
    if (is(b, BinaryOp::kMin)) return at_most(a, b->operands[0]) && at_most(a, b->operands[1]);
    if (is(b, BinaryOp::kMax))
      return at_most(a, b->operands[0]) || at_most(a, b->operands[1]) ||
             is_at_most(Expr(2) * a, b->operands[0] + b->operands[1] + Expr(1));
    if (is_at_most(a, b)) return true;
    const auto divisor = [](const Expr& e) {
      return is(e, BinaryOp::kFloorDiv) ? as_int(e->operands[1]).value_or(0) : 0;
    };
    if (const int64_t c = divisor(a); c > 0) return at_most(a->operands[0], b * Expr(c) + Expr(c - 1));
    if (const int64_t c = divisor(b); c > 0) return at_most(a * Expr(c), b->operands[0]);
    return false;
  }

  bool is_at_most(const Expr& a, const Expr& b) const {
    const Expr difference = a - b;
    if (not_positive(difference)) return true;
    // One fact, or two of them together: a place of two axes needs the ends of both.
    for (size_t i = 0; i < known_.size(); ++i) {
      const Expr rest = difference - known_[i];
      if (not_positive(rest)) return true;
      for (size_t j = i + 1; j < known_.size(); ++j)
        if (not_positive(rest - known_[j])) return true;
    }
    return false;
  }

  bool not_positive(const Expr& e) const {
    const Expr simple = normalize_size(simplify(e, bounds_), axes_);
    const auto hi = bounds_of(simple, bounds_).hi;
    if (hi) return *hi <= 0;
    const auto least = size_range(simple).hi;
    return least && *least <= 0;
  }

  std::vector<std::pair<Var, Expr>> axes_;
  Bounds bounds_;
  std::vector<Expr> known_;  // each at most 0
};

// ---- parsing ----

class BodyParser {
 public:
  BodyParser(std::string_view text, const std::vector<BufferPtr>& operands, const Shape& sizes)
      : reader_(text, "the body of compute") {
    body_.inputs = operands;
    for (size_t i = 0; i < operands.size(); ++i) scope_.buffers[fmt::format("x{}", i)] = operands[i];
    for (size_t i = 0; i < sizes.size(); ++i) scope_.names[fmt::format("s{}", i)] = sizes[i];
  }

  Body run() {
    reader_.expect("out");
    body_.axes = axes();
    reader_.expect("=");
    for (const Combiner combiner : kCombiners) {
      TextReader ahead = reader_;  // min and max are functions as well
      if (!ahead.accept(combiner_name(combiner)) || ahead.peek() != '[') continue;
      reader_.expect(combiner_name(combiner));
      body_.combiner = combiner;
      TextReader start = reader_;
      body_.reduce_axes = axes();
      if (body_.reduce_axes.empty()) start.fail("TSR-3140", "a reduction over no axes", "one axis or more");
      break;
    }
    TextReader start = reader_;
    body_.value = parse_expr(reader_, scope_);
    if (!reader_.at_end()) reader_.fail_expected("the end of the body");
    if (body_.is_reduction() && body_.value.dtype() == DType::kBool)
      start.fail("TSR-3140", "a reduction of bool", "numbers; cast the value");
    return std::move(body_);
  }

 private:
  std::vector<Axis> axes() {
    std::vector<Axis> result;
    reader_.expect("[");
    if (reader_.accept("]")) return result;
    ExprScope sizes;  // extents are of sizes alone
    for (const auto& [name, size] : scope_.names)
      if (name[0] == 's') sizes.names[name] = size;
    do {
      TextReader start = reader_;
      const std::string name = reader_.word("an axis");
      if (is_reserved_word(name) || scope_.names.count(name) || scope_.buffers.count(name) || name[0] == 's' ||
          name[0] == 'x')
        start.fail("TSR-3140", fmt::format("an axis '{}'", name), "a new name that begins with neither s nor x");
      reader_.expect("<");
      TextReader extent_start = reader_;
      const Expr extent = parse_expr(reader_, sizes);
      if (extent.dtype() != DType::kI64 || (as_int(extent) && *as_int(extent) < 0))
        extent_start.fail("TSR-3140", fmt::format("the extent {}", to_string(extent)), "a size from 0");
      result.push_back({make_var(name), extent});
      scope_.names[name] = result.back().var;
    } while (reader_.accept(","));
    reader_.expect("]");
    return result;
  }

  TextReader reader_;
  ExprScope scope_;
  Body body_;
};

}  // namespace

BodyText body_text(const Body& body) {
  BodyText result;
  NameMap names;
  for (size_t i = 0; i < body.inputs.size(); ++i) names[body.inputs[i].get()] = fmt::format("x{}", i);
  for (size_t i = 0; i < body.axes.size(); ++i) names[body.axes[i].var.get()] = fmt::format("i{}", i);
  for (size_t i = 0; i < body.reduce_axes.size(); ++i) names[body.reduce_axes[i].var.get()] = fmt::format("k{}", i);
  const auto name_sizes = [&](const Expr& e) {
    walk(e, [&](const Expr& node) {
      if (node->kind != ExprKind::kVar || names.count(node.get())) return;
      names[node.get()] = fmt::format("s{}", result.sizes.size());
      result.sizes.push_back(node);
    });
  };
  const auto list = [&](const std::vector<Axis>& axes) {
    std::string text;
    for (const Axis& axis : axes) {
      name_sizes(axis.extent);
      text += fmt::format("{}{}<{}", text.empty() ? "" : ", ", names[axis.var.get()], to_string(axis.extent, names));
    }
    return "[" + text + "]";
  };
  result.text = "out" + list(body.axes) + " = ";
  if (body.is_reduction()) result.text += combiner_name(body.combiner) + list(body.reduce_axes) + " ";
  name_sizes(body.value);
  result.text += to_string(body.value, names);
  return result;
}

Attrs compute_attrs(const Body& body) {
  BodyText text = body_text(body);
  Attrs attrs{{"body", std::move(text.text)}};
  if (!text.sizes.empty()) attrs.set("sizes", std::move(text.sizes));
  return attrs;
}

Body parse_body(std::string_view text, const std::vector<BufferPtr>& operands, const Shape& sizes) {
  return BodyParser(text, operands, sizes).run();
}

std::string load_that_may_be_outside(const Body& body) { return LoadCheck(body).first_outside(body.value); }

}  // namespace tessera::inline ops
