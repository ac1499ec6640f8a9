// Operators with regions that run zero, one or many times, calls of functions, and operators that have only a name.
#include <fmt/format.h>

#include <algorithm>

#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

void results_are(HloContext& c, const std::vector<ValueId>& results) {
  if (results.size() < c.num_results())
    c.malformed(fmt::format("{} results where {} are read", results.size(), c.num_results()), "as many");
  for (size_t i = 0; i < c.num_results(); ++i) c.out(i, results[i]);
}

void import_call(HloContext& c) { results_are(c, c.walk().called(c.word("callee"), c.operands())); }

// An operator that some compilers know by its name: the function that says what it is.
void import_composite(HloContext& c) {
  const HloAttr* decomposition = c.attribute("decomposition");
  if (!decomposition) c.unsupported("a composite without a decomposition");
  results_are(c, c.walk().called(decomposition->text, c.operands()));
}

void import_custom_call(HloContext& c) {
  const std::string name = c.word("call_target_name");
  // Where tensors lie, and conditions on sizes, which the types say already.
  if (name == "Sharding" || name == "SPMDFullToShardShape" || name == "SPMDShardToFullShape" ||
      name == "annotate_device_placement" || name == "LayoutConstraint")
    return results_are(c, c.operands());
  if (name == "shape_assertion") {
    const auto holds = c.constant(c.in(0));
    if (holds && holds->get_int(0) == 0)
      c.malformed(fmt::format("a condition on sizes does not hold: {}", c.word("error_message")),
                  "sizes that the module allows");
    return;
  }
  if (const size_t dot = name.find('.'); dot != name.npos && (name.starts_with("mhlo.") || name.starts_with("chlo.")))
    if (const HloOperator* known = find_hlo_operator("chlo" + name.substr(dot))) return known->handler(c);
  c.unsupported(fmt::format("the call of '{}', which only its framework knows", name));
}

ValueId one_bool(Emitter& c, const std::vector<ValueId>& results) {
  if (results.size() != 1 || c.dtype(results[0]) != DType::kBool || c.num_elements(results[0]) != 1)
    c.malformed("a condition that is not one bool", "one bool");
  return c.reshape(results[0], {});
}

// A branch as a graph, and the values around it that it reads.
struct Branch {
  Graph graph;
  std::vector<ValueId> captured;
};

// All branches get the same inputs: what any of them reads.
void share_inputs(HloContext& c, std::vector<Branch>& branches, std::vector<ValueId>& all) {
  for (const Branch& branch : branches)
    for (const ValueId value : branch.captured)
      if (std::find(all.begin(), all.end(), value) == all.end()) all.push_back(value);
  for (Branch& branch : branches) {
    std::vector<ValueId> inputs;
    const std::vector<ValueId> own = branch.graph.inputs;
    for (const ValueId value : all) {
      const auto at = std::find(branch.captured.begin(), branch.captured.end(), value);
      inputs.push_back(at != branch.captured.end()
                           ? own[static_cast<size_t>(at - branch.captured.begin())]
                           : branch.graph.add_input(branch.graph.unique_name("unused"), c.type(value)));
    }
    branch.graph.inputs = std::move(inputs);
  }
}

// An input in front of the others.
void add_unused_first(Graph& graph, const TensorType& type) {
  graph.add_input(graph.unique_name("unused"), type);
  std::rotate(graph.inputs.begin(), graph.inputs.end() - 1, graph.inputs.end());
}

// One of several regions by a number; what is out of range takes the last.
void choose(HloContext& c, ValueId index, bool by_truth) {
  const size_t count = c.num_regions();
  if (count == 0) c.malformed("no regions", "one or more");
  const auto decided = c.constant(index);
  if (decided || count == 1) {
    const int64_t given = decided ? decided->get_int(0) : 0;
    const auto last = static_cast<int64_t>(count) - 1;
    const int64_t taken = count == 1 ? 0 : by_truth ? given == 0 : given < 0 || given > last ? last : given;
    return results_are(c, c.walk().inlined(c.region(static_cast<size_t>(taken)), {}));
  }
  std::vector<Branch> branches;
  for (size_t i = 0; i < count; ++i) {
    const auto region = c.walk().begin_region("branch", c);
    for (const ValueId result : region->run(c.region(i), {})) region->output(result);
    CapturedRegion done = region->finish();
    branches.push_back({std::move(done.graph), std::move(done.captured)});
  }
  std::vector<ValueId> values;
  share_inputs(c, branches, values);
  for (const Branch& branch : branches)
    if (branch.graph.outputs.size() != branches[0].graph.outputs.size())
      c.malformed("branches with different numbers of results", "as many");
  const auto taken = [&](Emitter& in, ValueId number, size_t i) {
    return by_truth ? number : in.op("eq", {number, in.scalar(in.dtype(number), static_cast<double>(i))});
  };
  // The last but one with the last, that with the one before it, and so on: each else has the number as well.
  GraphPtr rest = std::make_shared<const Graph>(std::move(branches.back().graph));
  bool rest_has_number = false;
  for (size_t i = count - 1; i-- > 1;) {
    const auto region = c.walk().begin_region("branches", c);
    const ValueId number = region->input(c.type(index));
    std::vector<ValueId> inputs;
    for (const ValueId value : values) inputs.push_back(region->input(c.type(value)));
    std::vector<ValueId> operands = {taken(region->emit(), number, i)};
    std::vector<GraphPtr> regions = {std::make_shared<const Graph>(std::move(branches[i].graph)), rest};
    if (rest_has_number) {
      Graph then = *regions[0];
      add_unused_first(then, c.type(index));
      regions[0] = std::make_shared<const Graph>(std::move(then));
      operands.push_back(number);
    }
    operands.insert(operands.end(), inputs.begin(), inputs.end());
    for (const ValueId result : region->emit().with_regions("if", operands, {}, regions)) region->output(result);
    rest = std::make_shared<const Graph>(region->finish().graph);
    rest_has_number = true;
  }
  Graph first = std::move(branches[0].graph);
  std::vector<ValueId> operands = {taken(c, index, 0)};
  if (rest_has_number) {
    add_unused_first(first, c.type(index));
    operands.push_back(index);
  }
  operands.insert(operands.end(), values.begin(), values.end());
  results_are(c, c.with_regions("if", operands, {}, {std::make_shared<const Graph>(std::move(first)), rest}));
}

void import_if(HloContext& c) { choose(c, one_bool(c, {c.in(0)}), true); }
void import_case(HloContext& c) { choose(c, c.reshape(c.in(0), {}), false); }

// Whether an iteration gives value i back as it was.
bool passes_on(const HloRegion& body, size_t i) {
  if (body.operations.empty() || i >= body.arguments.size()) return false;
  const HloOperation& end = body.operations.back();
  return i < end.operands.size() && end.operands[i] == body.arguments[i].name;
}

void import_while(HloContext& c) {
  const HloRegion &test = c.region(0), &body = c.region(1);
  const std::vector<ValueId>& initial = c.operands();
  const ValueId begins = one_bool(c, c.walk().inlined(test, initial));
  const auto region = c.walk().begin_region("iteration", c);
  region->input({DType::kI64, {}, {}});
  std::vector<ValueId> operands = {begins}, inside(initial.size());
  int64_t carried = 0;
  for (size_t i = 0; i < initial.size(); ++i) {
    if (passes_on(body, i)) continue;
    inside[i] = region->input(c.type(initial[i]));
    operands.push_back(initial[i]);
    ++carried;
  }
  for (size_t i = 0; i < initial.size(); ++i)
    if (passes_on(body, i)) inside[i] = region->captured(initial[i]);
  const std::vector<ValueId> after = region->run(body, inside);
  if (after.size() != initial.size())
    c.malformed(fmt::format("a body with {} results for {} values", after.size(), initial.size()), "as many");
  region->output(one_bool(region->emit(), region->run(test, after)));
  for (size_t i = 0; i < initial.size(); ++i) {
    if (passes_on(body, i)) continue;
    const TensorType from = c.type(initial[i]), to = region->emit().type(after[i]);
    if (from.dtype != to.dtype || !same_shape(from.shape, to.shape))
      c.malformed(fmt::format("a value that is {} and becomes {}", from.to_string(), to.to_string()), "one type");
    region->output(after[i]);
  }
  CapturedRegion done = region->finish();
  operands.insert(operands.end(), done.captured.begin(), done.captured.end());
  const std::vector<ValueId> results =
      carried == 0 ? std::vector<ValueId>()
                   : c.with_regions("loop", operands, {{"num_carried", carried}, {"has_condition", true}},
                                    {std::make_shared<const Graph>(std::move(done.graph))});
  size_t next = 0;
  for (size_t i = 0; i < c.num_results() && i < initial.size(); ++i)
    c.out(i, passes_on(body, i) ? initial[i] : results[next++]);
}

constexpr HloOperator kOperators[] = {
    {"func.call", import_call},
    {"stablehlo.case", import_case},
    {"stablehlo.composite", import_composite},
    {"stablehlo.custom_call", import_custom_call},
    {"stablehlo.if", import_if},
    {"stablehlo.while", import_while},
};

}  // namespace

std::span<const HloOperator> control_operators() { return kOperators; }

}  // namespace tessera::inline stablehlo
