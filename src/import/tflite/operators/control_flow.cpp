// Operators that run graphs of the model, and variables, which these share.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "graph/subgraph.h"
#include "import/common/finished_graph.h"
#include "import/tflite/operators/handlers.h"
#include "import/tflite/operators/region_emitter.h"
#include "import/tflite/resource_table.h"

namespace tessera::inline tflite_import {
namespace {

// A region under construction. What enters graphs that run in it is a constant there, too, an input of the region, or
// the handle of a resource.
class Region {
 public:
  Region(OperatorContext& around, const char* name)
      : around_(around), region_(around, name), level_{around.state().ops, region_.graph, region_.builder} {}

  ValueId input(const std::string& name, const TensorType& type) {
    return region_.graph.add_input(region_.graph.unique_name(name), type);
  }
  // A value around the region as an input of it.
  SubgraphValue captured(const SubgraphValue& outer, const std::string& name) {
    if (outer.resource >= 0) return outer;
    return {input(name, around_.type(outer.value)), -1};
  }
  SubgraphValue constant(const Tensor& tensor) { return {region_.emit.constant_value(tensor), -1}; }
  // Outputs are added in order.
  void output(ValueId value) {
    if (!outputs_) outputs_.emplace(region_.builder, level_.ops);
    outputs_->add(value, "", false);
    types_.push_back(region_.graph.type(value));
  }
  GraphPtr finish() { return std::make_shared<const Graph>(needed_part(region_.graph)); }

  GraphLevel& level() { return level_; }
  Emitter& emit() { return region_.emit; }
  const std::vector<TensorType>& types() const { return types_; }

 private:
  OperatorContext& around_;
  RegionGraph region_;
  GraphLevel level_;
  std::optional<OutputList> outputs_;
  std::vector<TensorType> types_;
};

ValueId one_bool(Emitter& c, ValueId value) {
  if (c.dtype(value) != DType::kBool || c.num_elements(value) != 1)
    c.malformed(fmt::format("a condition of type {}", c.type(value).to_string()), "one bool");
  return c.reshape(value, {});
}

ValueId condition_of(OperatorContext& c, Emitter& in, const std::vector<SubgraphValue>& results) {
  if (results.size() != 1 || results[0].resource >= 0)
    c.malformed(fmt::format("a condition of {} results", results.size()), "one bool");
  return one_bool(in, results[0].value);
}

// The resources that graphs name, and those whose handles they are given.
std::set<int> shared_resources(OperatorContext& c, const std::vector<SubgraphValue>& inputs,
                               const std::vector<int32_t>& graphs) {
  std::set<int> all;
  for (const int32_t graph : graphs) {
    const std::set<int>& own = c.state().subgraphs.resources_of(graph);
    all.insert(own.begin(), own.end());
  }
  for (const SubgraphValue& input : inputs)
    if (input.resource >= 0) all.insert(input.resource);
  // Those that nothing reads or writes have no value.
  std::erase_if(all, [&](int resource) { return !c.state().level.resources.contains(resource); });
  return all;
}

// A graph of the model in place of the operator.
void run_in_place(OperatorContext& c, int32_t graph, const std::vector<SubgraphValue>& inputs) {
  const std::vector<SubgraphValue> results = c.state().subgraphs.inlined(c.state().level, graph, inputs);
  if (static_cast<int>(results.size()) != c.num_outputs())
    c.malformed(fmt::format("{} outputs of a graph of {}", c.num_outputs(), results.size()), "as many");
  for (int i = 0; i < c.num_outputs(); ++i) {
    const SubgraphValue& result = results[static_cast<size_t>(i)];
    if (result.resource >= 0) c.out_resource(i, result.resource);
    else c.out(i, result.value);
  }
}

std::vector<SubgraphValue> entering(OperatorContext& c, int first) {
  std::vector<SubgraphValue> inputs;
  for (int i = first; i < c.num_inputs(); ++i) inputs.push_back(c.entering(i));
  return inputs;
}

// What a value is inside: constants stay known.
std::optional<Tensor> known(OperatorContext& c, const SubgraphValue& input) {
  return input.resource >= 0 ? std::nullopt : c.constant(input.value);
}

void import_if(OperatorContext& c) {
  c.require_inputs(1, -1);
  const auto& options = c.options<tflite::IfOptions>();
  const int32_t graphs[] = {options.then_subgraph_index(), options.else_subgraph_index()};
  const std::vector<SubgraphValue> inputs = entering(c, 1);
  const ValueId condition = one_bool(c, c.in(0));
  if (const auto decided = c.constant(condition))
    return run_in_place(c, graphs[decided->get_int(0) != 0 ? 0 : 1], inputs);
  const std::set<int> resources = shared_resources(c, inputs, {graphs[0], graphs[1]});
  std::vector<ValueId> operands = {condition};
  for (const SubgraphValue& input : inputs)
    if (input.resource < 0 && !known(c, input)) operands.push_back(input.value);
  for (const int resource : resources) operands.push_back(c.state().level.resources[resource]);
  std::vector<GraphPtr> regions;
  std::vector<TensorType> types;
  std::vector<int> handles(static_cast<size_t>(c.num_outputs()), -1);
  for (const int32_t graph : graphs) {
    Region region(c, graph == graphs[0] ? "then" : "else");
    std::vector<SubgraphValue> inside;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto constant = known(c, inputs[i]);
      inside.push_back(constant ? region.constant(*constant) : region.captured(inputs[i], fmt::format("input_{}", i)));
    }
    for (const int resource : resources)
      region.level().resources[resource] =
          region.input(c.state().subgraphs.resource_name(resource), c.type(c.state().level.resources[resource]));
    const std::vector<SubgraphValue> results = c.state().subgraphs.inlined(region.level(), graph, inside);
    if (results.size() != handles.size())
      c.malformed(fmt::format("{} outputs of a branch of {}", c.num_outputs(), results.size()), "as many");
    for (size_t i = 0; i < results.size(); ++i) {
      if (regions.empty()) handles[i] = results[i].resource;
      else if (handles[i] != results[i].resource) c.unsupported("branches that choose a variable");
      if (results[i].resource < 0) region.output(results[i].value);
    }
    for (const int resource : resources) region.output(region.level().resources[resource]);
    if (regions.empty()) types = region.types();
    for (size_t i = 0; i < types.size(); ++i)
      if (types[i].dtype != region.types()[i].dtype ||
          static_dims(types[i].shape) != static_dims(region.types()[i].shape))
        c.unsupported(fmt::format("branches with results of types {} and {}", types[i].to_string(),
                                  region.types()[i].to_string()));
    regions.push_back(region.finish());
  }
  const std::vector<ValueId> results = c.with_regions("if", operands, {}, std::move(regions));
  size_t next = 0;
  for (int i = 0; i < c.num_outputs(); ++i) {
    const int handle = handles[static_cast<size_t>(i)];
    if (handle >= 0) c.out_resource(i, handle);
    else c.out(i, results[next++]);
  }
  for (const int resource : resources) c.state().level.resources[resource] = results[next++];
}

// Whether a graph gives an input back as it is.
bool passes_on(const tflite::SubGraph& graph, size_t i) {
  const auto at = static_cast<uint32_t>(i);
  return graph.inputs() && graph.outputs() && at < graph.inputs()->size() && at < graph.outputs()->size() &&
         graph.inputs()->Get(at) == graph.outputs()->Get(at);
}

void import_while(OperatorContext& c) {
  c.require_inputs(1, -1);
  const auto& options = c.options<tflite::WhileOptions>();
  const int32_t test = options.cond_subgraph_index(), body = options.body_subgraph_index();
  const tflite::SubGraph& body_graph = c.state().model.subgraph(body);
  const std::vector<SubgraphValue> inputs = entering(c, 0);
  if (static_cast<int>(inputs.size()) != c.num_outputs())
    c.malformed(fmt::format("{} inputs and {} outputs", inputs.size(), c.num_outputs()), "as many");
  const std::set<int> resources = shared_resources(c, inputs, {test, body});
  Subgraphs& subgraphs = c.state().subgraphs;
  const ValueId begins = condition_of(c, c, subgraphs.inlined(c.state().level, test, inputs));

  Region region(c, "iteration");
  region.input("number", {DType::kI64, {}, {}});
  std::vector<ValueId> carried, invariant;
  std::vector<SubgraphValue> inside(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].resource >= 0) inside[i] = inputs[i];
    if (inputs[i].resource >= 0 || passes_on(body_graph, i)) continue;
    inside[i] = region.captured(inputs[i], fmt::format("value_{}", i));
    carried.push_back(inputs[i].value);
  }
  for (const int resource : resources) {
    const ValueId now = c.state().level.resources[resource];
    region.level().resources[resource] = region.input(subgraphs.resource_name(resource), c.type(now));
    carried.push_back(now);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].resource >= 0 || !passes_on(body_graph, i)) continue;
    const auto constant = known(c, inputs[i]);
    inside[i] = constant ? region.constant(*constant) : region.captured(inputs[i], fmt::format("value_{}", i));
    if (!constant) invariant.push_back(inputs[i].value);
  }
  std::vector<SubgraphValue> after = subgraphs.inlined(region.level(), body, inside);
  if (after.size() != inputs.size())
    c.malformed(fmt::format("a body with {} results for {} values", after.size(), inputs.size()), "as many");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].resource != after[i].resource) c.unsupported("an iteration that chooses a variable");
    if (inputs[i].resource >= 0) continue;
    const TensorType &from = c.type(inputs[i].value), to = region.emit().type(after[i].value);
    if (from.dtype != to.dtype)
      c.malformed(fmt::format("a value that is {} and becomes {}", from.to_string(), to.to_string()), "one type");
    if (static_dims(from.shape) != static_dims(to.shape))
      c.unsupported(fmt::format("a value that is {} and becomes {}", from.to_string(), to.to_string()));
  }
  region.output(condition_of(c, region.emit(), subgraphs.inlined(region.level(), test, after)));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].resource < 0 && !passes_on(body_graph, i)) region.output(after[i].value);
  for (const int resource : resources) region.output(region.level().resources[resource]);

  std::vector<ValueId> operands = {begins};
  operands.insert(operands.end(), carried.begin(), carried.end());
  operands.insert(operands.end(), invariant.begin(), invariant.end());
  const std::vector<ValueId> results =
      c.with_regions("loop", operands, {{"num_carried", static_cast<int64_t>(carried.size())}, {"has_condition", true}},
                     {region.finish()});
  size_t next = 0;
  for (int i = 0; i < c.num_outputs(); ++i) {
    const SubgraphValue& input = inputs[static_cast<size_t>(i)];
    if (input.resource >= 0) c.out_resource(i, input.resource);
    else c.out(i, passes_on(body_graph, static_cast<size_t>(i)) ? input.value : results[next++]);
  }
  for (const int resource : resources) c.state().level.resources[resource] = results[next++];
}

void import_call_once(OperatorContext& c) {
  c.state().subgraphs.run_once(c.options<tflite::CallOnceOptions>().init_subgraph_index());
}

// A part of the model that some processors know as one operator, by its name: the graph that says what it is.
void import_composite(OperatorContext& c) {
  run_in_place(c, c.options2<tflite::StableHLOCompositeOptions>().decomposition_subgraph_index(), entering(c, 0));
}

int variable_of(OperatorContext& c) {
  const auto resource = c.resource(0);
  if (!resource) c.malformed("an operand that is no handle", "the handle of a variable");
  return *resource;
}

void import_handle(OperatorContext& c) {
  c.require_inputs(0, 0);
  c.out_resource(0, c.state().subgraphs.resource_named(ResourceTable::name_of(c.node())));
}

void import_read(OperatorContext& c) {
  c.require_inputs(1, 1);
  const auto value = c.state().level.resources.find(variable_of(c));
  if (value == c.state().level.resources.end()) c.unsupported("a variable that nothing writes");
  c.out(0, value->second);
}

void import_assign(OperatorContext& c) {
  c.require_inputs(2, 2);
  const int resource = variable_of(c);
  const ValueId value = c.in(1);
  const TensorType* type = c.state().subgraphs.resource_type(resource);
  if (!type || type->dtype != c.dtype(value) || static_dims(type->shape) != static_dims(c.shape(value)))
    c.unsupported(fmt::format("a variable of type {} that becomes {}", type ? type->to_string() : "unknown",
                              c.type(value).to_string()));
  c.state().level.resources[resource] = value;
}

}  // namespace

std::span<const TfliteOperator> flow_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {ASSIGN_VARIABLE, import_assign},
      {CALL_ONCE, import_call_once},
      {IF, import_if},
      {READ_VARIABLE, import_read},
      {STABLEHLO_COMPOSITE, import_composite},
      {VAR_HANDLE, import_handle},
      {WHILE, import_while},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
