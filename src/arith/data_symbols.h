// Symbols to which data give values in a run (SymbolRange::bound).
#pragma once

#include <string>
#include <vector>

#include "arith/tensor_type.h"

namespace tessera::inline arith {

// A fresh one. `bound` is an expression of symbols that KnownSymbols knows; hi is its largest value, INT64_MAX when
// that is not known.
SymbolRange data_symbol(std::string name, Expr bound);

// The value that a run gives the symbol, which found `count` and whose bound is `most` there: never outside of the
// range.
int64_t value_of_count(const SymbolRange& symbol, int64_t count, int64_t most);

// Whether `e` has one of the data symbols among `symbols`.
bool uses_data_symbols(const Expr& e, const std::vector<SymbolRange>& symbols);

// An expression without data symbols that `e`, a size, does not exceed whatever their values are; `e` itself where it
// has none. Null where no rule gives one.
Expr bound_of_size(const Expr& e, const std::vector<SymbolRange>& symbols);

}  // namespace tessera::inline arith
