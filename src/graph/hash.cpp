#include "graph/hash.h"

#include "graph/op_def.h"
#include "graph/printer.h"
#include "support/hash.h"

namespace tessera::inline graph {
namespace {

void add_attr(Hasher& hasher, const Attr& attr) {
  hasher.add(static_cast<uint64_t>(attr.index()));
  if (const auto* tensor = std::get_if<TensorPtr>(&attr)) {
    hasher.add(*tensor ? (*tensor)->content_hash() : 0);
  } else {
    hasher.add(attr_text(attr));
  }
}

}  // namespace

uint64_t structural_hash(const Graph& graph) {
  std::vector<uint64_t> hashes(graph.values().size());
  Hasher whole;
  for (const SymbolRange& symbol : graph.symbols) {
    whole.add(symbol.var->name);
    whole.add(static_cast<uint64_t>(symbol.lo));
    whole.add(static_cast<uint64_t>(symbol.hi));
    if (symbol.is_data()) whole.add(to_string(symbol.bound));
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    Hasher hasher;
    hasher.add(static_cast<uint64_t>(i));
    hasher.add(graph.type(graph.inputs[i]).to_string());
    whole.add(hashes[static_cast<size_t>(graph.inputs[i])] = hasher.value());
  }
  for (const Node& node : graph.nodes()) {
    Hasher hasher;
    hasher.add(node.op->name);
    for (const ValueId input : node.inputs) hasher.add(hashes[static_cast<size_t>(input)]);
    for (const auto& [name, attr] : node.attrs.all()) {
      hasher.add(name);
      add_attr(hasher, attr);
    }
    for (const GraphPtr& region : node.regions) hasher.add(structural_hash(*region));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Hasher result = hasher;
      result.add(static_cast<uint64_t>(i));
      result.add(graph.type(node.outputs[i]).to_string());
      hashes[static_cast<size_t>(node.outputs[i])] = result.value();
    }
  }
  whole.add(static_cast<uint64_t>(graph.outputs.size()));
  for (const ValueId output : graph.outputs) whole.add(hashes[static_cast<size_t>(output)]);
  for (const State& state : graph.states) {
    whole.add(state.name);
    whole.add(state.initial ? state.initial->content_hash() : 0);
  }
  for (const RuntimeCheck& check : graph.checks) {
    whole.add(check.what);
    whole.add(check.legal);
  }
  return whole.value();
}

}  // namespace tessera::inline graph
