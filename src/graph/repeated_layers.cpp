#include "graph/repeated_layers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/hash.h"
#include "graph/op_def.h"
#include "graph/subgraph.h"
#include "support/error.h"

namespace tessera::inline graph {
namespace {

constexpr int64_t kFewest = 3;     // layers that are worth a name
constexpr size_t kReadLayers = 2;  // that are read from behind the run

// The nodes that compute, in their order.
class ComputedNodes {
 public:
  explicit ComputedNodes(const Graph& graph) : graph_(graph), place_(graph.nodes().size(), -1) {
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      if (graph.nodes()[n].op->kind == OpKind::kConstant) continue;
      place_[n] = std::ssize(nodes_);
      nodes_.push_back(static_cast<NodeId>(n));
      hashes_.push_back(node_hash(graph, graph.nodes()[n]));
    }
  }

  size_t size() const { return nodes_.size(); }
  const Node& operator[](size_t i) const { return graph_.node(nodes_[i]); }
  // Of the node that computes the value; -1: an input or a constant.
  int64_t place_of(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer < 0 ? -1 : place_[static_cast<size_t>(producer)];
  }
  // Whether node `i + apart` does to its layer what node `i` does.
  bool are_alike(size_t i, size_t apart) const {
    if (hashes_[i] != hashes_[i + apart]) return false;
    const std::vector<ValueId>&a = (*this)[i].inputs, &b = (*this)[i + apart].inputs;
    for (size_t k = 0; k < a.size(); ++k) {
      if (a[k] == b[k]) continue;
      const bool constant = is_constant_value(graph_, a[k]);
      if (constant != is_constant_value(graph_, b[k])) return false;
      if (constant) continue;
      const int64_t from = place_of(a[k]), to = place_of(b[k]);
      if (from < 0 || to != from + static_cast<int64_t>(apart) || number(a[k]) != number(b[k])) return false;
    }
    return true;
  }
  // Which result of its node a value is.
  size_t number(ValueId value) const {
    const std::vector<ValueId>& outputs = graph_.producer(value)->outputs;
    return static_cast<size_t>(std::find(outputs.begin(), outputs.end(), value) - outputs.begin());
  }

 private:
  const Graph& graph_;
  std::vector<NodeId> nodes_;
  std::vector<int64_t> place_;  // by node of the graph
  std::vector<uint64_t> hashes_;
};

// Whether what stands behind the run reads no layer but the last ones.
bool ends_there(const Graph& graph, const ComputedNodes& nodes, const RepeatedLayers& layers) {
  const size_t first = layers.end - static_cast<size_t>(layers.count) * layers.nodes;
  const auto is_hidden = [&](ValueId value) {
    const int64_t place = nodes.place_of(value);
    return place >= static_cast<int64_t>(first) &&
           place < static_cast<int64_t>(layers.end - kReadLayers * layers.nodes);
  };
  for (size_t i = layers.end; i < nodes.size(); ++i)
    if (std::any_of(nodes[i].inputs.begin(), nodes[i].inputs.end(), is_hidden)) return false;
  return std::none_of(graph.outputs.begin(), graph.outputs.end(), is_hidden);
}

}  // namespace

std::optional<RepeatedLayers> repeated_layers(const Graph& graph) {
  const ComputedNodes nodes(graph);
  std::optional<RepeatedLayers> best;
  for (size_t apart = 1; apart * kFewest <= nodes.size(); ++apart) {
    size_t run = 0;  // of nodes that are alike so far apart
    for (size_t i = 0; i + apart <= nodes.size(); ++i) {
      if (i + apart < nodes.size() && nodes.are_alike(i, apart)) {
        ++run;
        continue;
      }
      const RepeatedLayers found{apart, i + apart, static_cast<int64_t>((run + apart) / apart)};
      run = 0;
      if (found.count < kFewest ||
          (best && static_cast<size_t>(found.count) * apart <= static_cast<size_t>(best->count) * best->nodes))
        continue;
      if (ends_there(graph, nodes, found)) best = found;
    }
  }
  return best;
}

Graph with_layers(const Graph& graph, const RepeatedLayers& layers, int64_t count) {
  check(count >= static_cast<int64_t>(kReadLayers) && count <= layers.count, "a graph with so many layers");
  check(graph.states.empty() && graph.checks.empty(), "layers of a graph with states");
  const ComputedNodes nodes(graph);
  const size_t left_out = static_cast<size_t>(layers.count - count) * layers.nodes;
  Graph result;
  result.copy_header(graph);
  std::vector<ValueId> map(graph.values().size(), -1);
  for (const ValueId input : graph.inputs)
    map[static_cast<size_t>(input)] = result.add_input(graph.value(input).name, graph.type(input));
  const auto copy = [&](const Node& node) {
    Node own = node;
    for (ValueId& input : own.inputs) input = map[static_cast<size_t>(input)];
    own.outputs.clear();
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) {
      types.push_back(graph.type(output));
      names.push_back(graph.value(output).name);
    }
    const NodeId id = result.add_node(std::move(own), std::move(types), std::move(names));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      map[static_cast<size_t>(node.outputs[i])] = result.node(id).outputs[i];
  };
  const auto take = [&](size_t i) {
    for (const ValueId input : nodes[i].inputs)
      if (map[static_cast<size_t>(input)] < 0 && is_constant_value(graph, input)) copy(*graph.producer(input));
    copy(nodes[i]);
  };
  for (size_t i = 0; i < layers.end - left_out; ++i) take(i);
  // What is read of the last layers is read of those that are the last ones now; backwards, for these may be some of
  // those.
  for (size_t i = layers.end; i-- > layers.end - kReadLayers * layers.nodes;)
    for (size_t o = 0; o < nodes[i].outputs.size(); ++o)
      map[static_cast<size_t>(nodes[i].outputs[o])] = map[static_cast<size_t>(nodes[i - left_out].outputs[o])];
  for (size_t i = layers.end; i < nodes.size(); ++i) take(i);
  for (const ValueId output : graph.outputs) {
    if (map[static_cast<size_t>(output)] < 0) copy(*graph.producer(output));
    result.outputs.push_back(map[static_cast<size_t>(output)]);
  }
  return result;
}

}  // namespace tessera::inline graph
