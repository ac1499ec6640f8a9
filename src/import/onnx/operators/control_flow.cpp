// If, Scan, Loop: nodes with regions (region_nodes.h). A loop of which a region cannot say what it does (a carried
// value that changes its shape, sequences), and one that is read without regions, is written out step by step when it
// is known how many steps there are; what the steps share (weights, kernels) exists once in the compiled module.
// Everything else becomes blocks of a flow.
#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"
#include "import/common/failure_list.h"
#include "import/onnx/dynamic/flow_types.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"
#include "import/onnx/operators/region_nodes.h"
#include "import/onnx/operators/structures.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Limits of what is written out.
constexpr int64_t kMostNodes = 1 << 17;  // of all steps of one operator

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
  return c.mark_like(c.reshape(c.slice(x, starts, sizes, Ints(sizes.size(), 1)), rest), x);
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
  return c.mark_like(layers.size() == 1 ? layers[0] : c.op("concat", layers, {{"axis", axis}}), parts[0]);
}

// What stacking no steps gives; `part` only says of what type they would be.
ValueId none_stacked(NodeContext& c, ValueId part, int64_t axis) {
  Ints dims = c.dims(part);
  dims.insert(dims.begin() + std::min<int64_t>(axis, std::ssize(dims)), 0);
  return c.mark_like(c.zeros(c.dtype(part), dims), part);
}

// `counts`, when given, says whether the step takes place.
std::vector<Binding> run_body(NodeContext& c, const onnx::GraphProto& body, const std::vector<Binding>& inputs,
                              size_t min_results, std::optional<ValueId> counts) {
  if (static_cast<size_t>(body.input_size()) != inputs.size())
    c.malformed(fmt::format("a body of {} inputs", body.input_size()), fmt::format("{} inputs", inputs.size()));
  std::vector<Binding> results = c.open_bindings(body, inputs, counts);
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
      std::vector<Binding> operands(values.begin(), values.end());
      for (size_t i = 0; i < sequences; ++i) {
        Ints dims = c.dims(inputs[i]);
        if (steps == 0) {  // only for the types of the outputs
          dims.erase(dims.begin() + input_axes[i]);
          operands.push_back(c.mark_like(c.zeros(c.dtype(inputs[i]), dims), inputs[i]));
        } else {
          operands.push_back(at(c, inputs[i], input_axes[i], input_backwards[i] != 0 ? steps - 1 - t : t));
        }
      }
      std::optional<ValueId> active;
      if (length) active = c.op("gt", {*length, c.integer(t)});
      const std::optional<ValueId> counts = steps == 0 ? c.scalar(DType::kBool, 0) : active;
      std::vector<ValueId> next;
      for (const Binding& result : run_body(c, body, operands, states + outputs, counts)) {
        if (!result.is_value()) c.unsupported("a Scan whose body gives what only a run knows");
        next.push_back(result.value);
      }
      for (size_t i = 0; i < outputs; ++i) {
        const ValueId part = next[states + i];
        stacks[i].push_back(active ? c.mark_like(c.op("select", {*active, part, c.scalar_like(part, 0)}), part) : part);
      }
      if (steps == 0) break;
      for (size_t i = 0; i < states; ++i)
        values[i] = active ? c.mark_like(c.op("select", {*active, next[i], values[i]}), next[i]) : next[i];
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

// What a slot holds after one of two blocks has written it. A branch may give the element that another has in an
// optional: which it is, the run sees.
BlockInput joined(NodeContext& c, const BlockInput& a, const BlockInput& b) {
  if (a.type.dtype != b.type.dtype)
    c.malformed(fmt::format("results {} and {}", a.type.to_string(), b.type.to_string()), "results of one type");
  BlockInput result = a;
  if (b.type.wrappers.size() > a.type.wrappers.size()) result.type.wrappers = b.type.wrappers;
  result.type.dims = common_dims(a.type.dims, b.type.dims);
  result.fixed = a.fixed && b.fixed && result.type.is_fixed();
  return result;
}

// What is not in the graph for this reason may be in blocks.
void require_blocks(NodeContext& c, const NotInGraph& reason) {
  if (reason.why == NotInGraph::Why::kFailed) throw UnsupportedSubgraph{};
  if (!c.state().graph.symbols.empty()) c.unsupported(reason.reason);
}

// Each branch is a block of its own; only the one that is taken runs.
void run_branch(NodeContext& c, const onnx::GraphProto& then_branch, const onnx::GraphProto& else_branch) {
  const OpenBlock yes = c.open_block(then_branch, {}), no = c.open_block(else_branch, {});
  FlowStep step{FlowOp::kIf, {c.slot(0)}, {}, {}, -1, {}, c.step_loc()};
  FlowStep last_yes{FlowOp::kMove, {}, {}, {}, -1, {}, c.step_loc()}, last_no = last_yes;
  std::vector<BlockInput> results;
  for (size_t i = 0; i < static_cast<size_t>(c.num_outputs()); ++i) {
    const BlockInput &a = yes.results.at(i), &b = no.results.at(i);
    BlockInput result = joined(c, a, b);
    result.slot = c.new_slot(result.type);
    last_yes.inputs.push_back(a.slot), last_no.inputs.push_back(b.slot);
    last_yes.outputs.push_back(result.slot), last_no.outputs.push_back(result.slot);
    results.push_back(result);
  }
  step.blocks.push_back(yes.finish({std::move(last_yes)}));
  step.blocks.push_back(no.finish({std::move(last_no)}));
  c.add_step(std::move(step));
  for (size_t i = 0; i < results.size(); ++i)
    c.out(static_cast<int>(i), c.from_slot(results[i].slot, results[i].type, results[i].fixed));
}

// Shapes are known while importing, so that most conditions are constants: only the branch taken is imported.
void import_if(NodeContext& c) {
  c.require_inputs(1, 1);
  const onnx::GraphProto& then_branch = c.attrs.require_graph("then_branch");
  const onnx::GraphProto& else_branch = c.attrs.require_graph("else_branch");
  check_branch_inputs(c, then_branch, "then_branch");
  check_branch_inputs(c, else_branch, "else_branch");
  const Binding given = c.binding(0);
  if (const FlowType type = c.flow_type(given);
      !type.is_tensor() || type.dtype != DType::kBool ||
      (given.is_value() && checked_num_elements(*type.dims) != std::optional<int64_t>(1)))
    c.malformed(fmt::format("the condition is {}", type.to_string()), "one bool");
  if (const auto taken = given.is_value() ? c.constant(given.value) : std::nullopt) {
    const auto results = c.open_bindings(taken->get_int(0) != 0 ? then_branch : else_branch, {});
    for (int i = 0; i < c.num_outputs(); ++i) c.out(i, results[static_cast<size_t>(i)]);
    return;
  }
  if (given.is_value()) {
    const auto reason = if_node(c, given.value, then_branch, else_branch);
    if (!reason) return;
    require_blocks(c, *reason);
  }
  run_branch(c, then_branch, else_branch);
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
  if (body.output_size() < c.num_outputs())
    c.malformed(fmt::format("a body of {} results for {} outputs", body.output_size(), c.num_outputs()),
                "a result of the body for each output");
  const size_t outputs = static_cast<size_t>(body.output_size()) - states;
  const Ints zeros(outputs, 0);
  ScanPlan plan{body, states, sequences, outputs, Ints(sequences, 0), zeros, {}, zeros};
  plan.input_backwards = one_for_each(c, batched ? "directions" : "scan_input_directions", sequences);
  if (!batched) {
    plan.input_axes = one_for_each(c, "scan_input_axes", sequences);
    plan.output_axes = one_for_each(c, "scan_output_axes", outputs);
    plan.output_backwards = one_for_each(c, "scan_output_directions", outputs);
  }
  Expr steps = 0;
  const std::vector<ValueId> values(inputs.begin(), inputs.begin() + static_cast<ptrdiff_t>(states));
  const std::vector<ValueId> scanned(inputs.begin() + static_cast<ptrdiff_t>(states), inputs.end());
  for (size_t i = 0; i < sequences; ++i) {
    const int skipped = batched ? 1 : 0;
    if (c.rank(scanned[i]) <= skipped)
      c.malformed(fmt::format("a sequence of type {}", c.type(scanned[i]).to_string()), "a dimension to go along");
    plan.input_axes[i] = c.axis(plan.input_axes[i], c.rank(scanned[i]) - skipped, "an entry of scan_input_axes");
    const Expr extent = c.shape(scanned[i])[static_cast<size_t>(plan.input_axes[i] + skipped)];
    if (i > 0 && !equal_sizes(extent, steps))
      c.malformed(fmt::format("sequences of {} and {} elements", to_string(steps), to_string(extent)), "equal lengths");
    steps = extent;
  }
  if (body.input_size() != static_cast<int>(inputs.size()))
    c.malformed(fmt::format("a body of {} inputs", body.input_size()), fmt::format("{} inputs", inputs.size()));
  if (!batched && c.state().loop_nodes) {
    const size_t failures = c.state().failures.size();
    const auto reason = scan_node(
        c, body, {values, scanned, plan.input_axes, plan.output_axes, plan.input_backwards, plan.output_backwards});
    if (!reason) return;
    // Written out, a step may know more of what it is given.
    c.state().failures.truncate(failures);
  }
  plan.steps = c.dims(scanned[0])[static_cast<size_t>(plan.input_axes[0] + first)];
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

// The body runs until a count is reached or its condition is false. When both are known, the steps are written out as
// they happen.
std::optional<NotInGraph> written_out_loop(NodeContext& c, const onnx::GraphProto& body) {
  std::vector<Binding> carried;
  for (int i = 2; i < c.num_inputs(); ++i) carried.push_back(c.binding(i));
  const size_t collected = static_cast<size_t>(body.output_size()) - carried.size() - 1;
  const NotInGraph unknown{NotInGraph::Why::kRun, "a number of steps that a run decides"};
  for (const int i : {0, 1})
    if (c.has(i) && !c.has_value(i)) return unknown;
  const auto known = [&](ValueId v, DType dtype, const char* what) {
    if (c.dtype(v) != dtype || !c.has_one_element(v))
      c.malformed(fmt::format("the {} is {}", what, c.type(v).to_string()), fmt::format("one {}", dtype_name(dtype)));
    const auto value = c.constant(v);
    return value ? std::optional(value->get_int(0)) : std::nullopt;
  };
  int64_t limit = INT64_MAX;
  if (c.has(0)) {
    const auto trips = known(c.in(0), DType::kI64, "trip count");
    if (!trips) return unknown;
    limit = *trips;
  }
  ValueId condition = c.has(1) ? c.in(1) : c.scalar(DType::kBool, 1);
  std::vector<std::vector<ValueId>> stacks(collected);
  int64_t step = 0;
  for (; step < limit; ++step) {
    const auto goes_on = known(condition, DType::kBool, "condition");
    if (!goes_on) return unknown;
    if (*goes_on == 0) break;
    check_steps(c, step + 1, body);
    std::vector<Binding> operands = {c.reshape(c.ints({step}), {}), c.reshape(condition, {})};
    operands.insert(operands.end(), carried.begin(), carried.end());
    const auto next = c.try_open(body, operands);
    if (!next) return NotInGraph{NotInGraph::Why::kFailed};
    std::copy_n(next->begin() + 1, carried.size(), carried.begin());
    if (!next->at(0).is_value()) return unknown;
    condition = next->at(0).value;
    for (size_t i = 0; i < collected; ++i) {
      const Binding& part = next->at(1 + carried.size() + i);
      if (!part.is_value()) return NotInGraph{NotInGraph::Why::kRun, "a collected value that only a run knows"};
      stacks[i].push_back(part.value);
    }
  }
  if (step == 0 && collected > 0) return NotInGraph{NotInGraph::Why::kRun, "types of what no step gives"};
  for (size_t i = 0; i < carried.size(); ++i) c.out(static_cast<int>(i), carried[i]);
  for (size_t i = 0; i < collected; ++i) c.out(static_cast<int>(carried.size() + i), stacked(c, stacks[i], 0));
  return std::nullopt;
}

// What a loop without steps collects is empty. Its other dimensions are what a step would have given, as far as that or
// the body's declaration says; else 0, as in ONNX Runtime: ONNX does not say. None when not even the rank is known.
std::optional<Ints> dims_of_none(const FlowType& step, const onnx::ValueInfoProto& declared) {
  const auto type = declared.has_type() ? flow_type_of(declared.type()) : std::nullopt;
  std::optional<Ints> dims = step.dims;
  if (type && type->dims) {
    if (!dims) dims = Ints(type->dims->size(), -1);
    for (size_t d = 0; d < dims->size() && dims->size() == type->dims->size(); ++d)
      if ((*dims)[d] < 0) (*dims)[d] = (*type->dims)[d];
  }
  if (dims)
    for (int64_t& dim : *dims) dim = std::max<int64_t>(dim, 0);
  return dims;
}

// A loop of the flow: nothing is written out, and what a step gives may have another shape than what it was given.
// False when nodes of the body cannot be imported, which are on the list of failures.
bool run_loop(NodeContext& c, const onnx::GraphProto& body) {
  const size_t carried = static_cast<size_t>(std::max(c.num_inputs() - 2, 0));
  const size_t collected = static_cast<size_t>(body.output_size()) - carried - 1;
  const FlowType number{{}, DType::kI64, DType::kI64, Ints{}}, truth{{}, DType::kBool, DType::kI64, Ints{}};
  const SlotId count = c.new_slot(number), condition = c.new_slot(truth);
  std::vector<SlotId> start;
  std::vector<BlockInput> inputs = {{count, number, true}, {condition, truth, false}};
  for (size_t i = 0; i < carried; ++i) {
    const Binding given = c.binding(static_cast<int>(i) + 2);
    const FlowType type = c.flow_type(given);
    start.push_back(c.slot(given));
    inputs.push_back({c.new_slot(type), type, given.is_value()});
  }
  // Until the types of what a step is given are those of what it gives, too.
  const auto before = c.checkpoint();
  auto opened = c.try_open_block(body, inputs);
  if (!opened) return false;
  OpenBlock block = *std::move(opened);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < carried; ++i) {
      BlockInput& input = inputs[i + 2];
      BlockInput both = joined(c, input, block.results.at(i + 1));
      both.slot = input.slot;
      if (both.type.wrappers == input.type.wrappers && both.type.dims == input.type.dims && both.fixed == input.fixed)
        continue;
      input = both;
      changed = true;
    }
    if (!changed) break;
    before();
    opened = c.try_open_block(body, inputs);
    if (!opened) return false;
    block = *std::move(opened);
  }
  const auto scalar = [&](int i, DType dtype, const char* what) -> SlotId {
    if (!c.has(i)) return -1;
    const FlowType type = c.flow_type(c.binding(i));
    if (!type.is_tensor() || type.dtype != dtype)
      c.malformed(fmt::format("the {} is {}", what, type.to_string()), fmt::format("one {}", dtype_name(dtype)));
    return c.slot(i);
  };
  const SlotId limit = scalar(0, DType::kI64, "trip count"), first = scalar(1, DType::kBool, "condition");
  const std::string loc = c.step_loc();
  c.add_step({FlowOp::kNumber, {}, {count}, {0}, -1, {}, loc});
  if (first >= 0) c.add_step({FlowOp::kMove, {first}, {condition}, {}, -1, {}, loc});
  else c.add_step({FlowOp::kTruth, {}, {condition}, {1}, -1, {}, loc});
  FlowStep begin{FlowOp::kMove, start, {}, {}, -1, {}, loc}, next = begin;
  next.inputs = {block.results.at(0).slot};
  next.outputs = {condition};
  for (size_t i = 0; i < carried; ++i) {
    begin.outputs.push_back(inputs[i + 2].slot);
    next.inputs.push_back(block.results.at(i + 1).slot);
    next.outputs.push_back(inputs[i + 2].slot);
  }
  if (carried > 0) c.add_step(std::move(begin));
  std::vector<FlowStep> last;
  std::vector<SlotId> lists;
  for (size_t i = 0; i < collected; ++i) {
    const BlockInput& part = block.results.at(1 + carried + i);
    if (!part.type.is_tensor()) c.malformed(fmt::format("a collected value {}", part.type.to_string()), "a tensor");
    lists.push_back(c.new_slot(part.type.in(ValueKind::kSequence)));
    c.add_step({FlowOp::kSequence, {}, {lists[i]}, {static_cast<int64_t>(part.type.dtype)}, -1, {}, loc});
    last.push_back({FlowOp::kInsert, {lists[i], part.slot, -1}, {lists[i]}, {}, -1, {}, loc});
  }
  last.push_back(std::move(next));
  last.push_back({FlowOp::kCount, {count}, {count}, {}, -1, {}, loc});
  FlowStep loop{FlowOp::kWhile, {limit, condition, count}, {}, {}, -1, {}, loc};
  loop.blocks.push_back(block.finish(std::move(last)));
  c.add_step(std::move(loop));
  for (size_t i = 0; i < carried; ++i)
    c.out(static_cast<int>(i), c.from_slot(inputs[i + 2].slot, inputs[i + 2].type, inputs[i + 2].fixed));
  for (size_t i = 0; i < collected; ++i) {
    const BlockInput& part = block.results.at(1 + carried + i);
    FlowType type = part.type;
    Ints ints = {0, 1};
    if (const auto dims = dims_of_none(part.type, body.output(static_cast<int>(1 + carried + i)))) {
      ints.push_back(static_cast<int64_t>(part.type.dtype));
      ints.insert(ints.end(), dims->begin(), dims->end());
    }
    if (type.dims) type.dims->insert(type.dims->begin(), -1);
    // The declared length, which the run holds against what it finds.
    if (const auto declared = c.declared_dims(static_cast<int>(carried + i))) type.dims = *declared;
    c.out(static_cast<int>(carried + i), c.step(FlowOp::kJoin, {lists[i]}, type, false, std::move(ints)));
  }
  return true;
}

void import_loop(NodeContext& c) {
  const onnx::GraphProto& body = c.attrs.require_graph("body");
  c.require_inputs(0, -1);
  if (const auto carried = std::max(c.num_inputs() - 2, 0); body.output_size() < carried + 1)
    c.malformed(fmt::format("a body of {} results", body.output_size()), fmt::format("{} or more", carried + 1));
  if (const int inputs = std::max(c.num_inputs(), 2); body.input_size() != inputs)
    c.malformed(fmt::format("a body of {} inputs", body.input_size()), fmt::format("{} inputs", inputs));
  FailureList& failures = c.state().failures;
  const size_t before = failures.size();
  const auto restore = c.checkpoint();
  if (c.state().loop_nodes && !loop_node(c, body)) return;
  // Written out, a step may know more of what it is given.
  restore();
  const auto reason = written_out_loop(c, body);
  if (!reason) return;
  const bool contradicts = reason->why == NotInGraph::Why::kFailed && failures.break_rules(before);
  if (!contradicts) require_blocks(c, *reason);
  const FailureList reported = failures.from(before);
  restore();
  c.forget_results();
  if (run_loop(c, body)) return;
  if (contradicts) {
    failures.truncate(before);
    failures.append(reported);
  }
  throw UnsupportedSubgraph{};
}

}  // namespace

OperatorFamily control_flow_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"If", 1, import_if},
      OperatorImporter{"Loop", 7, import_loop},
      OperatorImporter{"Scan", 8, import_scan},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
