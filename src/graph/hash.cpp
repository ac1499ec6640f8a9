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

void add_attrs(Hasher& hasher, const Node& node) {
  for (const auto& [name, attr] : node.attrs.all()) {
    hasher.add(name);
    add_attr(hasher, attr);
  }
  for (const GraphPtr& region : node.regions) hasher.add(structural_hash(*region));
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
    add_attrs(hasher, node);
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

uint64_t node_hash(const Graph& graph, const Node& node) {
  Hasher hasher;
  hasher.add(node.op->name);
  add_attrs(hasher, node);
  for (const auto* values : {&node.inputs, &node.outputs}) {
    hasher.add(static_cast<uint64_t>(values->size()));
    for (const ValueId value : *values) hasher.add(graph.type(value).to_string());
  }
  return hasher.value();
}

}  // namespace tessera::inline graph
