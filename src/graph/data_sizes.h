// Data symbols: sizes that a run finds among its data (the number of elements that are not zero, a K that is an
// operand). A graph declares each with its bound, an expression of other symbols; one bind_size node gives it its
// value, and whatever has it in a type or an attribute stands behind that node, in the same graph or in a region of a
// node there. A node need not read the bind_size node's result for that: the order of nodes counts. Regions bind no
// sizes, so that passes may copy them and move nodes out of them.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace tessera::inline graph {

using SymbolSet = std::unordered_set<const ExprNode*>;

bool has_data_symbols(const Graph& graph);

// The symbol that a bind_size node binds.
Var bound_symbol(const Node& node);

// Adds the symbols that the node's attributes and regions mention, and those of the types of its results.
void add_symbols(const Graph& graph, const Node& node, SymbolSet& symbols);
void add_symbols(const Shape& shape, SymbolSet& symbols);
// Those that bounds of symbols in the set mention, and so on. KnownSymbols has the bounds.
void add_symbols_of_bounds(SymbolSet& symbols);

// For passes that drop what nobody needs and walk over the nodes from the last to the first. REQUIRES: KnownSymbols has
// those of the graph.
class NeededSizes {
 public:
  explicit NeededSizes(const Graph& graph);
  // Whether a node that is kept needs what this one binds.
  bool needs(const Node& node) const;
  void keep(const Node& node);
  bool has(const Var& symbol) const { return symbols_.contains(symbol.get()); }

 private:
  const Graph& graph_;
  bool any_ = false;
  SymbolSet symbols_;
};

// What breaks the rules above, for messages.
std::vector<std::string> verify_data_sizes(const Graph& graph);

}  // namespace tessera::inline graph
