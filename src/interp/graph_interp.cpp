#include "interp/graph_interp.h"

#include <fmt/format.h>

#include <optional>

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "support/error.h"

namespace tessera::inline interp {
namespace {

std::string describe(const Tensor& tensor) {
  return fmt::format("{}[{}]", dtype_name(tensor.dtype()), fmt::join(tensor.dims(), ","));
}

[[noreturn]] void bad_input(const Graph& graph, size_t i, const Tensor& found, const std::string& why) {
  const Value& input = graph.value(graph.inputs[i]);
  throw UserError(
      {"TSR-2050", fmt::format("input {} is {}{}", input.name, describe(found), why), "", input.type.to_string(), ""});
}

// Whether every variable of `e` has a value.
bool is_bound(const Expr& e, const SymbolValues& symbols) {
  bool bound = true;
  walk(e, [&](const Expr& node) { bound &= node->kind != ExprKind::kVar || symbols.count(node.get()) != 0; });
  return bound;
}

// Gives the named dimensions of the inputs their values and checks what is already known.
void bind_inputs(const Graph& graph, const std::vector<Tensor>& inputs, SymbolValues& symbols) {
  if (inputs.size() != graph.inputs.size())
    throw UserError({"TSR-2050", fmt::format("{} inputs for graph {}", inputs.size(), graph.name), "",
                     fmt::format("{} inputs", graph.inputs.size()), ""});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = graph.type(graph.inputs[i]);
    if (inputs[i].dtype() != type.dtype || inputs[i].dims().size() != type.shape.size())
      bad_input(graph, i, inputs[i], "");
    for (size_t d = 0; d < type.shape.size(); ++d) {
      const Expr& extent = type.shape[d];
      if (extent->kind == ExprKind::kVar) symbols.emplace(extent.get(), inputs[i].dims()[d]);
    }
  }
  for (const SymbolRange& symbol : graph.symbols) {
    const auto it = symbols.find(symbol.var.get());
    if (it != symbols.end() && (it->second < symbol.lo || it->second > symbol.hi))
      throw UserError({"TSR-2050", fmt::format("dimension {} is {}", symbol.var->name, it->second), "",
                       fmt::format("{} to {}", symbol.lo, symbol.hi), ""});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = graph.type(graph.inputs[i]);
    for (size_t d = 0; d < type.shape.size(); ++d) {
      if (!is_bound(type.shape[d], symbols)) continue;
      const int64_t want = evaluate_index(type.shape[d], symbols);
      if (want != inputs[i].dims()[d])
        bad_input(graph, i, inputs[i], fmt::format(": dimension {} should be {}", d, want));
    }
  }
}

// The same bytes under other extents.
Tensor view(const Tensor& x, std::vector<int64_t> dims) {
  auto owner = std::make_shared<const Tensor>(x);
  const void* data = owner->bytes();
  return Tensor(x.dtype(), std::move(dims), std::move(owner), data);
}

}  // namespace

std::vector<Tensor> GraphInterpreter::evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  const KnownSymbols known(graph.symbols);
  SymbolValues symbols;
  bind_inputs(graph, inputs, symbols);
  return run(graph, inputs, std::move(symbols));
}

std::vector<Tensor> GraphInterpreter::run(const Graph& graph, const std::vector<Tensor>& inputs, SymbolValues symbols) {
  std::vector<std::optional<Tensor>> values(graph.values().size());
  std::vector<int> uses(graph.values().size(), 0);
  for (const Node& node : graph.nodes())
    for (ValueId input : node.inputs) ++uses[static_cast<size_t>(input)];
  for (ValueId output : graph.outputs) ++uses[static_cast<size_t>(output)];

  const auto define = [&](ValueId id, Tensor tensor) {
    if (observer_) observer_(graph, id, tensor);
    if (uses[static_cast<size_t>(id)] > 0) values[static_cast<size_t>(id)] = std::move(tensor);
  };
  for (size_t i = 0; i < inputs.size(); ++i) define(graph.inputs[i], inputs[i]);

  for (const Node& node : graph.nodes()) {
    std::vector<const Tensor*> operands;
    for (ValueId input : node.inputs) {
      const auto& value = values[static_cast<size_t>(input)];
      check(value.has_value(), "value " + graph.value(input).name + " is used before it is defined");
      operands.push_back(&*value);
    }
    std::vector<Tensor> results;
    const auto where = [&] {
      return fmt::format("node {} (%{}{})", node.op->name, graph.value(node.outputs[0]).name,
                         node.loc.empty() ? "" : ", " + node.loc);
    };
    try {
      results = run_node(graph, node, operands, symbols);
    } catch (const InternalError& error) {
      throw InternalError(fmt::format("{}: {}", where(), error.what()));
    }
    check(results.size() == node.outputs.size(), where() + " has another number of results");
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorType& type = graph.type(node.outputs[i]);
      std::vector<int64_t> dims;
      for (const Expr& extent : type.shape) dims.push_back(evaluate_index(extent, symbols));
      if (results[i].dtype() != type.dtype || results[i].dims() != dims)
        throw InternalError(
            fmt::format("{} gives {} and is declared {}", where(), describe(results[i]), type.to_string()));
      define(node.outputs[i], std::move(results[i]));
    }
    for (ValueId input : node.inputs)
      if (--uses[static_cast<size_t>(input)] == 0) values[static_cast<size_t>(input)].reset();
  }

  std::vector<Tensor> outputs;
  for (ValueId output : graph.outputs) {
    const auto& value = values[static_cast<size_t>(output)];
    check(value.has_value(), "output " + graph.value(output).name + " is not defined");
    outputs.push_back(*value);
  }
  return outputs;
}

std::vector<Tensor> GraphInterpreter::run_node(const Graph& graph, const Node& node,
                                               const std::vector<const Tensor*>& inputs, const SymbolValues& symbols) {
  switch (node.op->kind) {
    case OpKind::kConstant: {
      const TensorPtr& value = node.attrs.get<TensorPtr>("value");
      check(value->has_data(), "a constant whose data was left out of the text");
      return {*value};
    }
    case OpKind::kView: {
      std::vector<int64_t> dims;
      for (const Expr& extent : graph.type(node.outputs[0]).shape) dims.push_back(evaluate_index(extent, symbols));
      Tensor result = view(*inputs[0], std::move(dims));
      check(result.num_elements() == inputs[0]->num_elements(), "a view with another number of elements");
      return {std::move(result)};
    }
    case OpKind::kComposite:
    case OpKind::kGroup: {
      const Graph& region = *node.regions.at(0);
      std::vector<Tensor> operands;
      for (const Tensor* input : inputs) operands.push_back(*input);
      SymbolValues inner = symbols;
      bind_inputs(region, operands, inner);
      return run(region, operands, std::move(inner));
    }
    case OpKind::kProcedure: return {evaluate_procedure(graph, node, inputs)};
    case OpKind::kExpression: return {evaluate_body(node_body(graph, node), inputs, symbols)};
  }
  throw InternalError("unknown kind of operator");
}

}  // namespace tessera::inline interp
