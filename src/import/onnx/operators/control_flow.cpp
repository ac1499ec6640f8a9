// If, Scan, Loop. A graph has no loops: the steps of a body are written out, one after the other. What the steps share
// (weights, kernels) exists once in the compiled module.
#include <fmt/format.h>

#include <algorithm>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/runtime_parameter.h"
#include "import/onnx/tensor_reader.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

// Limits of what is written out.
constexpr int64_t kMostSteps = 1024;
constexpr int64_t kMostNodes = 1 << 17;  // of all steps of one operator

// A branch of an If whose condition is known when the model runs.
struct Branch {
  const char* name;
  const onnx::GraphProto& graph;
  ValueId taken;  // one bool
  std::vector<ValueId> results = {};
  std::optional<Diagnostic> contradiction = {};  // of the branch to the shapes that the model is compiled for

  void open(NodeContext& c) {
    auto opened = c.try_open(graph, taken);
    if (auto* values = std::get_if<std::vector<ValueId>>(&opened)) results = std::move(*values);
    else contradiction = std::get<Diagnostic>(std::move(opened));
  }
};

void check_branch_inputs(NodeContext& c, const onnx::GraphProto& branch, const std::string& name) {
  if (branch.input_size() > 0) c.malformed(fmt::format("{} has {} inputs", name, branch.input_size()), "none");
  if (branch.output_size() < c.num_outputs())
    c.malformed(fmt::format("{} gives {} values for {} outputs", name, branch.output_size(), c.num_outputs()),
                "as many values as the node has outputs");
}

void check_steps(NodeContext& c, int64_t steps, const onnx::GraphProto& body) {
  if (steps > kMostSteps || steps * body.node_size() > kMostNodes)
    c.unsupported(fmt::format("{} steps of a body of {} nodes; at most {} steps are written out, and {} nodes", steps,
                              body.node_size(), kMostSteps, kMostNodes));
}

// x at `index` of `axis`, without that dimension.
ValueId at(NodeContext& c, ValueId x, int64_t axis, int64_t index) {
  Ints sizes = c.dims(x), starts(sizes.size(), 0);
  starts[static_cast<size_t>(axis)] = index;
  sizes[static_cast<size_t>(axis)] = 1;
  Ints rest = sizes;
  rest.erase(rest.begin() + axis);
  return c.reshape(c.slice(x, starts, sizes, Ints(sizes.size(), 1)), rest);
}

// Equal values as one with a new dimension `axis`.
ValueId stacked(NodeContext& c, const std::vector<ValueId>& parts, int64_t axis) {
  std::vector<ValueId> layers;
  for (const ValueId part : parts) {
    if (c.type(part).to_string() != c.type(parts[0]).to_string())
      c.unsupported(fmt::format("a body that gives {} in one step and {} in another", c.type(parts[0]).to_string(),
                                c.type(part).to_string()));
    Ints dims = c.dims(part);
    if (axis > std::ssize(dims))
      c.malformed(fmt::format("an axis {} for elements of type {}", axis, c.type(part).to_string()),
                  fmt::format("up to {}", dims.size()));
    dims.insert(dims.begin() + axis, 1);
    layers.push_back(c.reshape(part, dims));
  }
  return layers.size() == 1 ? layers[0] : c.op("concat", layers, {{"axis", axis}});
}

// What stacking no steps gives; `part` only says of what type they would be.
ValueId none_stacked(NodeContext& c, ValueId part, int64_t axis) {
  Ints dims = c.dims(part);
  dims.insert(dims.begin() + std::min<int64_t>(axis, std::ssize(dims)), 0);
  return c.constant_value(Tensor(c.dtype(part), dims));
}

// `counts`, when given, says whether the step takes place.
std::vector<ValueId> run_body(NodeContext& c, const onnx::GraphProto& body, const std::vector<ValueId>& inputs,
                              size_t min_results, std::optional<ValueId> counts) {
  if (static_cast<size_t>(body.input_size()) != inputs.size())
    c.malformed(fmt::format("a body of {} inputs", body.input_size()), fmt::format("{} inputs", inputs.size()));
  std::vector<ValueId> results = c.open(body, inputs, counts);
  if (results.size() < min_results)
    c.malformed(fmt::format("a body of {} results", results.size()), fmt::format("{} or more", min_results));
  return results;
}

// One sequence of a Scan.
struct ScanPlan {
  const onnx::GraphProto& body;
  size_t states, sequences, outputs;
  Ints input_axes, output_axes, input_backwards, output_backwards;
  int64_t steps = 0;

  // States first, then the stacked outputs. `active`, when given, says at which steps the sequence still runs.
  std::vector<ValueId> run(NodeContext& c, std::vector<ValueId> values, const std::vector<ValueId>& inputs,
                           std::optional<ValueId> length) const {
    std::vector<std::vector<ValueId>> stacks(outputs);
    for (int64_t t = 0; t < std::max<int64_t>(steps, 1); ++t) {
      std::vector<ValueId> operands = values;
      for (size_t i = 0; i < sequences; ++i) {
        Ints dims = c.dims(inputs[i]);
        if (steps == 0) {  // only for the types of the outputs
          dims.erase(dims.begin() + input_axes[i]);
          operands.push_back(c.constant_value(Tensor(c.dtype(inputs[i]), dims)));
        } else {
          operands.push_back(at(c, inputs[i], input_axes[i], input_backwards[i] != 0 ? steps - 1 - t : t));
        }
      }
      std::optional<ValueId> active;
      if (length) active = c.op("gt", {*length, c.scalar(DType::kI64, static_cast<double>(t))});
      const std::optional<ValueId> counts = steps == 0 ? c.scalar(DType::kBool, 0) : active;
      std::vector<ValueId> next = run_body(c, body, operands, states + outputs, counts);
      for (size_t i = 0; i < outputs; ++i) {
        const ValueId part = next[states + i];
        stacks[i].push_back(active ? c.op("select", {*active, part, c.scalar_like(part, 0)}) : part);
      }
      if (steps == 0) break;
      for (size_t i = 0; i < states; ++i) values[i] = active ? c.op("select", {*active, next[i], values[i]}) : next[i];
    }
    for (size_t i = 0; i < outputs; ++i) {
      int64_t axis = output_axes[i];
      if (axis < 0) axis += c.rank(stacks[i][0]) + 1;
      if (axis < 0) c.malformed(fmt::format("an axis {} of an output", output_axes[i]), "one within its rank");
      if (output_backwards[i] != 0) std::reverse(stacks[i].begin(), stacks[i].end());
      values.push_back(steps == 0 ? none_stacked(c, stacks[i][0], axis) : stacked(c, stacks[i], axis));
    }
    return values;
  }
};

// A list with an entry for each of `count` operands; zeros when absent.
Ints one_for_each(NodeContext& c, const std::string& name, size_t count) {
  Ints list = c.attrs.get_ints(name, Ints(count, 0));
  if (list.size() != count)
    c.malformed(fmt::format("{} has {} entries", name, list.size()), fmt::format("{} entries", count));
  return list;
}

}  // namespace

// Shapes are known while importing, so that most conditions are constants: only the branch taken is imported. Otherwise
// both are there and one is selected: right because no operator has side effects and checks of the branch that is not
// taken do not count. A branch that contradicts the shapes that the model is compiled for cannot be taken with them.
void import_if(NodeContext& c) {
  c.require_inputs(1, 1);
  const onnx::GraphProto& then_graph = c.attrs.require_graph("then_branch");
  const onnx::GraphProto& else_graph = c.attrs.require_graph("else_branch");
  check_branch_inputs(c, then_graph, "then_branch");
  check_branch_inputs(c, else_graph, "else_branch");
  const ValueId condition = c.in(0);
  if (const TensorType& type = c.type(condition); type.dtype != DType::kBool || checked_num_elements(type.dims()) != 1)
    c.malformed(fmt::format("the condition is {}", type.to_string()), "one bool");

  const auto give = [&](const std::vector<ValueId>& results) {
    for (int i = 0; i < c.num_outputs(); ++i) c.out(i, results[static_cast<size_t>(i)]);
  };
  if (const auto taken = c.constant(condition)) return give(c.open(taken->get_int(0) != 0 ? then_graph : else_graph));

  const ValueId scalar = c.reshape(condition, {});
  Branch yes{"then_branch", then_graph, scalar}, no{"else_branch", else_graph, c.op("logical_not", {scalar})};
  yes.open(c);
  if (yes.contradiction) {
    no.results = c.open(no.graph);
  } else {
    no.open(c);
  }
  if (yes.contradiction || no.contradiction) {
    const Branch& never = yes.contradiction ? yes : no;
    const Branch& always = yes.contradiction ? no : yes;
    c.check_when_run(0, "cond", always.taken, scalar,
                     fmt::format("shapes that {} contradicts: {}: {}", never.name, never.contradiction->node,
                                 never.contradiction->message));
    return give(always.results);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    const ValueId a = yes.results[static_cast<size_t>(i)], b = no.results[static_cast<size_t>(i)];
    if (c.dtype(a) != c.dtype(b) || c.dims(a) != c.dims(b))
      c.unsupported(
          fmt::format("the condition depends on the model's inputs, and output {} is {} in one branch, {} in "
                      "the other",
                      i, c.type(a).to_string(), c.type(b).to_string()));
    if (c.wants(i)) c.out(i, c.op("select", {scalar, a, b}));
  }
}

// The body runs for each element along an axis of the inputs, whose extent is known. Before opset 9 everything has a
// batch in front, whose members are independent, and may have lengths.
void import_scan(NodeContext& c) {
  const onnx::GraphProto& body = c.attrs.require_graph("body");
  const bool batched = c.version() < 9;
  const int first = batched ? 1 : 0;
  c.require_inputs(batched ? 0 : 1, -1);
  std::vector<ValueId> inputs;
  for (int i = first; i < c.num_inputs(); ++i) inputs.push_back(c.in(i));
  const int64_t declared = c.attrs.require_int("num_scan_inputs");
  if (declared < 1 || declared > std::ssize(inputs))
    c.malformed(fmt::format("num_scan_inputs = {} with {} inputs", declared, inputs.size()), "1 to the inputs");
  const auto sequences = static_cast<size_t>(declared), states = inputs.size() - sequences;
  if (static_cast<size_t>(body.output_size()) < states)
    c.malformed(fmt::format("a body of {} results", body.output_size()), fmt::format("{} or more", states));
  const size_t outputs = static_cast<size_t>(body.output_size()) - states;
  const Ints zeros(outputs, 0);
  ScanPlan plan{body, states, sequences, outputs, Ints(sequences, 0), zeros, {}, zeros};
  plan.input_backwards = one_for_each(c, batched ? "directions" : "scan_input_directions", sequences);
  if (!batched) {
    plan.input_axes = one_for_each(c, "scan_input_axes", sequences);
    plan.output_axes = one_for_each(c, "scan_output_axes", outputs);
    plan.output_backwards = one_for_each(c, "scan_output_directions", outputs);
  }
  const std::vector<ValueId> values(inputs.begin(), inputs.begin() + static_cast<ptrdiff_t>(states));
  const std::vector<ValueId> scanned(inputs.begin() + static_cast<ptrdiff_t>(states), inputs.end());
  for (size_t i = 0; i < sequences; ++i) {
    const int skipped = batched ? 1 : 0;
    if (c.rank(scanned[i]) <= skipped)
      c.malformed(fmt::format("a sequence of type {}", c.type(scanned[i]).to_string()), "a dimension to go along");
    plan.input_axes[i] = c.axis(plan.input_axes[i], c.rank(scanned[i]) - skipped, "an entry of scan_input_axes");
    const int64_t extent = c.dims(scanned[i])[static_cast<size_t>(plan.input_axes[i] + skipped)];
    if (i > 0 && extent != plan.steps)
      c.malformed(fmt::format("sequences of {} and {} elements", plan.steps, extent), "equal lengths");
    plan.steps = extent;
  }
  check_steps(c, plan.steps, body);
  if (!batched) {
    const auto results = plan.run(c, values, scanned, std::nullopt);
    for (int i = 0; i < c.num_outputs(); ++i) c.out(i, results.at(static_cast<size_t>(i)));
    return;
  }
  const int64_t batch = c.dims(scanned[0])[0];
  check_steps(c, plan.steps * batch, body);
  if (batch == 0) c.unsupported("a batch without members");
  for (const ValueId x : inputs)
    if (c.rank(x) < 1 || c.dims(x)[0] != batch)
      c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), fmt::format("a batch of {}", batch));
  if (c.has(0) && std::any_of(plan.input_backwards.begin(), plan.input_backwards.end(), [](int64_t b) { return b; }))
    c.unsupported("sequences with lengths that are read backwards");
  std::vector<std::vector<ValueId>> members(states + outputs);
  for (int64_t b = 0; b < batch; ++b) {
    const auto member = [&](const std::vector<ValueId>& list) {
      std::vector<ValueId> result;
      for (const ValueId x : list) result.push_back(at(c, x, 0, b));
      return result;
    };
    std::optional<ValueId> length;
    if (c.has(0)) length = at(c, c.cast(c.in(0), DType::kI64), 0, b);
    const auto results = plan.run(c, member(values), member(scanned), length);
    for (size_t i = 0; i < results.size(); ++i) members[i].push_back(results[i]);
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.out(i, stacked(c, members.at(static_cast<size_t>(i)), 0));
}

// The body runs until a count is reached or its condition is false. Where both are known the steps are written out as
// they happen. Otherwise as many as there can be are, and each takes effect only while the loop still runs; a result
// that collects a value of each step then has the length that the model declares, and a run with another number of
// steps is refused.
void import_loop(NodeContext& c) {
  const onnx::GraphProto& body = c.attrs.require_graph("body");
  c.require_inputs(0, -1);
  std::vector<ValueId> carried;
  for (int i = 2; i < c.num_inputs(); ++i) carried.push_back(c.in(i));
  if (static_cast<size_t>(body.output_size()) < carried.size() + 1)
    c.malformed(fmt::format("a body of {} results", body.output_size()), fmt::format("{} or more", carried.size() + 1));
  const size_t collected = static_cast<size_t>(body.output_size()) - carried.size() - 1;
  const auto scalar = [&](ValueId v, DType dtype, const char* what) {
    if (c.dtype(v) != dtype || c.type(v).num_elements() != 1)
      c.malformed(fmt::format("the {} is {}", what, c.type(v).to_string()), fmt::format("one {}", dtype_name(dtype)));
    return c.reshape(v, {});
  };

  // How many steps there can be; `running` says whether the next one still takes place where only the run knows.
  std::optional<int64_t> most, declared;
  std::optional<ValueId> count, running;
  ValueId condition = c.scalar(DType::kBool, 1);
  for (size_t i = 0; i < collected; ++i)
    if (const auto dims = c.declared_dims(static_cast<int>(carried.size() + i)); dims && !dims->empty())
      declared = dims->front();
  if (c.has(0)) {
    const ValueId trips = scalar(c.in(0), DType::kI64, "trip count");
    if (const auto known = c.constant(trips)) most = std::max<int64_t>(0, known->get_int(0));
    else count = trips;
  }
  bool ended = false;
  const auto follow = [&](ValueId next) {
    condition = scalar(next, DType::kBool, "condition");
    if (const auto known = c.constant(condition)) ended = known->get_int(0) == 0;
    else running = running ? c.op("logical_and", {*running, condition}) : condition;
  };
  int64_t limit = most.value_or(INT64_MAX);
  const auto check_limit = [&](int64_t step) {
    if (count) {
      const ValueId more = c.op("gt", {*count, c.scalar(DType::kI64, static_cast<double>(step))});
      running = running ? c.op("logical_and", {*running, more}) : more;
    }
    if (!running) return;
    if (collected > 0 && !declared)
      c.unsupported(
          "how often the body runs depends on the model's inputs, and a result that collects its values has no "
          "declared length");
    if (!most && !declared)
      c.unsupported("how often the body runs depends on the model's inputs, and nothing says how often at most");
    if (declared) limit = std::min(limit, *declared);
    check_steps(c, limit, body);
  };
  if (c.has(1)) follow(c.in(1));
  if (!ended && limit > 0) check_limit(0);

  std::vector<std::vector<ValueId>> stacks(collected);
  int64_t step = 0;
  ValueId taken = c.scalar(DType::kI64, 0);  // how many steps have taken place
  for (; !ended && step < limit; ++step) {
    check_steps(c, step + 1, body);
    std::vector<ValueId> operands = {c.reshape(c.ints({step}), {}), condition};
    operands.insert(operands.end(), carried.begin(), carried.end());
    const std::vector<ValueId> next = run_body(c, body, operands, carried.size() + 1 + collected, running);
    for (size_t i = 0; i < carried.size(); ++i) {
      const ValueId value = next[i + 1];
      if (running && (c.dims(value) != c.dims(carried[i]) || c.dtype(value) != c.dtype(carried[i])))
        c.unsupported(fmt::format("how often the body runs depends on the model's inputs, and it gives {} for {}",
                                  c.type(value).to_string(), c.type(carried[i]).to_string()));
      carried[i] = running ? c.op("select", {*running, value, carried[i]}) : value;
    }
    for (size_t i = 0; i < collected; ++i) {
      const ValueId value = next[1 + carried.size() + i];
      stacks[i].push_back(running ? c.op("select", {*running, value, c.scalar_like(value, 0)}) : value);
    }
    taken = c.add(taken, running ? c.cast(*running, DType::kI64) : c.scalar(DType::kI64, 1));
    follow(next[0]);
    if (!ended && step + 1 < limit) check_limit(step + 1);
  }
  if (running && collected > 0) {
    // Where the declared length ended the loop, it must not go on.
    ValueId found = taken;
    if (!ended && step < most.value_or(INT64_MAX)) {
      ValueId more = *running;
      if (count)
        more = c.op("logical_and", {more, c.op("gt", {*count, c.scalar(DType::kI64, static_cast<double>(step))})});
      found = c.add(found, c.cast(more, DType::kI64));
    }
    for (int i = static_cast<int>(carried.size()); i < c.num_outputs(); ++i)
      if (c.wants(i)) require_count(c, i, 0, found, step);
  }
  if (step == 0 && collected > 0) {  // only for the types of the results
    std::vector<ValueId> operands = {c.reshape(c.ints({0}), {}), condition};
    operands.insert(operands.end(), carried.begin(), carried.end());
    const std::vector<ValueId> next =
        run_body(c, body, operands, carried.size() + 1 + collected, c.scalar(DType::kBool, 0));
    for (size_t i = 0; i < collected; ++i) stacks[i].push_back(next[1 + carried.size() + i]);
  }
  for (size_t i = 0; i < carried.size(); ++i) c.out(static_cast<int>(i), carried[i]);
  for (size_t i = 0; i < collected; ++i)
    c.out(static_cast<int>(carried.size() + i),
          step == 0 ? none_stacked(c, stacks[i][0], 0) : stacked(c, stacks[i], 0));
}

}  // namespace tessera
