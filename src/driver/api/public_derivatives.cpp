// include/tessera/derivatives.h over the autodiff room.
#include "tessera/derivatives.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "autodiff/functions.h"
#include "driver/api/api_support.h"
#include "driver/api/graph_access.h"
#include "graph/subgraph.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::builder {

namespace {

bool is_real_value(const IrGraph& graph, ValueId value) { return is_real(graph.type(value).dtype); }

std::string names_of_real(const IrGraph& graph, const std::vector<ValueId>& values, size_t count) {
  std::string names;
  for (size_t i = 0; i < count; ++i)
    if (is_real_value(graph, values[i])) names += (names.empty() ? "" : ", ") + graph.value(values[i]).name;
  return names.empty() ? "none" : names;
}

// The place of a value of that name among the first `count`.
size_t place_of(const IrGraph& graph, const std::vector<ValueId>& values, size_t count, const std::string& name,
                const std::string& kind) {
  for (size_t i = 0; i < count; ++i)
    if (graph.value(values[i]).name == name) {
      if (is_real_value(graph, values[i])) return i;
      throw UserError({"TSR-2073", fmt::format("{} '{}' is {}", kind, name, graph.type(values[i]).to_string()), name,
                       "real numbers: " + names_of_real(graph, values, count), ""});
    }
  throw UserError({"TSR-2073", fmt::format("there is no {} '{}' to differentiate", kind, name), "",
                   names_of_real(graph, values, count), ""});
}

std::vector<size_t> inputs_of(const IrGraph& graph, const Names& wrt) {
  std::vector<size_t> places;
  for (const std::string& name : wrt)
    places.push_back(place_of(graph, graph.inputs, graph.num_own_inputs(), name, "input"));
  if (!wrt.empty()) return places;
  for (size_t i = 0; i < graph.num_own_inputs(); ++i)
    if (is_real_value(graph, graph.inputs[i])) places.push_back(i);
  if (places.empty())
    throw UserError({"TSR-2073", "the graph has no input of real numbers", "", "one to differentiate by", ""});
  return places;
}

size_t output_of(const IrGraph& graph, const std::string& name) {
  if (graph.num_own_outputs() == 0)
    throw UserError({"TSR-2069", "the graph has no outputs", "", "one output or more", "call Graph::output"});
  return place_of(graph, graph.outputs, graph.num_own_outputs(),
                  name.empty() ? graph.value(graph.outputs[0]).name : name, "output");
}

// The graph that `make` makes of the compiler's.
Graph derived(const Graph& graph, const std::function<IrGraph(const IrGraph&, const OpTable&)>& make) {
  return translate_errors([&] { return GraphAccess::graph(make(GraphAccess::state(graph)->graph, standard_ops())); });
}

// Elements of a value, as far as they are known.
int64_t elements_of_value(const IrGraph& graph, ValueId value) {
  const TensorType& type = graph.type(value);
  return type.is_static() ? type.num_elements() : 1;
}

}  // namespace

Graph grad(const Graph& graph, const std::string& output, const Names& wrt) {
  return derived(graph, [&](const IrGraph& g, const OpTable& ops) {
    return gradients_alone(g, output_of(g, output), inputs_of(g, wrt), ops);
  });
}

Graph value_and_grad(const Graph& graph, const std::string& output, const Names& wrt) {
  return derived(graph, [&](const IrGraph& g, const OpTable& ops) {
    return value_and_gradients(g, output_of(g, output), inputs_of(g, wrt), ops);
  });
}

Graph vjp(const Graph& graph, const Names& wrt) {
  return derived(graph,
                 [&](const IrGraph& g, const OpTable& ops) { return vector_jacobian(g, inputs_of(g, wrt), ops); });
}

Graph jvp(const Graph& graph, const Names& wrt) {
  return derived(graph,
                 [&](const IrGraph& g, const OpTable& ops) { return jacobian_vector(g, inputs_of(g, wrt), ops); });
}

Graph jacobian(const Graph& graph, const std::string& output, const Names& wrt, Jacobian mode) {
  return derived(graph, [&](const IrGraph& g, const OpTable& ops) {
    const size_t y = output_of(g, output);
    const std::vector<size_t> xs = inputs_of(g, wrt);
    bool reverse = mode == Jacobian::kReverse;
    if (mode == Jacobian::kAuto) {
      int64_t columns = 0;
      for (const size_t x : xs) columns += elements_of_value(g, g.inputs[x]);
      reverse = elements_of_value(g, g.outputs[y]) <= columns;
    }
    return tessera::jacobian(g, y, xs, reverse ? JacobianMode::kReverse : JacobianMode::kForward, ops);
  });
}

Graph hessian(const Graph& graph, const std::string& output, const Names& wrt) {
  return derived(graph, [&](const IrGraph& g, const OpTable& ops) {
    return tessera::hessian(g, output_of(g, output), inputs_of(g, wrt), ops);
  });
}

Graph hvp(const Graph& graph, const std::string& output, const Names& wrt) {
  return derived(graph, [&](const IrGraph& g, const OpTable& ops) {
    return hessian_vector(g, output_of(g, output), inputs_of(g, wrt), ops);
  });
}

Values add_graph(Graph& graph, const Graph& part, const Values& operands) {
  return translate_errors([&] {
    const std::shared_ptr<GraphState>& state = GraphAccess::state(graph);
    const IrGraph source = GraphAccess::state(part)->graph;  // a copy: `part` may be `graph`
    const std::vector<ValueId> inputs = ids_of(state, operands, source.name);
    if (!source.states.empty() || !source.checks.empty())
      throw UserError({"TSR-2070", fmt::format("the graph '{}' has states", source.name), source.name,
                       "a graph without states", "pass their values in as operands"});
    if (inputs.size() != source.inputs.size())
      throw UserError({"TSR-2005",
                       fmt::format("{} operands for a graph of {} inputs", inputs.size(), source.inputs.size()),
                       source.name, "an operand for each input", ""});
    const KnownSymbols known(state->graph.symbols);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorType &given = state->graph.type(inputs[i]), &wanted = source.type(source.inputs[i]);
      bool fits = given.dtype == wanted.dtype && given.rank() == wanted.rank();
      for (size_t d = 0; fits && d < given.shape.size(); ++d) fits = equal_extents(given.shape[d], wanted.shape[d]);
      if (!fits)
        throw UserError({"TSR-2005", fmt::format("operand {} is {}", i + 1, given.to_string()), source.name,
                         fmt::format("{}, as input '{}'", wanted.to_string(), source.value(source.inputs[i]).name),
                         ""});
    }
    std::vector<ValueId> map(source.values().size(), -1);
    for (size_t i = 0; i < inputs.size(); ++i) map[static_cast<size_t>(source.inputs[i])] = inputs[i];
    for (const Node& node : source.nodes()) {
      Node copy = node;
      for (ValueId& v : copy.inputs) v = map[static_cast<size_t>(v)];
      std::vector<TensorType> types;
      std::vector<std::string> names;
      for (const ValueId v : node.outputs) {
        types.push_back(source.type(v));
        names.push_back(source.value(v).name);
      }
      IrGraph& to = state->graph;
      const std::vector<ValueId> made =
          to.node(to.add_node(std::move(copy), std::move(types), std::move(names))).outputs;
      for (size_t i = 0; i < made.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = made[i];
    }
    std::vector<ValueId> results;
    for (const ValueId v : source.outputs) results.push_back(map[static_cast<size_t>(v)]);
    return values_of(state, results);
  });
}

Pieces pieces_of(const Graph& graph) {
  return translate_errors([&] {
    const IrGraph& source = GraphAccess::state(graph)->graph;
    const KnownSymbols known(source.symbols);
    Pieces result;
    result.inputs.assign(source.inputs.begin(), source.inputs.end());
    result.outputs.assign(source.outputs.begin(), source.outputs.end());
    const auto add = [&](const Subgraph& part) {
      result.pieces.push_back({GraphAccess::graph(extract(source, part)), part.inputs, part.outputs});
    };
    for (NodeId id = 0; id < std::ssize(source.nodes()); ++id) {
      const Node& node = source.node(id);
      const bool is_output =
          std::find(source.outputs.begin(), source.outputs.end(), node.outputs[0]) != source.outputs.end();
      if (node.op->kind == OpKind::kConstant && !is_output) continue;
      Subgraph part{{id}, {}, node.outputs};
      for (const ValueId v : node.inputs)
        if (!is_constant_value(source, v) && std::find(part.inputs.begin(), part.inputs.end(), v) == part.inputs.end())
          part.inputs.push_back(v);
      add(part);
    }
    return result;
  });
}

}  // namespace tessera::builder
