#include "graph/verify.h"

#include <fmt/format.h>

#include <functional>
#include <unordered_set>

#include "arith/simplify.h"
#include "graph/control_flow.h"
#include "graph/data_sizes.h"
#include "graph/op_def.h"
#include "graph/tensor_text.h"
#include "support/error.h"

namespace tessera::inline graph {
namespace {

std::string describe(const Graph& graph, const Node& node) {
  std::string text = "node ";
  if (!node.loc.empty()) text += node.loc + " ";
  text += "(" + (node.op ? node.op->name : "?");
  const bool named =
      !node.outputs.empty() && node.outputs[0] >= 0 && static_cast<size_t>(node.outputs[0]) < graph.values().size();
  if (named) text += " %" + graph.value(node.outputs[0]).name;
  return text + ")";
}

bool exists(const Graph& graph, ValueId id) { return id >= 0 && static_cast<size_t>(id) < graph.values().size(); }

class Verifier {
 public:
  explicit Verifier(std::vector<std::string>& problems) : problems_(problems) {}

  void graph(const Graph& graph, std::unordered_set<const ExprNode*> symbols, const std::string& where) {
    const auto report = [&](const std::string& rule) { problems_.push_back(where + rule); };
    for (const SymbolRange& symbol : graph.symbols) {
      if (!symbol.var || symbol.var->kind != ExprKind::kVar) report("a symbol is no variable");
      else symbols.insert(symbol.var.get());
      if (symbol.lo < 0 || symbol.hi < symbol.lo) report("the range of a symbol is empty or negative");
    }
    std::unordered_set<std::string> names;
    for (const Value& value : graph.values()) {
      if (value.name.empty()) report("a value has no name");
      else if (!names.insert(value.name).second) report(fmt::format("two values are named %{}", value.name));
      type(value, symbols, where);
    }
    std::vector<bool> defined(graph.values().size(), false);
    for (const ValueId input : graph.inputs) {
      if (!exists(graph, input)) report("a graph input does not exist");
      else if (defined[static_cast<size_t>(input)])
        report(fmt::format("input %{} is listed twice", graph.value(input).name));
      else if (graph.value(input).producer != -1)
        report(fmt::format("input %{} has a producer", graph.value(input).name));
      else defined[static_cast<size_t>(input)] = true;
    }
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      const std::string here = where + describe(graph, node) + ": ";
      bool readable = node.op != nullptr;
      if (!node.op) problems_.push_back(here + "no operator");
      for (const ValueId input : node.inputs) {
        const bool known = exists(graph, input) && defined[static_cast<size_t>(input)];
        if (!known)
          problems_.push_back(here + fmt::format("reads {} before it is defined", exists(graph, input)
                                                                                      ? "%" + graph.value(input).name
                                                                                      : "a missing value"));
        readable &= known;
      }
      for (const ValueId output : node.outputs) {
        if (!exists(graph, output) || defined[static_cast<size_t>(output)] ||
            graph.value(output).producer != static_cast<NodeId>(i)) {
          problems_.push_back(here + "a result is missing, defined twice or has another producer");
          readable = false;
        } else {
          defined[static_cast<size_t>(output)] = true;
        }
      }
      if (!readable) continue;
      for (const std::string& problem : verify_node(graph, node)) problems_.push_back(where + problem);
      for (const GraphPtr& region : node.regions) {
        if (!region) continue;
        if (!region->checks.empty()) problems_.push_back(here + "its region has checks");
        if (!region->states.empty()) problems_.push_back(here + "its region has states");
        this->graph(*region, symbols, here + "in its region: ");
      }
    }
    for (const ValueId output : graph.outputs)
      if (!exists(graph, output) || !defined[static_cast<size_t>(output)]) report("a graph output is not defined");
    states(graph, report);
    checks(graph, report);
    for (size_t i = 0; i < defined.size(); ++i)
      if (!defined[i]) report(fmt::format("%{} has no definition", graph.values()[i].name));
  }

 private:
  void states(const Graph& graph, const std::function<void(const std::string&)>& report) {
    const size_t count = graph.states.size();
    if (count > graph.inputs.size() ||
        (graph.checks.size() <= graph.outputs.size() && count + graph.checks.size() > graph.outputs.size()))
      return report("more states than inputs or outputs");
    if (graph.checks.size() > graph.outputs.size()) return;  // said elsewhere
    std::unordered_set<std::string> names;
    for (size_t i = 0; i < count; ++i) {
      const State& state = graph.states[i];
      if (state.name.empty()) report("a state has no name");
      else if (!names.insert(state.name).second) report(fmt::format("two states are named {}", state.name));
      if (!exists(graph, graph.state_input(i)) || !exists(graph, graph.state_output(i))) continue;
      const TensorType &before = graph.type(graph.state_input(i)), &after = graph.type(graph.state_output(i));
      if (!types_agree(before, after))
        report(fmt::format("state {} is {} before a call and {} after it", state.name, before.to_string(),
                           after.to_string()));
      if (state.initial &&
          (state.initial->dtype() != before.dtype || static_dims(before.shape) != state.initial->dims()))
        report(fmt::format("the initial value of state {} does not have the type {}", state.name, before.to_string()));
    }
  }

  void checks(const Graph& graph, const std::function<void(const std::string&)>& report) {
    if (graph.checks.size() > graph.outputs.size()) return report("more checks than outputs");
    for (size_t i = graph.first_check(); i < graph.outputs.size(); ++i) {
      if (!exists(graph, graph.outputs[i])) continue;
      const TensorType& type = graph.type(graph.outputs[i]);
      const auto count = type.rank() == 1 ? as_int(type.shape[0]) : std::nullopt;
      if (type.dtype != DType::kI64 || !count || *count < 1 || *count > kMaxCheckedValues + 1)
        report(fmt::format("check %{} is {} instead of a list of i64", graph.value(graph.outputs[i]).name,
                           type.to_string()));
    }
  }

  void type(const Value& value, const std::unordered_set<const ExprNode*>& symbols, const std::string& where) {
    const auto report = [&](const std::string& rule) {
      problems_.push_back(fmt::format("{}%{}: {}", where, value.name, rule));
    };
    std::vector<int64_t> known;
    for (const Expr& dim : value.type.shape) {
      if (!dim || dim.dtype() != DType::kI64) {
        report("a dimension is not of type i64");
        continue;
      }
      if (const auto extent = as_int(dim)) known.push_back(*extent);
      walk(dim, [&](const Expr& e) {
        if (e->kind == ExprKind::kVar && !symbols.count(e.get()))
          report(fmt::format("symbol {} is not declared by the graph", e->name));
        if (e->kind == ExprKind::kLoad) report("a dimension loads from a buffer");
      });
    }
    if (!checked_bytes(value.type.dtype, known))
      report("a negative dimension or too many bytes: " + value.type.to_string());
    if (const std::string problem = layout_problem(value.type.layout, value.type.rank()); !problem.empty())
      report("layout " + value.type.layout.to_string() + ": " + problem);
  }

  std::vector<std::string>& problems_;
};

// Layouts: who may have one that is not row-major, and whose layouts must agree.
void verify_layouts(const Graph& graph, const Node& node, const std::function<void(const std::string&)>& report) {
  if (node.op->kind == OpKind::kConstant || node.op->kind == OpKind::kView || node.op->kind == OpKind::kProcedure ||
      is_control_flow(node)) {
    for (const auto* list : {&node.inputs, &node.outputs})
      for (const ValueId id : *list)
        if (!graph.type(id).layout.row_major()) report(fmt::format("%{} must be row-major", graph.value(id).name));
  }
  if (is_control_flow(node)) {
    for (const GraphPtr& region : node.regions)
      for (const auto* list : {&region->inputs, &region->outputs})
        for (const ValueId id : *list)
          if (exists(*region, id) && !region->type(id).layout.row_major())
            report(fmt::format("%{} of its region must be row-major", region->value(id).name));
  }
  if (node.op->kind == OpKind::kGroup && node.regions.size() == 1 && node.regions[0]) {
    const Graph& region = *node.regions[0];
    for (size_t i = 0; i < std::min(node.inputs.size(), region.inputs.size()); ++i)
      if (!(graph.type(node.inputs[i]).layout == region.type(region.inputs[i]).layout))
        report(fmt::format("operand {} and input %{} of the region differ in layout", i,
                           region.value(region.inputs[i]).name));
    for (size_t i = 0; i < std::min(node.outputs.size(), region.outputs.size()); ++i)
      if (!(graph.type(node.outputs[i]).layout == region.type(region.outputs[i]).layout))
        report(fmt::format("result {} and the region differ in layout", i));
  }
  if (node.op->name == "relayout") {
    const Layout* layout = node.attrs.has("layout") ? std::get_if<Layout>(&node.attrs.all().at("layout")) : nullptr;
    if (layout && node.outputs.size() == 1 && !(graph.type(node.outputs[0]).layout == *layout))
      report("the result does not have the layout of the attribute");
  }
}

}  // namespace

bool types_agree(const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype || a.rank() != b.rank()) return false;
  for (size_t i = 0; i < a.shape.size(); ++i) {
    const auto da = as_int(a.shape[i]);
    const auto db = as_int(b.shape[i]);
    if (da && db) {
      if (*da != *db) return false;
      continue;
    }
    if (structurally_equal(a.shape[i], b.shape[i])) continue;
    const auto difference = as_int(simplify(a.shape[i] - b.shape[i]));
    if (difference && *difference != 0) return false;
  }
  return true;
}

std::vector<std::string> verify_node(const Graph& graph, const Node& node) {
  std::vector<std::string> problems;
  const auto report = [&](const std::string& rule) { problems.push_back(describe(graph, node) + ": " + rule); };
  std::vector<TensorType> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(graph.type(input));
  std::vector<TensorType> types;
  try {
    types = infer_types(*node.op, inputs, node.attrs, node.regions, node.loc);
  } catch (const UserError& error) {
    report(error.diagnostic().message + " (legal: " + error.diagnostic().legal + ")");
    return problems;
  }
  if (types.size() != node.outputs.size()) {
    report(fmt::format("{} results instead of {}", node.outputs.size(), types.size()));
    return problems;
  }
  for (size_t i = 0; i < types.size(); ++i)
    if (!types_agree(types[i], graph.type(node.outputs[i])))
      report(fmt::format("result {} is {}, but the operator gives {}", i, graph.type(node.outputs[i]).to_string(),
                         types[i].to_string()));
  verify_layouts(graph, node, report);
  return problems;
}

std::vector<std::string> verify(const Graph& graph) {
  std::vector<std::string> problems;
  const KnownSymbols known(graph.symbols);
  Verifier(problems).graph(graph, {}, "");
  for (std::string& problem : verify_data_sizes(graph)) problems.push_back(std::move(problem));
  return problems;
}

void verify_or_throw(const Graph& graph, std::string_view after_pass) {
  const std::vector<std::string> problems = verify(graph);
  if (problems.empty()) return;
  std::string text = fmt::format("the graph is broken after {}:", after_pass);
  for (size_t i = 0; i < problems.size() && i < 10; ++i) text += "\n  " + problems[i];
  if (problems.size() > 10) text += fmt::format("\n  and {} more", problems.size() - 10);
  throw InternalError(text);
}

}  // namespace tessera::inline graph
