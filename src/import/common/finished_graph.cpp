#include "import/common/finished_graph.h"

#include <algorithm>
#include <unordered_set>

namespace tessera::inline import_common {

OutputList::OutputList(GraphBuilder& builder, const OpTable& ops)
    : builder_(builder), ops_(ops), taken_(builder.graph().inputs.begin(), builder.graph().inputs.end()) {}

void OutputList::add(ValueId value, const std::string& name, bool named) {
  Graph& graph = builder_.graph();
  if (!taken_.insert(value).second) {
    builder_.set_loc(name);
    value = builder_.add(ops_.get("reshape"), {value}, {{"shape", graph.type(value).shape}},
                         named ? graph.unique_name(name) : std::string());
    taken_.insert(value);
  }
  graph.outputs.push_back(value);
}

std::optional<std::string> unlearned_symbol(const Graph& graph) {
  std::unordered_set<const ExprNode*> learned;
  for (const ValueId input : graph.inputs)
    for (const Expr& size : graph.type(input).shape)
      if (size->kind == ExprKind::kVar) learned.insert(size.get());
  for (const SymbolRange& symbol : graph.symbols)
    if (!symbol.is_data() && !learned.count(symbol.var.get())) return symbol.var->name;
  return std::nullopt;
}

}  // namespace tessera::inline import_common
