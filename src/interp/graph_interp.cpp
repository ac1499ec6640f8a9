#include "interp/graph_interp.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "graph/control_flow.h"
#include "graph/data_sizes.h"
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

std::vector<Tensor> copies(const std::vector<const Tensor*>& tensors, size_t first) {
  std::vector<Tensor> result;
  for (size_t i = first; i < tensors.size(); ++i) result.push_back(*tensors[i]);
  return result;
}

// Copies `count` elements; a row of elements of less than a byte need not begin at a byte.
void copy_elements(const Tensor& from, int64_t from_index, Tensor& to, int64_t to_index, int64_t count) {
  if (dtype_bytes(from.dtype(), 2) != 2 * dtype_bytes(from.dtype(), 1)) {
    for (int64_t i = 0; i < count; ++i) to.set_int(to_index + i, from.get_int(from_index + i));
  } else {
    const int64_t size = dtype_bytes(from.dtype(), 1);
    std::copy_n(from.bytes() + from_index * size, count * size, to.mutable_bytes() + to_index * size);
  }
}

// Row `row` of dimension 0.
Tensor slice_of(const Tensor& x, int64_t row) {
  Tensor result(x.dtype(), std::vector<int64_t>(x.dims().begin() + 1, x.dims().end()));
  copy_elements(x, row * result.num_elements(), result, 0, result.num_elements());
  return result;
}

// Gives the node's symbol its value, which it answers.
Tensor bind_size(const Node& node, int64_t count, SymbolValues& symbols) {
  const Var symbol = bound_symbol(node);
  const SymbolRange* declared = KnownSymbols::find(symbol.get());
  check(declared && declared->is_data(), "a node that binds a size without a bound: " + symbol->name);
  Tensor value(DType::kI64, {});
  value.set_int(0, value_of_count(*declared, count, evaluate_index(declared->bound, symbols)));
  symbols[symbol.get()] = value.get_int(0);
  return value;
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
                                               const std::vector<const Tensor*>& inputs, SymbolValues& symbols) {
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
    case OpKind::kGroup:
    case OpKind::kCall: return run_region(*node.regions.at(0), copies(inputs, 0), symbols);
    case OpKind::kIf:
      return run_region(*node.regions.at(inputs[0]->get_int(0) != 0 ? 0 : 1), copies(inputs, first_captured(*node.op)),
                        symbols);
    case OpKind::kLoop: return run_loop(graph, node, inputs, symbols);
    case OpKind::kProcedure: return {evaluate_procedure(graph, node, inputs)};
    case OpKind::kExpression: return {evaluate_body(node_body(graph, node), inputs, symbols)};
    case OpKind::kBindSize: return {bind_size(node, inputs[0]->get_int(0), symbols)};
  }
  throw InternalError("unknown kind of operator");
}

std::vector<Tensor> GraphInterpreter::run_region(const Graph& region, const std::vector<Tensor>& operands,
                                                 const SymbolValues& symbols) {
  SymbolValues inner = symbols;
  bind_inputs(region, operands, inner);
  return run(region, operands, std::move(inner));
}

std::vector<Tensor> GraphInterpreter::run_loop(const Graph& graph, const Node& node,
                                               const std::vector<const Tensor*>& inputs, const SymbolValues& symbols) {
  const LoopParts parts = loop_parts(node);
  std::vector<Tensor> results;  // the carried values, then the stacked ones
  for (size_t i = 0; i < parts.carried; ++i) results.push_back(*inputs[parts.first_carried() + i]);
  for (size_t i = 0; i < parts.stacked; ++i) {
    const TensorType& type = graph.type(node.outputs[parts.carried + i]);
    std::vector<int64_t> dims;
    for (const Expr& extent : type.shape) dims.push_back(evaluate_index(extent, symbols));
    results.emplace_back(type.dtype, std::move(dims));
  }
  // How many iterations there are when no condition ends the loop.
  std::optional<int64_t> trip;
  if (parts.max_trip) trip = evaluate_index(*parts.max_trip, symbols);
  if (parts.scanned > 0) trip = inputs[parts.first_scanned()]->dims()[0];
  int64_t count = trip.value_or(INT64_MAX);
  if (parts.counted) count = std::min(count, inputs[0]->get_int(0));
  bool goes_on = !parts.has_condition || inputs[parts.condition()]->get_int(0) != 0;
  for (int64_t iteration = 0; goes_on && iteration < count; ++iteration) {
    const auto row = [&](int64_t reversed) { return reversed != 0 ? *trip - 1 - iteration : iteration; };
    Tensor number(DType::kI64, {});
    number.set_int(0, iteration);
    std::vector<Tensor> operands = {std::move(number)};
    for (size_t i = 0; i < parts.carried; ++i) operands.push_back(results[i]);
    for (size_t i = 0; i < parts.scanned; ++i)
      operands.push_back(slice_of(*inputs[parts.first_scanned() + i], row(parts.scan_reversed[i])));
    for (size_t i = 0; i < parts.invariants; ++i) operands.push_back(*inputs[parts.first_invariant() + i]);
    const std::vector<Tensor> next = run_region(*node.regions[0], operands, symbols);
    if (parts.has_condition) goes_on = next[0].get_int(0) != 0;
    for (size_t i = 0; i < parts.carried; ++i) results[i] = next[parts.first_carried_result() + i];
    for (size_t i = 0; i < parts.stacked; ++i) {
      const Tensor& part = next[parts.first_stacked_result() + i];
      copy_elements(part, 0, results[parts.carried + i], row(parts.stack_reversed[i]) * part.num_elements(),
                    part.num_elements());
    }
  }
  return results;
}

}  // namespace tessera::inline interp
