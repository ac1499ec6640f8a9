// Sizes that are expressions of symbols, as sympy's srepr writes them:
// "Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1))".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arith/expr.h"

namespace tessera::inline aten {

// Sums, products, quotients rounded down with their remainders, powers of symbols, maxima and minima; empty for
// anything else, and when `symbol` has nothing for a name.
std::optional<Expr> parse_size(std::string_view text,
                               const std::function<std::optional<Expr>(const std::string& name)>& symbol);

// The symbols of an expression, each once; of a text that is no expression those of its beginning.
std::vector<std::string> symbols_of(std::string_view text);
// Its name when the expression is nothing but a symbol, else empty.
std::string lone_symbol(std::string_view text);

}  // namespace tessera::inline aten
