#include "import/onnx/node_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "import/onnx/read/tensor_reader.h"
#include "support/error.h"

namespace tessera::inline onnx_import {

NodeContext::NodeContext(ImportState& state, const FlatNode& node, int64_t version, std::string_view primitive)
    : Emitter(state), attrs(node), state_(state), node_(node), version_(version), primitive_(primitive) {}

Diagnostic NodeContext::malformed_diagnostic(const std::string& found, const std::string& legal,
                                             const std::string& hint) const {
  return {"TSR-1044", fmt::format("{}: {}", op_type(), found), label(), legal, hint};
}

int NodeContext::num_inputs() const {
  int count = node_.proto->input_size();
  while (count > 0 && node_.proto->input(count - 1).empty()) --count;
  return count;
}

bool NodeContext::has(int i) const { return i < node_.proto->input_size() && !node_.proto->input(i).empty(); }

Binding NodeContext::binding(int i) {
  if (!has(i))
    throw UserError({"TSR-1041", fmt::format("{} has no input {}", op_type(), i), label(),
                     fmt::format("input {} is required", i), ""});
  // The importer runs a handler only when every operand could be imported.
  const auto binding = state_.lookup(node_.proto->input(i));
  check(binding.has_value(), "a handler reads a value that was not imported: " + node_.proto->input(i));
  return *binding;
}

ValueId NodeContext::in(int i) {
  const Binding found = binding(i);
  if (found.is_value()) return found.value;
  const FlowType type = flow_type(found);
  const std::string what = fmt::format("input {} (value '{}')", i, node_.proto->input(i));
  if (!type.is_tensor())
    malformed(fmt::format("{} is {}", what, type.to_string()), "a tensor",
              "take it apart first (SequenceAt, ConcatFromSequence, OptionalGetElement)");
  if (!type.is_fixed())
    unsupported(fmt::format("{} is {}: its shape is known only when the model runs", what, type.to_string()));
  if (state_.keeps_numbers && !type.numbers.empty())
    unsupported(fmt::format("{} has elements that are known only when the model runs", what));
  // The run refuses another shape than the declared one.
  return state_.flow.value_of(found.parts->slot, type.dtype, *type.dims);
}

bool NodeContext::has_value(int i) {
  if (!has(i)) return false;
  const Binding found = binding(i);
  if (found.is_value()) return true;
  const FlowType type = flow_type(found);
  return type.is_tensor() && type.is_fixed() && !(state_.keeps_numbers && !type.numbers.empty());
}

std::vector<ValueId> NodeContext::all_inputs() {
  std::vector<ValueId> values;
  for (int i = 0; i < num_inputs(); ++i) values.push_back(in(i));
  return values;
}

void NodeContext::require_inputs(int min, int max) {
  if (num_inputs() < min || (max >= 0 && num_inputs() > max))
    throw UserError({"TSR-1041",
                     fmt::format("{} has {} input{}", op_type(), num_inputs(), num_inputs() == 1 ? "" : "s"), label(),
                     max < 0      ? fmt::format("{} or more inputs", min)
                     : min == max ? fmt::format("{} input{}", min, min == 1 ? "" : "s")
                                  : fmt::format("{} to {} inputs", min, max),
                     ""});
  for (int i = 0; i < min; ++i) binding(i);
}

std::string NodeContext::input_name(int i, const std::string& name) const {
  return fmt::format("'{}' (input {}, value '{}')", name, i, node_.proto->input(i));
}

Tensor NodeContext::const_tensor(int i, const std::string& name) {
  if (!is_runtime(i)) return constant(in(i)).value_or(Tensor(dtype(in(i)), dims(in(i))));
  if (known_sizes(in(i)))
    unsupported(fmt::format("{} needs {} as numbers, but it depends on sizes", op_type(), input_name(i, name)));
  unsupported(
      fmt::format("{} must be known while compiling, but it depends on the model's inputs", input_name(i, name)));
}

bool NodeContext::is_runtime(int i) {
  if (!has(i)) return false;
  const ValueId v = in(i);
  const Shape extents = shape(v);
  const bool empty = std::any_of(extents.begin(), extents.end(), [](const Expr& e) { return is_const_int(e, 0); });
  return !empty && !constant(v) && !known_sizes(v);
}

Shape NodeContext::const_sizes(int i, const std::string& name) {
  if (const auto sizes = is_runtime(i) ? std::nullopt : known_sizes(in(i))) return *sizes;
  const std::vector<int64_t> values = const_ints(i, name);
  return {values.begin(), values.end()};
}

Expr NodeContext::const_size(int i, const std::string& name) {
  const Shape sizes = const_sizes(i, name);
  if (sizes.size() != 1) malformed(fmt::format("{} has {} elements", input_name(i, name), sizes.size()), "one element");
  return sizes[0];
}

std::optional<std::vector<int64_t>> NodeContext::declared_dims(int output) const {
  if (!wants(output)) return std::nullopt;
  return state_.declared(output_name(output));
}

std::vector<int64_t> NodeContext::require_declared(int i, const std::string& name, int output) {
  if (const auto dims = declared_dims(output); dims && dims->size() <= kMostDims && checked_num_elements(*dims))
    return *dims;
  unsupported(
      fmt::format("{} must be known while compiling, but it depends on the model's inputs, and the model declares no "
                  "fixed shape for output {}{}, which would do",
                  input_name(i, name), output, wants(output) ? fmt::format(" '{}'", output_name(output)) : ""));
}

void NodeContext::check_when_run(const std::string& what, ValueId holds, ValueId shown, const std::string& legal) {
  ValueId ok = reshape(holds, {1});
  for (const ValueId counts : state_.conditions) ok = op("logical_or", {ok, op("logical_not", {reshape(counts, {1})})});
  const int64_t count = num_elements(shown);
  if (count > kMaxCheckedValues) unsupported(fmt::format("{} of {} elements", what, count));
  const ValueId values = cast(reshape(shown, {count}), DType::kI64);
  const ValueId list = op("concat", {cast(ok, DType::kI64), values}, {{"axis", int64_t{0}}});
  state_.graph.rename(list, state_.graph.unique_name(fmt::format("{}.check", label())));
  state_.checks.emplace_back(list, RuntimeCheck{fmt::format("{} '{}': {}", op_type(), label(), what), legal});
}

void NodeContext::add_check(ValueId list, RuntimeCheck check) {
  if (!state_.conditions.empty()) {
    ValueId ok = op("ne", {slice(list, {0}, {1}, {1}), integer(0)});
    for (const ValueId counts : state_.conditions)
      ok = op("logical_or", {ok, op("logical_not", {reshape(counts, {1})})});
    const ValueId values = slice(list, {1}, {num_elements(list) - 1}, {1});
    list = op("concat", {cast(ok, DType::kI64), values}, {{"axis", int64_t{0}}});
  }
  state_.graph.rename(list, state_.graph.unique_name(fmt::format("{}.check", label())));
  state_.checks.emplace_back(list, std::move(check));
}

namespace {

// Puts a condition on the list while it lives.
class ConditionScope {
 public:
  ConditionScope(std::vector<ValueId>& conditions, ValueId condition) : conditions_(conditions) {
    conditions_.push_back(condition);
  }
  ~ConditionScope() { conditions_.pop_back(); }
  ConditionScope(const ConditionScope&) = delete;
  ConditionScope& operator=(const ConditionScope&) = delete;

 private:
  std::vector<ValueId>& conditions_;
};

}  // namespace

std::vector<ValueId> NodeContext::open(const onnx::GraphProto& subgraph, const std::vector<ValueId>& inputs,
                                       std::optional<ValueId> counts) {
  std::vector<ValueId> values;
  for (const Binding& result : open_bindings(subgraph, {inputs.begin(), inputs.end()}, counts)) {
    if (!result.is_value())
      unsupported(fmt::format("a result of a subgraph that is {}", flow_type(result).to_string()));
    values.push_back(result.value);
  }
  return values;
}

std::vector<Binding> NodeContext::open_bindings(const onnx::GraphProto& subgraph, const std::vector<Binding>& inputs,
                                                std::optional<ValueId> counts) {
  auto results = try_open(subgraph, inputs, counts);
  if (!results) throw UnsupportedSubgraph{};
  return *std::move(results);
}

std::optional<std::vector<Binding>> NodeContext::try_open(const onnx::GraphProto& subgraph,
                                                          const std::vector<Binding>& inputs,
                                                          std::optional<ValueId> counts) {
  if (!counts) return state_.open_subgraph(subgraph, node_, inputs);
  const ConditionScope scope(state_.conditions, *counts);
  return state_.open_subgraph(subgraph, node_, inputs);
}

OpenBlock NodeContext::open_block(const onnx::GraphProto& subgraph, const std::vector<BlockInput>& inputs,
                                  std::vector<FlowStep> first) {
  auto block = try_open_block(subgraph, inputs, std::move(first));
  if (!block) throw UnsupportedSubgraph{};
  return *std::move(block);
}

std::vector<int64_t> NodeContext::const_ints(int i, const std::string& name) {
  const Tensor tensor = const_tensor(i, name);
  if (!is_int(tensor.dtype()) || tensor.dims().size() > 1)
    malformed(
        fmt::format("{} is {}[{}]", input_name(i, name), dtype_name(tensor.dtype()), fmt::join(tensor.dims(), ",")),
        "a list of integers");
  std::vector<int64_t> values;
  for (int64_t k = 0; k < tensor.num_elements(); ++k) values.push_back(tensor.get_int(k));
  return values;
}

int64_t NodeContext::const_int(int i, const std::string& name) {
  const auto values = const_ints(i, name);
  if (values.size() != 1)
    malformed(fmt::format("{} has {} elements", input_name(i, name), values.size()), "one element");
  return values[0];
}

std::vector<double> NodeContext::const_floats(int i, const std::string& name) {
  const Tensor tensor = const_tensor(i, name);
  if (tensor.dims().size() > 1)
    malformed(fmt::format("{} has the shape [{}]", input_name(i, name), fmt::join(tensor.dims(), ",")),
              "a list of numbers");
  std::vector<double> values;
  for (int64_t k = 0; k < tensor.num_elements(); ++k) values.push_back(tensor.get_double(k));
  return values;
}

double NodeContext::const_float(int i, const std::string& name) {
  const auto values = const_floats(i, name);
  if (values.size() != 1)
    malformed(fmt::format("{} has {} elements", input_name(i, name), values.size()), "one element");
  return values[0];
}

std::optional<std::vector<int64_t>> NodeContext::ints_attr_or_input(const std::string& name, int64_t since, int i) {
  if (version_ < since) {
    if (!attrs.has(name)) return std::nullopt;
    return attrs.get_ints(name);
  }
  if (!has(i)) return std::nullopt;
  return const_ints(i, name);
}

std::optional<Shape> NodeContext::sizes_attr_or_input(const std::string& name, int64_t since, int i) {
  if (version_ >= since && has(i)) return const_sizes(i, name);
  const auto values = ints_attr_or_input(name, since, i);
  return values ? std::make_optional(make_shape(*values)) : std::nullopt;
}

ValueId NodeContext::mark_string(ValueId v) {
  state_.flow.mark_string(v);
  return v;
}

ValueId NodeContext::strings(const std::vector<std::string>& texts, std::vector<int64_t> dims) {
  Tensor numbers(DType::kI64, std::move(dims));
  for (size_t i = 0; i < texts.size(); ++i) numbers.set_int(static_cast<int64_t>(i), string_number(texts[i]));
  return mark_string(constant_value(std::move(numbers)));
}

FlowType NodeContext::flow_type(const Binding& binding) const {
  if (!binding.is_value()) return binding.parts->type;
  const TensorType& type = state_.graph.type(binding.value);
  return {{}, is_string(binding.value) ? DType::kString : type.dtype, DType::kI64, static_dims(type.shape)};
}

SlotId NodeContext::slot(const Binding& binding) {
  const bool known = !binding.is_value() && binding.parts->kind != Structure::Kind::kSlot;
  if (known) check_unconditional();
  return state_.flow.slot_of(binding, step_loc());
}

Binding NodeContext::from_slot(SlotId slot, const FlowType& type, bool fixed) {
  if (fixed && type.is_fixed()) return state_.flow.value_of(slot, type.dtype, *type.dims);
  return Binding(Structure{Structure::Kind::kSlot, type, {}, slot});
}

Binding NodeContext::step(FlowOp op, std::vector<SlotId> inputs, const FlowType& type, bool fixed,
                          std::vector<int64_t> ints) {
  const SlotId result = new_slot(type);
  add_step({op, std::move(inputs), {result}, std::move(ints), -1, {}, step_loc()});
  return from_slot(result, type, fixed);
}

void NodeContext::add_step(FlowStep step) {
  check_unconditional();
  state_.flow.add(std::move(step));
}

void NodeContext::check_unconditional() const {
  if (!state_.conditions.empty()) unsupported("steps of a run inside of what may not count");
}

std::string NodeContext::step_loc() const { return fmt::format("{} '{}'", op_type(), label()); }

Tensor NodeContext::tensor(const onnx::TensorProto& proto) {
  return tensor_from_proto(proto, state_.model, state_.model->external, label());
}

void NodeContext::out(int i, ValueId v) {
  if (wants(i)) results_.emplace_back(node_.proto->output(i), v);
}

void NodeContext::out(int i, Binding binding) {
  if (wants(i)) results_.emplace_back(node_.proto->output(i), std::move(binding));
}

void NodeContext::no_outputs_from(int first, const std::string& what) {
  for (int i = first; i < num_outputs(); ++i)
    if (wants(i)) unsupported(fmt::format("output {} ({}) is not supported", i, what));
}

}  // namespace tessera::inline onnx_import
