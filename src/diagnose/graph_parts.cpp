#include "diagnose/graph_parts.h"

#include <algorithm>
#include <span>

#include "graph/bind_symbols.h"
#include "graph/data_sizes.h"
#include "graph/op_def.h"
#include "support/error.h"

namespace tessera::inline diagnose {
namespace {

std::string op_type_of(const Node& node, const std::map<std::string, std::string>& op_types) {
  if (const auto own = op_types.find(node.loc); own != op_types.end()) return own->second;
  const bool named = node.op->kind == OpKind::kComposite || node.op->kind == OpKind::kCall;
  return named ? node.attrs.get_or<std::string>("name", node.op->name) : node.op->name;
}

}  // namespace

GraphParts::GraphParts(Graph graph, const std::map<std::string, std::string>& op_types) : graph_(std::move(graph)) {
  check(graph_.states.empty(), "a graph with states is cut");
  for (const ValueId input : graph_.inputs) inputs_.push_back(graph_.value(input).name);
  for (const ValueId output : std::span(graph_.outputs).first(graph_.num_own_outputs()))
    outputs_.push_back(graph_.value(output).name);
  for (size_t i = 0; i < graph_.values().size(); ++i) values_[graph_.values()[i].name] = static_cast<ValueId>(i);
  for (NodeId id = 0; id < std::ssize(graph_.nodes()); ++id) {
    const Node& node = graph_.node(id);
    if (node.op->kind == OpKind::kConstant) continue;
    PartNode entry{node.loc, op_type_of(node, op_types), {}, {}};
    if (entry.label.empty()) entry.label = graph_.value(node.outputs.at(0)).name;
    const auto number = static_cast<int>(nodes_.size());
    for (const ValueId input : node.inputs) {
      const std::string& name = graph_.value(input).name;
      if (is_constant_value(graph_, input)) continue;
      if (std::find(entry.reads.begin(), entry.reads.end(), name) != entry.reads.end()) continue;
      entry.reads.push_back(name);
      readers_[name].push_back(number);
    }
    for (const ValueId output : node.outputs) {
      entry.gives.push_back(graph_.value(output).name);
      producers_[entry.gives.back()] = number;
    }
    if (node.op->kind == OpKind::kBindSize) data_sizes_[bound_symbol(node).get()] = {number, entry.gives.at(0)};
    nodes_.push_back(std::move(entry));
    ids_.push_back(id);
  }
}

int GraphParts::producer(const std::string& name) const {
  const auto it = producers_.find(name);
  return it == producers_.end() ? -1 : it->second;
}

std::vector<int> GraphParts::readers(const std::string& name) const {
  const auto it = readers_.find(name);
  return it == readers_.end() ? std::vector<int>() : it->second;
}

GraphParts::Part GraphParts::part(const std::set<int>& nodes) const {
  Part part{nodes, {}, {}};
  const auto subgraph_now = [&] {
    std::set<NodeId> ids;
    for (const int number : part.nodes) ids.insert(ids_[static_cast<size_t>(number)]);
    return subgraph_of(graph_, ids);
  };
  Subgraph subgraph = subgraph_now();
  if (!data_sizes_.empty()) {
    SymbolSet of_inputs;
    for (const ValueId input : subgraph.inputs) add_symbols(graph_.type(input).shape, of_inputs);
    for (const ExprNode* symbol : of_inputs)
      if (const auto size = data_sizes_.find(symbol); size != data_sizes_.end()) part.nodes.erase(size->second.node);
    subgraph = subgraph_now();
    SymbolSet mentioned = of_inputs;
    for (const NodeId id : subgraph.nodes) add_symbols(graph_, graph_.node(id), mentioned);
    for (const auto& [symbol, size] : data_sizes_)
      if (mentioned.contains(symbol) && !part.nodes.count(size.node)) part.sizes[symbol->name] = size.value;
  }
  for (const ValueId input : subgraph.inputs) part.inputs.push_back(graph_.value(input).name);
  for (const ValueId output : subgraph.outputs) part.outputs.push_back(graph_.value(output).name);
  return part;
}

Graph GraphParts::graph_of(const Part& part, const std::map<std::string, int64_t>& sizes) const {
  Subgraph subgraph;
  for (const int number : part.nodes) subgraph.nodes.insert(ids_[static_cast<size_t>(number)]);
  for (const std::string& name : part.inputs) subgraph.inputs.push_back(values_.at(name));
  for (const std::string& name : part.outputs) subgraph.outputs.push_back(values_.at(name));
  return bind_symbols(extract(graph_, subgraph), sizes);
}

std::vector<std::string> GraphParts::labels(const std::set<int>& nodes) const {
  std::vector<std::string> result;
  for (const int number : nodes) {
    const std::string& label = nodes_[static_cast<size_t>(number)].label;
    if (std::find(result.begin(), result.end(), label) == result.end()) result.push_back(label);
  }
  return result;
}

}  // namespace tessera::inline diagnose
