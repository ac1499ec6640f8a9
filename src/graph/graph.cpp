#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/op_def.h"
#include "support/error.h"

namespace tessera::inline graph {

void Graph::copy_header(const Graph& other) {
  name = other.name;
  symbols = other.symbols;
  states = other.states;
  checks = other.checks;
}

ValueId Graph::add_input(std::string name, TensorType type) {
  const auto id = static_cast<ValueId>(values_.size());
  const std::string unique = unique_name(name.empty() ? "input" : name);
  names_.emplace(unique, id);
  values_.push_back({unique, std::move(type), -1});
  inputs.push_back(id);
  return id;
}

NodeId Graph::add_node(Node node, std::vector<TensorType> types, std::vector<std::string> names) {
  check(node.op != nullptr, "a node without an operator");
  check(names.size() <= types.size(), "more result names than results");
  for (const ValueId input : node.inputs)
    check(input >= 0 && static_cast<size_t>(input) < values_.size(), "a node reads a value that does not exist");
  const auto id = static_cast<NodeId>(nodes_.size());
  node.outputs.clear();
  for (size_t i = 0; i < types.size(); ++i) {
    const auto value = static_cast<ValueId>(values_.size());
    const std::string name = unique_name(i < names.size() && !names[i].empty() ? names[i] : node.op->name);
    names_.emplace(name, value);
    values_.push_back({name, std::move(types[i]), id});
    node.outputs.push_back(value);
  }
  nodes_.push_back(std::move(node));
  return id;
}

std::string Graph::unique_name(const std::string& hint) {
  if (names_.count(hint) == 0) return hint;
  int& suffix = suffix_[hint];
  std::string name;
  do {
    name = fmt::format("{}_{}", hint, ++suffix);
  } while (names_.count(name) != 0);
  return name;
}

void Graph::rename(ValueId id, const std::string& name) {
  std::string& current = value(id).name;
  if (current == name) return;
  check(!name.empty() && names_.count(name) == 0, "rename to an empty or taken name: " + name);
  names_.erase(current);
  names_.emplace(name, id);
  current = name;
}

std::vector<std::vector<NodeId>> Graph::users() const {
  std::vector<std::vector<NodeId>> users(values_.size());
  for (size_t i = 0; i < nodes_.size(); ++i)
    for (const ValueId input : nodes_[i].inputs) users[static_cast<size_t>(input)].push_back(static_cast<NodeId>(i));
  return users;
}

std::vector<ValueId> GraphBuilder::add_multi(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                                             std::vector<GraphPtr> regions, std::vector<std::string> names) {
  std::vector<TensorType> input_types;
  for (const ValueId input : inputs) input_types.push_back(graph_.type(input));
  std::vector<TensorType> types = infer_types(op, input_types, attrs, regions, loc_);
  Node node;
  node.op = &op;
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  node.regions = std::move(regions);
  node.loc = loc_;
  return graph_.node(graph_.add_node(std::move(node), std::move(types), std::move(names))).outputs;
}

ValueId GraphBuilder::add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, std::string name) {
  const auto outputs = add_multi(op, std::move(inputs), std::move(attrs), {}, {std::move(name)});
  check(outputs.size() == 1, "operator " + op.name + " does not have exactly one result");
  return outputs[0];
}

GraphRewriter::GraphRewriter(const Graph& source) : source_(source), map_(source.values().size(), -1) {
  target_.copy_header(source);
}

Graph GraphRewriter::run(const std::function<Visit>& visit) {
  for (const ValueId input : source_.inputs)
    map_[static_cast<size_t>(input)] = target_.add_input(source_.value(input).name, source_.type(input));

  std::vector<bool> is_output(source_.values().size(), false);
  for (const ValueId output : source_.outputs) is_output[static_cast<size_t>(output)] = true;
  // Values of the target that cannot take over the name of a further output.
  std::vector<ValueId> named = target_.inputs;
  const auto is_named = [&](ValueId id) { return std::find(named.begin(), named.end(), id) != named.end(); };

  for (const Node& node : source_.nodes()) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(mapped(input));
    std::vector<ValueId> outputs = visit(*this, node, inputs);
    if (!outputs.empty()) {
      check(outputs.size() == node.outputs.size(),
            "a rewrite of " + node.op->name + " returned a wrong number of values");
      for (size_t i = 0; i < outputs.size(); ++i)
        if (is_output[static_cast<size_t>(node.outputs[i])] && is_named(outputs[i])) outputs.clear();
    }
    if (outputs.empty()) outputs = copy(node, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      map_[static_cast<size_t>(node.outputs[i])] = outputs[i];
      if (is_output[static_cast<size_t>(node.outputs[i])]) named.push_back(outputs[i]);
    }
  }

  for (const ValueId output : source_.outputs) {
    const ValueId value = mapped(output);
    const std::string& name = source_.value(output).name;
    target_.outputs.push_back(value);
    if (target_.value(value).name == name) continue;
    // Whoever holds the name now is an inner value: outputs and inputs have distinct names in the source.
    for (size_t i = 0; i < target_.values().size(); ++i)
      if (target_.values()[i].name == name) target_.rename(static_cast<ValueId>(i), target_.unique_name(name));
    target_.rename(value, name);
  }
  return std::move(target_);
}

std::vector<ValueId> GraphRewriter::copy(const Node& node, const std::vector<ValueId>& inputs) {
  Node clone = node;
  clone.inputs = inputs;
  std::vector<TensorType> types;
  std::vector<std::string> names;
  for (const ValueId output : node.outputs) {
    types.push_back(source_.type(output));
    names.push_back(source_.value(output).name);
  }
  return target_.node(target_.add_node(std::move(clone), std::move(types), std::move(names))).outputs;
}

}  // namespace tessera::inline graph
