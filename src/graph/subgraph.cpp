#include "graph/subgraph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "graph/data_sizes.h"
#include "graph/op_def.h"

namespace tessera::inline graph {
namespace {

using Vars = std::unordered_set<const ExprNode*>;

void add_vars(const Shape& shape, Vars& vars) {
  for (const Expr& dim : shape)
    walk(dim, [&](const Expr& e) {
      if (e->kind == ExprKind::kVar) vars.insert(e.get());
    });
}

void add_vars(const Graph& graph, Vars& vars) {
  for (const Value& value : graph.values()) add_vars(value.type.shape, vars);
  for (const Node& node : graph.nodes()) {
    for (const auto& [name, attr] : node.attrs.all())
      if (const Shape* sizes = std::get_if<Shape>(&attr)) add_vars(*sizes, vars);
    for (const GraphPtr& region : node.regions) add_vars(*region, vars);
  }
}

}  // namespace

bool is_constant_value(const Graph& graph, ValueId id) {
  const Node* producer = graph.producer(id);
  return producer && producer->op->kind == OpKind::kConstant;
}

Subgraph subgraph_of(const Graph& graph, const std::set<NodeId>& nodes) {
  Subgraph part{nodes, {}, {}};
  const std::set<ValueId> model_outputs(graph.outputs.begin(), graph.outputs.end());
  const std::vector<std::vector<NodeId>> users = graph.users();
  std::set<ValueId> seen;
  for (const NodeId id : nodes) {
    const Node& node = graph.node(id);
    for (const ValueId input : node.inputs) {
      const bool given = is_constant_value(graph, input) || nodes.count(graph.value(input).producer);
      if (!given && seen.insert(input).second) part.inputs.push_back(input);
    }
    for (const ValueId output : node.outputs) {
      const std::vector<NodeId>& readers = users[static_cast<size_t>(output)];
      const bool outside = std::any_of(readers.begin(), readers.end(), [&](NodeId r) { return !nodes.count(r); });
      if (outside || readers.empty() || model_outputs.count(output)) part.outputs.push_back(output);
    }
  }
  return part;
}

Graph extract(const Graph& graph, const Subgraph& part) {
  std::vector<bool> read(graph.values().size(), false);
  for (const NodeId id : part.nodes)
    for (const ValueId input : graph.node(id).inputs) read[static_cast<size_t>(input)] = true;
  for (const ValueId output : part.outputs) read[static_cast<size_t>(output)] = true;

  Graph result;
  result.name = graph.name;
  result.symbols = graph.symbols;
  std::vector<ValueId> map(graph.values().size(), -1);
  for (const ValueId input : part.inputs)
    map[static_cast<size_t>(input)] = result.add_input(graph.value(input).name, graph.type(input));
  for (NodeId id = 0; id < std::ssize(graph.nodes()); ++id) {
    const Node& node = graph.node(id);
    const bool is_read_constant = node.op->kind == OpKind::kConstant && read[static_cast<size_t>(node.outputs[0])] &&
                                  map[static_cast<size_t>(node.outputs[0])] < 0;
    if (!is_read_constant && !part.nodes.count(id)) continue;
    Node clone = node;
    for (ValueId& input : clone.inputs) input = map[static_cast<size_t>(input)];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) {
      types.push_back(graph.type(output));
      names.push_back(graph.value(output).name);
    }
    const auto outputs = result.node(result.add_node(std::move(clone), std::move(types), std::move(names))).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = outputs[i];
  }
  for (const ValueId output : part.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  drop_unused_symbols(result);
  return result;
}

namespace {

// The numbers of a constant, whatever its shape.
using Numbers = std::pair<const std::byte*, int64_t>;

std::optional<Numbers> numbers_of(const Node& node) {
  if (node.op->kind != OpKind::kConstant) return std::nullopt;
  const TensorPtr value = node.attrs.get<TensorPtr>("value");
  if (value->num_elements() == 0) return std::nullopt;
  return Numbers{value->bytes(), value->num_bytes()};
}

// Constants that only other shapes of them are left of (Emitter::reshape) give their names to these: a bias is called
// what the file calls it.
void keep_names(const Graph& graph, const std::set<NodeId>& kept, Graph& result) {
  std::map<Numbers, std::string> gone;
  for (size_t id = 0; id < graph.nodes().size(); ++id)
    if (const auto numbers = numbers_of(graph.nodes()[id]); numbers && !kept.count(static_cast<NodeId>(id)))
      gone.emplace(*numbers, graph.value(graph.nodes()[id].outputs[0]).name);
  for (const Node& node : result.nodes()) {
    const auto numbers = numbers_of(node);
    const auto found = numbers ? gone.find(*numbers) : gone.end();
    if (found == gone.end()) continue;
    if (result.unique_name(found->second) == found->second) result.rename(node.outputs[0], found->second);
    gone.erase(found);
  }
}

}  // namespace

Graph needed_part(const Graph& graph) { return needed_part(graph, graph.inputs, graph.outputs); }

Graph needed_part(const Graph& graph, const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs) {
  Subgraph part{{}, inputs, outputs};
  std::vector<bool> needed(graph.values().size(), false);
  for (const ValueId output : outputs) needed[static_cast<size_t>(output)] = true;
  NeededSizes sizes(graph);
  for (auto id = static_cast<NodeId>(graph.nodes().size()); id-- > 0;) {
    const Node& node = graph.node(id);
    const auto is_needed = [&](ValueId output) { return needed[static_cast<size_t>(output)]; };
    if (!sizes.needs(node) && std::none_of(node.outputs.begin(), node.outputs.end(), is_needed)) continue;
    part.nodes.insert(id);
    for (const ValueId input : node.inputs) needed[static_cast<size_t>(input)] = true;
    sizes.keep(node);
  }
  Graph result = extract(graph, part);
  keep_names(graph, part.nodes, result);
  if (outputs == graph.outputs && inputs == graph.inputs) {
    result.states = graph.states;
    result.checks = graph.checks;
  }
  return result;
}

void drop_unused_symbols(Graph& graph) {
  Vars vars;
  add_vars(graph, vars);
  for (size_t i = graph.symbols.size(); i-- > 0;)
    if (graph.symbols[i].is_data() && vars.count(graph.symbols[i].var.get()))
      add_vars(Shape{graph.symbols[i].bound}, vars);
  std::erase_if(graph.symbols, [&](const SymbolRange& symbol) { return !vars.count(symbol.var.get()); });
}

}  // namespace tessera::inline graph
