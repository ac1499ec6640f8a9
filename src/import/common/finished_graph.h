// What a reader does with its graph when all nodes are in it.
#pragma once

#include <optional>
#include <string>

#include <unordered_set>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline import_common {

// Adds the outputs of a graph whose inputs are all there. A value has one name: an output that is an input, or another
// output too, becomes a value of its own.
class OutputList {
 public:
  OutputList(GraphBuilder& builder, const OpTable& ops);
  // `name`: what is remembered as where a value of its own comes from; it is called so with `named`.
  void add(ValueId value, const std::string& name, bool named = true);

 private:
  GraphBuilder& builder_;
  const OpTable& ops_;
  std::unordered_set<ValueId> taken_;
};

// A run learns a symbol from an input that has it as a dimension: the name of one that no input has by itself.
std::optional<std::string> unlearned_symbol(const Graph& graph);

}  // namespace tessera::inline import_common
