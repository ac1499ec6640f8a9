#include "import/onnx/operators/region_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"
#include "import/common/failure_list.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/structures.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;
using Why = NotInGraph::Why;
using Results = std::variant<std::vector<ValueId>, NotInGraph>;

std::vector<TensorType> types_of(NodeContext& c, const std::vector<ValueId>& values) {
  std::vector<TensorType> types;
  for (const ValueId value : values) types.push_back(c.type(value));
  return types;
}

// The results of a subgraph, when all of them are tensors of the graph.
Results opened(NodeContext& inner, const onnx::GraphProto& subgraph, const std::vector<ValueId>& inputs) {
  const auto results = inner.try_open(subgraph, {inputs.begin(), inputs.end()});
  if (!results) return NotInGraph{Why::kFailed};
  std::vector<ValueId> values;
  for (const Binding& result : *results) {
    if (!result.is_value())
      return NotInGraph{Why::kRun,
                        fmt::format("a result of a subgraph that is {}", inner.flow_type(result).to_string())};
    values.push_back(result.value);
  }
  return values;
}

// A loop's operands, which carry numbers alone.
std::optional<NotInGraph> strings_among(NodeContext& c, const std::vector<ValueId>& values) {
  for (const ValueId value : values)
    if (c.is_string(value)) return NotInGraph{Why::kForm, "a loop over strings"};
  return std::nullopt;
}

// Gives the region an input for each of `values`, in this order and behind those that it was opened with.
void align(NodeContext& c, ImportedRegion& region, const std::vector<ValueId>& values) {
  const size_t own = region.graph.inputs.size() - region.captured.size();
  std::vector<ValueId> inputs(region.graph.inputs.begin(), region.graph.inputs.begin() + static_cast<ptrdiff_t>(own));
  const std::vector<ValueId> old = region.graph.inputs;
  for (const ValueId value : values) {
    const auto at = std::find(region.captured.begin(), region.captured.end(), value) - region.captured.begin();
    inputs.push_back(at < std::ssize(region.captured) ? old[own + static_cast<size_t>(at)]
                                                      : region.graph.add_input("unused", c.type(value)));
  }
  region.graph.inputs = std::move(inputs);
  region.captured = values;
}

GraphPtr finished(ImportedRegion region) { return std::make_shared<const Graph>(std::move(region.graph)); }

ValueId one(NodeContext& c, ValueId v, DType dtype, const char* what) {
  if (c.dtype(v) != dtype || !c.has_one_element(v))
    c.malformed(fmt::format("the {} is {}", what, c.type(v).to_string()), fmt::format("one {}", dtype_name(dtype)));
  return c.reshape(v, {});
}

Expr not_negative(const Expr& size) { return size_range(size).lo.value_or(-1) >= 0 ? size : max(size, 0); }

// x with dimension `from` at place `to`.
ValueId moved(NodeContext& c, ValueId x, int64_t from, int64_t to) {
  Ints perm(static_cast<size_t>(c.rank(x)));
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  return c.transpose(x, perm);
}

// The list of a check that holds.
TensorPtr passed(int64_t elements) {
  const auto list = std::make_shared<Tensor>(DType::kI64, Ints{elements});
  for (int64_t i = 0; i < elements; ++i) list->set_int(i, 1);
  return list;
}

// ---- If ----

// What of a branch's result is a tensor, in order. False when a part is an object of a run.
bool tensors_of(const Binding& result, std::vector<ValueId>& tensors) {
  if (result.is_value()) return tensors.push_back(result.value), true;
  return result.parts->kind != Structure::Kind::kSlot &&
         std::all_of(result.parts->items.begin(), result.parts->items.end(),
                     [&](const Binding& item) { return tensors_of(item, tensors); });
}

bool same_parts(const Binding& a, const Binding& b) {
  if (a.is_value() || b.is_value()) return a.is_value() && b.is_value();
  return a.parts->kind == b.parts->kind && std::equal(a.parts->items.begin(), a.parts->items.end(),
                                                      b.parts->items.begin(), b.parts->items.end(), same_parts);
}

// Made of the node's results, as `a` and `b` are made of those of the branches.
Binding joined(const Binding& a, const Binding& b, const std::vector<ValueId>& values, size_t& next) {
  if (a.is_value()) return values[next++];
  Structure parts = *a.parts;
  parts.type.dims = common_dims(parts.type.dims, b.parts->type.dims);
  for (size_t i = 0; i < parts.items.size(); ++i)
    parts.items[i] = joined(parts.items[i], b.parts->items[i], values, next);
  return Binding(std::move(parts));
}

struct Branch {
  const char* name;
  const onnx::GraphProto& graph;
  std::vector<Binding> results = {};  // of the node, in the branch
  std::vector<ValueId> tensors = {};  // that they consist of, in the branch
  std::vector<TensorType> types = {};
  std::optional<ImportedRegion> region = {};
  std::optional<Diagnostic> contradiction = {};  // of the branch to the shapes that the model is compiled for

  std::optional<NotInGraph> open(NodeContext& c) {
    const size_t failures = c.state().failures.size();
    auto opened = c.open_region(name, {}, [&](NodeContext& inner, const std::vector<ValueId>&) -> Results {
      auto given = inner.try_open(graph, {});
      if (!given) return NotInGraph{Why::kFailed};
      results = *std::move(given);
      results.resize(static_cast<size_t>(c.num_outputs()));
      for (const Binding& result : results)
        if (!tensors_of(result, tensors)) return NotInGraph{Why::kRun, "a branch that gives what only a run knows"};
      types = types_of(inner, tensors);
      return tensors;
    });
    if (auto* found = std::get_if<ImportedRegion>(&opened)) {
      region = std::move(*found);
      return std::nullopt;
    }
    auto& reason = std::get<NotInGraph>(opened);
    if (reason.why == Why::kFailed) contradiction = c.state().failures.withdraw(failures);
    return contradiction ? std::nullopt : std::optional(std::move(reason));
  }
};

// The results of `always`, and a check that a run does not ask for `never`.
void only_branch(NodeContext& c, ValueId condition, const Branch& never, const Branch& always, bool taken) {
  const auto results = c.open_bindings(always.graph, {});
  c.check_when_run(0, "cond", taken ? condition : c.op("logical_not", {condition}), condition,
                   fmt::format("shapes that {} contradicts: {}: {}", never.name, never.contradiction->node,
                               never.contradiction->message));
  for (int i = 0; i < c.num_outputs(); ++i) c.out(i, results[static_cast<size_t>(i)]);
}

// Results for the checks of both branches: of the branch that is not taken, all hold.
void add_checks(NodeContext& c, Branch& yes, Branch& no) {
  const auto add_passed = [&](Graph& graph, size_t at, const Graph& other, size_t first, size_t count) {
    GraphBuilder builder(graph);
    builder.set_loc(c.label());
    for (size_t i = 0; i < count; ++i) {
      const ValueId list = builder.add(c.state().ops.get("constant"), {},
                                       {{"value", passed(other.type(other.outputs[first + i]).dims()[0])}});
      graph.outputs.insert(graph.outputs.begin() + static_cast<ptrdiff_t>(at + i), list);
    }
  };
  const size_t first = yes.tensors.size(), of_yes = yes.region->checks.size(), of_no = no.region->checks.size();
  Graph no_alone = no.region->graph;
  add_passed(no.region->graph, first, yes.region->graph, first, of_yes);
  add_passed(yes.region->graph, first + of_yes, no_alone, first, of_no);
}

}  // namespace

std::optional<NotInGraph> if_node(NodeContext& c, ValueId condition, const onnx::GraphProto& then_branch,
                                  const onnx::GraphProto& else_branch) {
  Branch yes{"then_branch", then_branch}, no{"else_branch", else_branch};
  if (auto reason = yes.open(c)) return reason;
  if (yes.contradiction) return only_branch(c, c.reshape(condition, {}), yes, no, false), std::nullopt;
  if (auto reason = no.open(c)) return reason;
  if (no.contradiction) return only_branch(c, c.reshape(condition, {}), no, yes, true), std::nullopt;

  for (size_t i = 0; i < yes.results.size(); ++i) {
    if (!same_parts(yes.results[i], no.results[i]))
      return NotInGraph{Why::kRun, fmt::format("output {} is made of other parts in the other branch", i)};
  }
  for (size_t i = 0; i < yes.tensors.size(); ++i) {
    const TensorType &a = yes.types[i], &b = no.types[i];
    const bool strings = yes.region->strings[i];
    if (a.dtype != b.dtype || strings != no.region->strings[i])
      c.unsupported(
          fmt::format("the condition depends on the model's inputs, and output {} is {} in one branch, {} in "
                      "the other",
                      i, strings ? "of strings" : a.to_string(), no.region->strings[i] ? "of strings" : b.to_string()));
    if (!std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end(), equal_sizes))
      return NotInGraph{Why::kRun,
                        fmt::format("output {} is {} in one branch, {} in the other", i, a.to_string(), b.to_string())};
  }
  add_checks(c, yes, no);
  std::vector<ValueId> captured = yes.region->captured;
  for (const ValueId value : no.region->captured)
    if (std::find(captured.begin(), captured.end(), value) == captured.end()) captured.push_back(value);
  align(c, *yes.region, captured);
  align(c, *no.region, captured);
  std::vector<ValueId> operands = {c.reshape(condition, {})};
  operands.insert(operands.end(), captured.begin(), captured.end());
  const std::vector<RuntimeCheck> checks_of_yes = yes.region->checks, checks_of_no = no.region->checks;
  const std::vector<bool> strings = yes.region->strings;
  std::vector<ValueId> values;
  if (!strings.empty() || !checks_of_yes.empty() || !checks_of_no.empty())
    values = c.with_regions("if", operands, {}, {finished(*std::move(yes.region)), finished(*std::move(no.region))});
  for (size_t i = 0; i < strings.size(); ++i)
    if (strings[i]) c.mark_string(values[i]);
  size_t next = 0;
  for (size_t i = 0; i < yes.results.size(); ++i)
    c.out(static_cast<int>(i), joined(yes.results[i], no.results[i], values, next));
  for (const auto* checks : {&checks_of_yes, &checks_of_no})
    for (const RuntimeCheck& check : *checks) c.add_check(values[next++], check);
  return std::nullopt;
}

// ---- Loop, Scan ----

namespace {

// Lets the loop carry, for each check of its body, the list of the first iteration in which it does not hold, or else
// that of the last: as further carried values, behind `carried` of them. `results`: of the body, before those that it
// carries.
void carry_checks(NodeContext& c, ImportedRegion& region, size_t carried, size_t results,
                  std::vector<ValueId>& operands, size_t first_operand) {
  Graph& body = region.graph;
  GraphBuilder builder(body);
  builder.set_loc(c.label());
  const auto add = [&](const char* op, const std::vector<ValueId>& inputs, const Attrs& attrs) {
    return builder.add(c.state().ops.get(op), inputs, attrs);
  };
  const size_t first_check = body.outputs.size() - region.checks.size();
  const auto place = [](auto& list, size_t at) { return list.begin() + static_cast<ptrdiff_t>(at); };
  for (size_t i = 0; i < region.checks.size(); ++i) {
    const ValueId list = body.outputs[first_check + i];
    const TensorType type = body.type(list);
    const ValueId before = body.add_input("check", type);
    body.inputs.pop_back();
    body.inputs.insert(place(body.inputs, 1 + carried + i), before);
    const ValueId zero = add("constant", {}, {{"value", std::make_shared<const Tensor>(Tensor::from_ints({0}))}});
    const ValueId first = add("slice", {before}, {{"starts", Shape{0}}, {"sizes", Shape{1}}, {"steps", Ints{1}}});
    const ValueId held = add("ne", {first, zero}, {});
    body.outputs.push_back(add("select", {held, list, before}, {}));
    operands.insert(place(operands, first_operand + i), c.constant_value(*passed(type.dims()[0])));
  }
  const std::vector<ValueId> next(place(body.outputs, first_check + region.checks.size()), body.outputs.end());
  body.outputs.resize(first_check);
  body.outputs.insert(place(body.outputs, results + carried), next.begin(), next.end());
}

// Lets the loop carry how many iterations have taken place and, of a loop with a condition, whether it goes on: behind
// `carried` values. Answers how many values that are.
size_t carry_progress(NodeContext& c, ImportedRegion& region, size_t carried, std::optional<ValueId> condition,
                      std::vector<ValueId>& operands) {
  Graph& body = region.graph;
  GraphBuilder builder(body);
  builder.set_loc(c.label());
  const auto one = std::make_shared<const Tensor>(Tensor::from_ints({1}).with_dims({}));
  const ValueId step = builder.add(c.state().ops.get("constant"), {}, {{"value", one}});
  std::vector<ValueId> first = {c.integer(0)}, next = {builder.add(c.state().ops.get("add"), {body.inputs[0], step})};
  if (condition) {
    first.push_back(*condition);
    next.push_back(body.outputs[0]);
  }
  const auto results = static_cast<ptrdiff_t>((condition ? 1 : 0) + carried);
  body.outputs.insert(body.outputs.begin() + results, next.begin(), next.end());
  for (size_t i = 0; i < first.size(); ++i) {
    const ValueId before = body.add_input("before", c.type(first[i]));
    body.inputs.pop_back();
    body.inputs.insert(body.inputs.begin() + static_cast<ptrdiff_t>(1 + carried + i), before);
  }
  operands.insert(operands.end(), first.begin(), first.end());
  return first.size();
}

// The node's results without the lists of checks, which become checks of the graph around it.
std::vector<ValueId> without_checks(NodeContext& c, const std::vector<RuntimeCheck>& checks, size_t carried,
                                    std::vector<ValueId> values) {
  const auto first = values.begin() + static_cast<ptrdiff_t>(carried);
  for (size_t i = 0; i < checks.size(); ++i) c.add_check(first[static_cast<ptrdiff_t>(i)], checks[i]);
  values.erase(first, first + std::ssize(checks));
  return values;
}

bool gives_strings(const ImportedRegion& region) {
  return std::find(region.strings.begin(), region.strings.end(), true) != region.strings.end();
}

}  // namespace

std::optional<NotInGraph> loop_node(NodeContext& c, const onnx::GraphProto& body) {
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.has(i) && !c.has_value(i)) return NotInGraph{Why::kRun, "a loop over what only a run knows"};
  std::vector<ValueId> carried;
  for (int i = 2; i < c.num_inputs(); ++i) carried.push_back(c.in(i));
  if (auto reason = strings_among(c, carried)) return reason;
  const size_t collected = static_cast<size_t>(body.output_size()) - carried.size() - 1;
  if (carried.empty() && collected == 0) return NotInGraph{Why::kForm, "a loop without results"};
  std::vector<ValueId> operands;
  std::optional<Expr> max_trip;
  const bool bounded = c.has(0);
  bool counted = false;
  if (bounded) {
    const ValueId count = one(c, c.in(0), DType::kI64, "trip count");
    if (const auto known = c.known_sizes(count)) {
      max_trip = not_negative(known->at(0));
    } else {
      counted = true;
      operands.push_back(count);
    }
  }
  const ValueId condition = c.has(1) ? one(c, c.in(1), DType::kBool, "condition") : c.scalar(DType::kBool, 1);
  const auto first = c.constant(condition);
  bool ends = !first || first->get_int(0) == 0;

  std::vector<TensorType> inputs = {{DType::kI64, {}, {}}};
  for (const TensorType& type : types_of(c, carried)) inputs.push_back(type);
  auto opened_body =
      c.open_region("body", inputs, [&](NodeContext& inner, const std::vector<ValueId>& given) -> Results {
        std::vector<ValueId> operands_of_body = {given[0], inner.scalar(DType::kBool, 1)};
        operands_of_body.insert(operands_of_body.end(), given.begin() + 1, given.end());
        Results opened_results = opened(inner, body, operands_of_body);
        auto* results = std::get_if<std::vector<ValueId>>(&opened_results);
        if (!results) return opened_results;
        (*results)[0] = one(inner, (*results)[0], DType::kBool, "condition");
        for (size_t i = 0; i < carried.size(); ++i)
          if (inner.type((*results)[i + 1]).to_string() != c.type(carried[i]).to_string())
            return NotInGraph{Why::kForm, "a loop that gives a value another type"};
        const auto next = inner.constant((*results)[0]);
        ends = ends || !next || next->get_int(0) == 0;
        if (!ends) results->erase(results->begin());
        return opened_results;
      });
  if (auto* reason = std::get_if<NotInGraph>(&opened_body)) return std::move(*reason);
  ImportedRegion region = std::get<ImportedRegion>(std::move(opened_body));
  if (gives_strings(region)) return NotInGraph{Why::kForm, "a loop that gives strings"};
  if (!ends && !bounded) return NotInGraph{Why::kRun, "a loop without an end"};
  // What is collected in a number of iterations that a run decides has the length that the model declares.
  std::optional<int64_t> length;
  const std::optional<Expr> most = max_trip;
  if (collected > 0 && (ends || !most)) {
    for (size_t i = 0; i < collected; ++i)
      if (const auto dims = c.declared_dims(static_cast<int>(carried.size() + i)); dims && !dims->empty())
        length = dims->front();
    if (length && most) length = as_int(*most) ? std::optional(std::min(*length, *as_int(*most))) : std::nullopt;
    if (!length)
      return NotInGraph{Why::kRun,
                        "a loop that collects values in a number of steps that a run decides, of no declared length"};
    max_trip = *length;
  }
  Attrs attrs;
  if (max_trip) attrs.set("max_trip", Shape{*max_trip});
  if (counted) attrs.set("counted", true);
  if (ends) {
    attrs.set("has_condition", true);
    operands.push_back(condition);
  }
  operands.insert(operands.end(), carried.begin(), carried.end());
  const std::optional<ValueId> goes_on = ends ? std::optional(condition) : std::nullopt;
  const size_t progress = length ? carry_progress(c, region, carried.size(), goes_on, operands) : 0;
  const size_t all_carried = carried.size() + progress;
  carry_checks(c, region, all_carried, ends ? 1 : 0, operands, operands.size());
  operands.insert(operands.end(), region.captured.begin(), region.captured.end());
  const std::vector<RuntimeCheck> checks = region.checks;
  attrs.set("num_carried", static_cast<int64_t>(all_carried + checks.size()));
  auto values =
      without_checks(c, checks, all_carried, c.with_regions("loop", operands, attrs, {finished(std::move(region))}));
  if (length) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(carried.size());
    ValueId found = first[0];
    // Where the declared length has ended the loop, it must not go on.
    if (!most || *as_int(*most) != *length) {
      ValueId more = ends ? first[1] : c.scalar(DType::kBool, 1);
      if (counted) more = c.op("logical_and", {more, c.op("gt", {operands[0], c.integer(*length)})});
      found = c.add(found, c.cast(more, DType::kI64));
    }
    values.erase(first, first + static_cast<ptrdiff_t>(progress));
    for (size_t i = carried.size(); i < values.size(); ++i)
      if (c.wants(static_cast<int>(i))) require_count(c, static_cast<int>(i), 0, found, *length);
  }
  for (size_t i = 0; i < values.size(); ++i) c.out(static_cast<int>(i), values[i]);
  return std::nullopt;
}

std::optional<NotInGraph> scan_node(NodeContext& c, const onnx::GraphProto& body, const ScanShape& scan) {
  for (const auto* values : {&scan.states, &scan.sequences})
    if (auto reason = strings_among(c, *values)) return reason;
  std::vector<ValueId> operands = scan.states;
  std::vector<TensorType> inputs = {{DType::kI64, {}, {}}};
  for (const TensorType& type : types_of(c, scan.states)) inputs.push_back(type);
  for (size_t i = 0; i < scan.sequences.size(); ++i) {
    operands.push_back(moved(c, scan.sequences[i], scan.input_axes[i], 0));
    TensorType slice = c.type(operands.back());
    slice.shape.erase(slice.shape.begin());
    inputs.push_back(std::move(slice));
  }
  auto opened_body =
      c.open_region("body", inputs, [&](NodeContext& inner, const std::vector<ValueId>& given) -> Results {
        Results results = opened(inner, body, {given.begin() + 1, given.end()});
        if (const auto* values = std::get_if<std::vector<ValueId>>(&results))
          for (size_t i = 0; i < scan.states.size(); ++i)
            if (inner.type((*values)[i]).to_string() != c.type(scan.states[i]).to_string())
              return NotInGraph{Why::kForm, "a scan that gives a state another type"};
        return results;
      });
  if (auto* reason = std::get_if<NotInGraph>(&opened_body)) return std::move(*reason);
  ImportedRegion region = std::get<ImportedRegion>(std::move(opened_body));
  if (gives_strings(region)) return NotInGraph{Why::kForm, "a scan that gives strings"};
  const size_t states = scan.states.size();
  carry_checks(c, region, states, 0, operands, states);
  operands.insert(operands.end(), region.captured.begin(), region.captured.end());
  Attrs attrs{{"num_carried", static_cast<int64_t>(states + region.checks.size())},
              {"num_scanned", static_cast<int64_t>(scan.sequences.size())}};
  const auto set_flags = [&](const char* name, Ints flags) {
    for (int64_t& flag : flags) flag = flag != 0;
    if (std::count(flags.begin(), flags.end(), 1) > 0) attrs.set(name, std::move(flags));
  };
  set_flags("scan_reversed", scan.input_backwards);
  set_flags("stack_reversed", scan.output_backwards);
  const std::vector<RuntimeCheck> checks = region.checks;
  std::vector<ValueId> values =
      without_checks(c, checks, states, c.with_regions("loop", operands, attrs, {finished(std::move(region))}));
  for (size_t i = 0; i < scan.output_axes.size(); ++i) {
    ValueId& value = values[states + i];
    const int64_t rank = c.rank(value),
                  axis = scan.output_axes[i] < 0 ? scan.output_axes[i] + rank : scan.output_axes[i];
    if (axis < 0 || axis >= rank) c.malformed(fmt::format("an axis {} of an output", axis), "one within its rank");
    value = moved(c, value, 0, axis);
  }
  for (size_t i = 0; i < values.size(); ++i) c.out(static_cast<int>(i), values[i]);
  return std::nullopt;
}

}  // namespace tessera::inline onnx_import
