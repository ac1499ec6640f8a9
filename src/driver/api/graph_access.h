// The graph behind a builder::Graph, for the other files of the public API.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/formats.h"
#include "graph/graph.h"
#include "graph/tensor_text.h"
#include "tessera/graph.h"

namespace tessera::builder {

using IrGraph = tessera::Graph;

struct GraphState {
  IrGraph graph;
  SymbolScope symbols;
};

struct GraphAccess {
  static const std::shared_ptr<GraphState>& state(const Graph& graph) { return graph.state_; }
  static Graph graph(std::shared_ptr<GraphState> state) { return Graph(std::move(state)); }
  // The graph of the compiler as one of the API.
  static Graph graph(IrGraph graph);
  static Value value(std::shared_ptr<GraphState> state, ValueId id) { return Value(std::move(state), id); }
  static ValueId id(const Value& value) { return value.id_; }
  static const GraphState* owner(const Value& value) { return value.state_.get(); }
};

// TSR-2060 for a value of another graph; `node` is what the error names.
std::vector<ValueId> ids_of(const std::shared_ptr<GraphState>& state, const Values& operands, const std::string& node);
Values values_of(const std::shared_ptr<GraphState>& state, const std::vector<ValueId>& ids);

}  // namespace tessera::builder

namespace tessera::inline driver {

// The graph as a model. UserError TSR-2069 for one without outputs.
ModelReader reader_of(const builder::Graph& graph);

}  // namespace tessera::inline driver
