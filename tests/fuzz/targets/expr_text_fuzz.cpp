// The text form of expressions: parse, print and read that again; index expressions also have the same value before and
// after simplification, wherever nothing overflows.
#include <optional>

#include "arith/expr_parser.h"
#include "arith/simplify.h"
#include "fuzz_target.h"
#include "support/text_reader.h"

using namespace tessera;

namespace {

struct Names {
  Var i = make_var("i"), j = make_var("j"), n = make_var("n"), x = make_var("x", DType::kF32);
  ExprScope scope;

  Names() {
    const Var half = make_var("h", DType::kF16), small = make_var("b", DType::kI8), truth = make_var("t", DType::kBool);
    for (const Var& var : {i, j, n, x, half, small, truth}) scope.names[var->name] = var;
    scope.buffers["A"] = make_buffer("A", DType::kF32, {8, n});
    scope.buffers["I"] = make_buffer("I", DType::kI64, {n});
  }
};

using Values = std::unordered_map<const ExprNode*, int64_t>;

int64_t floor_div(int64_t a, int64_t b) { return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// The value of an i64 or bool expression by the rules of arith/expr.h; empty for what overflows, and for expressions
// with loads, floats or other integers. Shared nodes are computed once.
class Evaluator {
 public:
  explicit Evaluator(const Values& values) : values_(values) {}

  std::optional<int64_t> value(const Expr& e) {
    if (e.dtype() != DType::kI64 && e.dtype() != DType::kBool) return std::nullopt;
    if (const auto known = known_.find(e.get()); known != known_.end()) return known->second;
    return known_[e.get()] = compute(e);
  }

 private:
  std::optional<int64_t> compute(const Expr& e) {
    if (const auto constant = as_int(e)) return constant;
    if (e->kind == ExprKind::kVar) {
      const auto found = values_.find(e.get());
      return found == values_.end() ? std::nullopt : std::optional(found->second);
    }
    if (e->kind == ExprKind::kSelect) {
      const auto condition = value(e->operands[0]);
      return condition ? value(e->operands[*condition != 0 ? 1 : 2]) : std::nullopt;
    }
    if (e->kind != ExprKind::kBinary) return std::nullopt;
    const auto a = value(e->operands[0]), b = value(e->operands[1]);
    if (!a || !b || e->operands[0].dtype() != DType::kI64) return std::nullopt;
    if (*b == -1 && *a == INT64_MIN) return std::nullopt;
    int64_t result = 0;
    switch (e->binary) {
      case BinaryOp::kAdd: return __builtin_add_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
      case BinaryOp::kSub: return __builtin_sub_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
      case BinaryOp::kMul: return __builtin_mul_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
      case BinaryOp::kDiv: return *b == 0 ? 0 : *a / *b;
      case BinaryOp::kRem: return *b == 0 ? *a : *a % *b;
      case BinaryOp::kFloorDiv: return floor_div(*a, *b);
      case BinaryOp::kFloorMod: return *b == 0 ? *a : *a - floor_div(*a, *b) * *b;
      case BinaryOp::kMin: return *a < *b ? *a : *b;
      case BinaryOp::kMax: return *a > *b ? *a : *b;
      case BinaryOp::kEq: return *a == *b;
      case BinaryOp::kNe: return *a != *b;
      case BinaryOp::kLt: return *a < *b;
      case BinaryOp::kLe: return *a <= *b;
      case BinaryOp::kGt: return *a > *b;
      case BinaryOp::kGe: return *a >= *b;
      default: return std::nullopt;
    }
  }

  const Values& values_;
  std::unordered_map<const ExprNode*, std::optional<int64_t>> known_;
};

void check_simplified(const Names& names, const Expr& e) {
  Bounds bounds;
  bounds.set(names.i, 0, 7);
  bounds.set(names.j, -3, 4);
  bounds.set(names.n, 1, 100);
  const Expr simple = simplify(e, bounds);
  const Interval interval = bounds_of(e, bounds);
  for (const auto& [i, j, n] : {std::tuple<int64_t, int64_t, int64_t>{0, 0, 1}, {7, -3, 100}, {5, 4, 13}, {2, -1, 2}}) {
    const Values values = {{names.i.get(), i}, {names.j.get(), j}, {names.n.get(), n}};
    const auto before = Evaluator(values).value(e);
    if (!before) continue;
    const auto after = Evaluator(values).value(simple);
    if (!after) continue;
    fuzz::require(*before == *after, to_string(e) + " was " + std::to_string(*before) + " and became " +
                                         to_string(simple) + ", which is " + std::to_string(*after) + " for i=" +
                                         std::to_string(i) + ", j=" + std::to_string(j) + ", n=" + std::to_string(n));
    fuzz::require((!interval.lo || *interval.lo <= *before) && (!interval.hi || *before <= *interval.hi),
                  to_string(e) + " is " + std::to_string(*before) + ", outside its bounds");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Names names;
  fuzz::accepts([&] {
    TextReader reader(fuzz::text_of(data, size), "<text>");
    const Expr e = parse_expr(reader, names.scope);
    const std::string printed = to_string(e);
    TextReader again(printed, "<printed>");
    fuzz::require(to_string(parse_expr(again, names.scope)) == printed, "print, parse, print gives another text");
    if (e.dtype() == DType::kI64 || e.dtype() == DType::kBool) check_simplified(names, e);
  });
  return 0;
}
