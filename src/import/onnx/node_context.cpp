#include "import/onnx/node_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "import/onnx/read/tensor_reader.h"
#include "ops/composites/composites.h"
#include "support/error.h"

namespace tessera::inline onnx_import {

NodeContext::NodeContext(ImportState& state, const FlatNode& node, int64_t version, std::string_view primitive)
    : attrs(node), state_(state), node_(node), version_(version), primitive_(primitive) {}

void NodeContext::malformed(const std::string& found, const std::string& legal, const std::string& hint) const {
  throw UserError({"TSR-1044", fmt::format("{}: {}", op_type(), found), label(), legal, hint});
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

int NodeContext::axis(int64_t axis, int rank, const std::string& name) {
  if (axis < -rank || axis >= rank)
    malformed(fmt::format("{} is {} for a tensor of rank {}", name, axis, rank),
              rank == 0 ? "a tensor with dimensions" : fmt::format("{} to {}", -rank, rank - 1));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int64_t> NodeContext::axes(std::vector<int64_t> axes, int rank) {
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t& a : axes) {
    a = axis(a, rank, "an entry of axes");
    if (seen[static_cast<size_t>(a)]) malformed(fmt::format("axis {} is named twice", a), "each axis once");
    seen[static_cast<size_t>(a)] = true;
  }
  return axes;
}

std::string NodeContext::input_name(int i, const std::string& name) const {
  return fmt::format("'{}' (input {}, value '{}')", name, i, node_.proto->input(i));
}

Tensor NodeContext::const_tensor(int i, const std::string& name) {
  if (!is_runtime(i)) return constant(in(i)).value_or(Tensor(dtype(in(i)), dims(in(i))));
  unsupported(
      fmt::format("{} must be known while compiling, but it depends on the model's inputs", input_name(i, name)));
}

bool NodeContext::is_runtime(int i) { return has(i) && type(in(i)).num_elements() > 0 && !constant(in(i)); }

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
  const int64_t count = type(shown).num_elements();
  if (count > kMaxCheckedValues) unsupported(fmt::format("{} of {} elements", what, count));
  const ValueId values = cast(reshape(shown, {count}), DType::kI64);
  const ValueId check = op("concat", {cast(ok, DType::kI64), values}, {{"axis", int64_t{0}}});
  state_.graph.rename(check, state_.graph.unique_name(fmt::format("{}.check", label())));
  state_.checks.emplace_back(check, RuntimeCheck{fmt::format("{} '{}': {}", op_type(), label(), what), legal});
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
  if (!counts) return state_.open_subgraph(subgraph, node_, inputs);
  const ConditionScope scope(state_.conditions, *counts);
  return state_.open_subgraph(subgraph, node_, inputs);
}

std::variant<std::vector<Binding>, Diagnostic> NodeContext::try_open(const onnx::GraphProto& branch, ValueId counts) {
  const ConditionScope scope(state_.conditions, counts);
  return state_.try_subgraph(branch, node_);
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
  return {{}, is_string(binding.value) ? DType::kString : type.dtype, DType::kI64, type.dims()};
}

SlotId NodeContext::slot(const Binding& binding) {
  const bool known = !binding.is_value() && binding.parts->kind != Structure::Kind::kSlot;
  if (known && !state_.conditions.empty()) throw NeedsBlock{};
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
  if (!state_.conditions.empty()) throw NeedsBlock{};
  state_.flow.add(std::move(step));
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

void NodeContext::check_shape(const std::vector<int64_t>& dims) const {
  if (!checked_num_elements(dims))
    malformed(fmt::format("a result would have the shape [{}]", fmt::join(dims, ",")), "at most 2^40 elements");
}

void NodeContext::check_size(ValueId v) const {
  const Shape& shape = type(v).shape;
  const auto dims = static_dims(shape);
  check(dims.has_value(), "an imported value has a symbolic shape");
  if (dims->size() > kMostDims)
    throw UserError({"TSR-1023", fmt::format("a result of {} has {} dimensions", op_type(), dims->size()), label(),
                     fmt::format("at most {} dimensions", kMostDims), ""});
  if (!checked_num_elements(*dims))
    throw UserError({"TSR-1023", fmt::format("a result of {} has the shape {}", op_type(), to_string(shape)), label(),
                     "at most 2^40 elements",
                     "give the model smaller inputs, with --dim or --shape where they are open"});
}

ValueId NodeContext::op(std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
  const ValueId result = state_.builder.add(state_.ops.get(name), std::move(inputs), std::move(attrs));
  check_size(result);
  return result;
}

ValueId NodeContext::composite(std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
  const ValueId result = add_composite(state_.builder, state_.ops, name, std::move(inputs), std::move(attrs)).at(0);
  check_size(result);
  return result;
}

std::vector<ValueId> NodeContext::with_regions(std::string_view name, std::vector<ValueId> inputs, Attrs attrs,
                                               std::vector<GraphPtr> regions) {
  const std::vector<ValueId> results =
      state_.builder.add_multi(state_.ops.get(name), std::move(inputs), std::move(attrs), std::move(regions));
  for (const ValueId result : results) check_size(result);
  return results;
}

ValueId NodeContext::constant_value(Tensor tensor) {
  return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
}

ValueId NodeContext::scalar(DType dtype, double value) {
  Tensor tensor(dtype, {});
  tensor.set_double(0, value);
  if (dtype == DType::kI64) return integer(tensor.get_int(0));
  const auto key = std::make_pair(dtype, std::bit_cast<uint64_t>(value));
  if (const auto it = state_.scalars.find(key); it != state_.scalars.end()) return it->second;
  return state_.scalars[key] = constant_value(std::move(tensor));
}

ValueId NodeContext::integer(int64_t value) {
  const auto key = std::make_pair(DType::kI64, static_cast<uint64_t>(value));
  if (const auto it = state_.scalars.find(key); it != state_.scalars.end()) return it->second;
  Tensor tensor(DType::kI64, {});
  tensor.set_int(0, value);
  return state_.scalars[key] = constant_value(std::move(tensor));
}

ValueId NodeContext::reshape(ValueId v, std::vector<int64_t> dims) {
  if (this->dims(v) == dims) return v;
  check_shape(dims);
  const Node* producer = state_.graph.producer(v);
  if (producer && producer->op->kind == OpKind::kConstant && checked_num_elements(dims) == type(v).num_elements()) {
    const TensorPtr data = producer->attrs.get<TensorPtr>("value");
    return constant_value(Tensor(data->dtype(), std::move(dims), data, data->bytes()));
  }
  return op("reshape", {v}, {{"shape", std::move(dims)}});
}

ValueId NodeContext::cast(ValueId v, DType to) { return dtype(v) == to ? v : op("cast", {v}, {{"to", to}}); }

ValueId NodeContext::transpose(ValueId v, std::vector<int64_t> perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return v;
  return op("transpose", {v}, {{"perm", std::move(perm)}});
}

ValueId NodeContext::broadcast(ValueId v, std::vector<int64_t> dims) {
  if (this->dims(v) == dims) return v;
  check_shape(dims);
  return op("broadcast", {v}, {{"shape", std::move(dims)}});
}

ValueId NodeContext::slice(ValueId v, std::vector<int64_t> starts, std::vector<int64_t> sizes,
                           std::vector<int64_t> steps) {
  const bool whole = std::all_of(starts.begin(), starts.end(), [](int64_t s) { return s == 0; }) && sizes == dims(v) &&
                     std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; });
  if (whole) return v;
  return op("slice", {v}, {{"starts", std::move(starts)}, {"sizes", std::move(sizes)}, {"steps", std::move(steps)}});
}

ValueId NodeContext::reduce(const std::string& kind, ValueId v, std::vector<int64_t> axes, bool keepdims) {
  std::sort(axes.begin(), axes.end());
  return op("reduce", {v}, {{"kind", kind}, {"axes", std::move(axes)}, {"keepdims", keepdims}});
}

ValueId NodeContext::iota(std::vector<int64_t> dims, int64_t axis, DType dtype) {
  check_shape(dims);
  return op("iota", {}, {{"shape", std::move(dims)}, {"axis", axis}, {"dtype", dtype}});
}

ValueId NodeContext::zeros(DType dtype, std::vector<int64_t> dims) {
  constexpr int64_t kMostStored = int64_t{1} << 20;
  check_shape(dims);
  if (*checked_num_elements(dims) <= kMostStored) return constant_value(Tensor(dtype, std::move(dims)));
  return broadcast(scalar(dtype, 0), std::move(dims));
}

ValueId NodeContext::per_channel(ValueId vector, int rank) {
  if (this->rank(vector) != 1)
    malformed(fmt::format("a per-channel operand has the shape [{}]", fmt::join(dims(vector), ",")), "one dimension");
  std::vector<int64_t> shape(static_cast<size_t>(std::max(rank, 2)), 1);
  shape[1] = dims(vector)[0];
  return reshape(vector, std::move(shape));
}

}  // namespace tessera::inline onnx_import
