#include "arith/data_symbols.h"

#include <algorithm>

#include "arith/simplify.h"

namespace tessera::inline arith {
namespace {

const SymbolRange* find_data(const Expr& var, const std::vector<SymbolRange>& symbols) {
  for (const SymbolRange& symbol : symbols)
    if (symbol.is_data() && symbol.var.same_node(var)) return &symbol;
  return nullptr;
}

// What an expression is not below and does not exceed, for all values of data symbols.
class Bounder {
 public:
  explicit Bounder(const std::vector<SymbolRange>& symbols) : symbols_(symbols) {}

  Expr upper(const Expr& e) const { return end(e, true); }

 private:
  Expr end(const Expr& e, bool high) const {
    if (!uses_data_symbols(e, symbols_)) return e;
    if (const SymbolRange* symbol = find_data(e, symbols_)) return high ? upper(symbol->bound) : Expr(symbol->lo);
    if (e->kind == ExprKind::kUnary && e->unary == UnaryOp::kNeg) {
      const Expr a = end(e->operands[0], !high);
      return a ? -a : Expr();
    }
    if (e->kind != ExprKind::kBinary) return {};
    const Expr &x = e->operands[0], &y = e->operands[1];
    switch (e->binary) {
      case BinaryOp::kAdd: return both(BinaryOp::kAdd, end(x, high), end(y, high));
      case BinaryOp::kSub: return both(BinaryOp::kSub, end(x, high), end(y, !high));
      case BinaryOp::kMin: return both(BinaryOp::kMin, end(x, high), end(y, high));
      case BinaryOp::kMax: return both(BinaryOp::kMax, end(x, high), end(y, high));
      case BinaryOp::kMul:
        if (is_below_zero(y)) return both(BinaryOp::kMul, end(x, !high), y);
        if (is_below_zero(x)) return both(BinaryOp::kMul, x, end(y, !high));
        if (!never_negative(x) || !never_negative(y)) return {};
        return both(BinaryOp::kMul, end(x, high), end(y, high));
      case BinaryOp::kFloorDiv: {
        const auto divisor = as_int(y);
        return divisor && *divisor > 0 ? both(BinaryOp::kFloorDiv, end(x, high), y) : Expr();
      }
      case BinaryOp::kFloorMod: {
        if (!high) return 0;
        const Expr most = upper(y);
        return most && never_negative(x) ? both(BinaryOp::kMin, most - 1, upper(x)) : Expr();
      }
      default: return {};
    }
  }

  static Expr both(BinaryOp op, const Expr& x, const Expr& y) { return x && y ? binary(op, x, y) : Expr(); }
  static bool is_below_zero(const Expr& e) { return as_int(e).value_or(0) < 0; }
  static bool never_negative(const Expr& e) { return size_at_most(0, e); }

  const std::vector<SymbolRange>& symbols_;
};

}  // namespace

SymbolRange data_symbol(std::string name, Expr bound) {
  SymbolRange symbol;
  symbol.var = make_var(std::move(name));
  symbol.lo = 0;
  symbol.hi = std::max<int64_t>(size_range(bound).hi.value_or(INT64_MAX), 0);
  symbol.bound = std::move(bound);
  return symbol;
}

int64_t value_of_count(const SymbolRange& symbol, int64_t count, int64_t most) {
  return std::max(std::min(count, most), symbol.lo);
}

bool uses_data_symbols(const Expr& e, const std::vector<SymbolRange>& symbols) {
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](const SymbolRange& symbol) { return symbol.is_data() && uses_var(e, symbol.var); });
}

Expr bound_of_size(const Expr& e, const std::vector<SymbolRange>& symbols) {
  if (!uses_data_symbols(e, symbols)) return e;
  const KnownSymbols known(symbols);
  const Expr bound = Bounder(symbols).upper(normalize_size(e));
  return bound ? normalize_size(bound) : bound;
}

}  // namespace tessera::inline arith
