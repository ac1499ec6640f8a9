#include "diagnose/model_outline.h"

#include <algorithm>
#include <map>

#include "graph/op_def.h"

namespace tessera::inline diagnose {
namespace {

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

// The operator's name, or that of the composite or the function.
std::string operator_name(const Node& node) {
  const bool named = node.op->kind == OpKind::kComposite || node.op->kind == OpKind::kCall;
  return named ? node.attrs.get_or<std::string>("name", node.op->name) : node.op->name;
}

}  // namespace

ModelOutline outline_of(const OnnxStatistics& model) {
  ModelOutline outline{model.graph_name, {}, {}, {}};
  for (const OnnxNodeEntry& node : model.nodes)
    outline.nodes.push_back({node.label, node.op_type, node.inputs, node.outputs});
  for (const OnnxTensorEntry& input : model.inputs) outline.inputs.push_back(input.name);
  for (const OnnxTensorEntry& output : model.outputs) outline.outputs.push_back(output.name);
  return outline;
}

ModelOutline outline_of(const Graph& graph) {
  ModelOutline outline{graph.name, {}, {}, {}};
  std::map<std::string, size_t> places;
  std::vector<std::vector<std::string>> operators;
  for (const Node& node : graph.nodes()) {
    if (node.op->kind == OpKind::kConstant) continue;
    const auto [place, inserted] = places.emplace(node.loc, outline.nodes.size());
    if (inserted) {
      outline.nodes.push_back({node.loc, "", {}, {}});
      operators.emplace_back();
    }
    OutlineNode& entry = outline.nodes[place->second];
    add_once(operators[place->second], operator_name(node));
    for (const ValueId input : node.inputs) add_once(entry.inputs, graph.value(input).name);
    for (const ValueId output : node.outputs) entry.outputs.push_back(graph.value(output).name);
  }
  for (size_t i = 0; i < operators.size(); ++i)
    for (const std::string& name : operators[i])
      outline.nodes[i].op_type += (outline.nodes[i].op_type.empty() ? "" : "+") + name;
  for (const ValueId input : graph.inputs) outline.inputs.push_back(graph.value(input).name);
  for (const ValueId output : graph.outputs) outline.outputs.push_back(graph.value(output).name);
  return outline;
}

Graph with_locations(Graph graph) {
  for (NodeId id = 0; id < std::ssize(graph.nodes()); ++id) {
    Node& node = graph.node(id);
    if (node.loc.empty()) node.loc = graph.value(node.outputs.at(0)).name;
  }
  return graph;
}

}  // namespace tessera::inline diagnose
