// Sequences and optionals. Where the parts are known while compiling they are just named; what only a run knows becomes
// a step of a flow.
#include <fmt/format.h>

#include <algorithm>

#include "import/onnx/dynamic/flow_types.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/structures.h"
#include "import/onnx/read/dtypes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;
using Kind = Structure::Kind;

// Of a sequence that is known while compiling, and steps of a body that are written out times its nodes.
constexpr int64_t kMostParts = 1 << 16;

const Structure* known(const Binding& binding, Kind kind) {
  return !binding.is_value() && binding.parts->kind == kind ? binding.parts.get() : nullptr;
}

bool is_kind(const FlowType& type, ValueKind kind) { return !type.is_tensor() && type.wrappers[0] == kind; }

// Operand `i`, which must be a sequence.
Binding sequence(NodeContext& c, int i) {
  Binding found = c.binding(i);
  if (const FlowType type = c.flow_type(found); !is_kind(type, ValueKind::kSequence))
    c.malformed(fmt::format("input {} is {}", i, type.to_string()), "a sequence",
                is_kind(type, ValueKind::kOptional) ? "take it out with OptionalGetElement first" : "");
  return found;
}

// A tensor of one of `dtypes` with one element, at run time.
void require_number(NodeContext& c, int i, const char* name) {
  const FlowType type = c.flow_type(c.binding(i));
  const bool one =
      !type.is_fixed() || std::all_of(type.dims->begin(), type.dims->end(), [](int64_t d) { return d == 1; });
  if (!type.is_tensor() || (type.dtype != DType::kI32 && type.dtype != DType::kI64) || !one)
    c.malformed(fmt::format("{} is {}", c.input_name(i, name), type.to_string()), "one i32 or i64");
}

// Operand `i` as a place among `count` where it is known while compiling.
std::optional<int64_t> known_place(NodeContext& c, int i, const char* name, int64_t count, bool behind) {
  require_number(c, i, name);
  if (!c.binding(i).is_value()) return std::nullopt;
  const auto tensor = c.constant(c.in(i));
  if (!tensor) return std::nullopt;
  const int64_t place = tensor->get_int(0);
  const int64_t last = behind ? count : count - 1;
  if (place < -count || place > last)
    c.malformed(fmt::format("position {} of a sequence of {} elements", place, count),
                last < 0 ? "a sequence with elements" : fmt::format("{} to {}", -count, last));
  return place < 0 ? place + count : place;
}

void require_dtype(NodeContext& c, const FlowType& a, const FlowType& b) {
  if (!b.is_tensor()) c.malformed(fmt::format("an element that is {}", b.to_string()), "a tensor");
  if (a.dtype != b.dtype)
    c.malformed(fmt::format("an element {} for a sequence of {}", b.to_string(), dtype_name(a.dtype)),
                "elements of one type");
}

// The type of what holds elements of both types.
void join_dims(FlowType& type, const FlowType& other) { type.dims = common_dims(type.dims, other.dims); }

FlowType sequence_type(NodeContext& c, const std::vector<Binding>& items) {
  FlowType type = c.flow_type(items[0]);
  if (!type.is_tensor()) c.malformed(fmt::format("an element that is {}", type.to_string()), "a tensor");
  for (const Binding& item : items) {
    require_dtype(c, type, c.flow_type(item));
    join_dims(type, c.flow_type(item));
  }
  return type.in(ValueKind::kSequence);
}

void give_sequence(NodeContext& c, std::vector<Binding> items, FlowType type) {
  c.out(0, Binding(Structure{Kind::kSequence, std::move(type), std::move(items), -1}));
}

}  // namespace

std::optional<Ints> common_dims(const std::optional<Ints>& a, const std::optional<Ints>& b) {
  if (!a || !b || a->size() != b->size()) return std::nullopt;
  Ints dims = *a;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != (*b)[i]) dims[i] = -1;
  return dims;
}

namespace {

void import_sequence_construct(NodeContext& c) {
  c.require_inputs(1, -1);
  std::vector<Binding> items;
  for (int i = 0; i < c.num_inputs(); ++i) items.push_back(c.binding(i));
  FlowType type = sequence_type(c, items);
  give_sequence(c, std::move(items), std::move(type));
}

void import_sequence_empty(NodeContext& c) {
  c.require_inputs(0, 0);
  const auto dtype = dtype_of_onnx(c.attrs.get_int("dtype", onnx::TensorProto::FLOAT));
  if (!dtype) c.unsupported("a sequence of tensors of that dtype");
  give_sequence(c, {}, {{ValueKind::kSequence}, *dtype, DType::kI64, std::nullopt});
}

void import_sequence_insert(NodeContext& c) {
  c.require_inputs(2, 3);
  const Binding list = sequence(c, 0), item = c.binding(1);
  FlowType type = c.flow_type(list);
  require_dtype(c, type, c.flow_type(item));
  const Structure* parts = known(list, Kind::kSequence);
  const bool empty = parts && parts->items.empty();
  if (empty) type.dims = c.flow_type(item).dims;
  else join_dims(type, c.flow_type(item));
  if (c.has(2)) require_number(c, 2, "position");
  if (parts) {
    const auto count = std::ssize(parts->items);
    const auto place = c.has(2) ? known_place(c, 2, "position", count, true) : count;
    if (place) {
      std::vector<Binding> items = parts->items;
      items.insert(items.begin() + *place, item);
      return give_sequence(c, std::move(items), std::move(type));
    }
  }
  c.out(0, c.step(FlowOp::kInsert, {c.slot(list), c.slot(item), c.slot(2)}, type, false));
}

void import_sequence_erase(NodeContext& c) {
  c.require_inputs(1, 2);
  const Binding list = sequence(c, 0);
  if (c.has(1)) require_number(c, 1, "position");
  if (const Structure* parts = known(list, Kind::kSequence)) {
    const auto count = std::ssize(parts->items);
    if (!c.has(1) && count == 0) c.malformed("an empty sequence", "a sequence with elements");
    const auto place = c.has(1) ? known_place(c, 1, "position", count, false) : count - 1;
    if (place) {
      std::vector<Binding> items = parts->items;
      items.erase(items.begin() + *place);
      return give_sequence(c, std::move(items), parts->type);
    }
  }
  c.out(0, c.step(FlowOp::kErase, {c.slot(list), c.slot(1)}, c.flow_type(list), false));
}

void import_sequence_at(NodeContext& c) {
  c.require_inputs(2, 2);
  const Binding list = sequence(c, 0);
  require_number(c, 1, "position");
  if (const Structure* parts = known(list, Kind::kSequence))
    if (const auto place = known_place(c, 1, "position", std::ssize(parts->items), false))
      return c.out(0, parts->items[static_cast<size_t>(*place)]);
  // Tensors of one shape in the model have it in every run.
  const Structure* parts = known(list, Kind::kSequence);
  const bool fixed = parts && std::all_of(parts->items.begin(), parts->items.end(),
                                          [](const Binding& item) { return item.is_value(); });
  c.out(0, c.step(FlowOp::kAt, {c.slot(list), c.slot(1)}, c.flow_type(list).element(), fixed));
}

void import_sequence_length(NodeContext& c) {
  c.require_inputs(1, 1);
  const Binding list = sequence(c, 0);
  if (const Structure* parts = known(list, Kind::kSequence))
    return c.out(0, c.integer(static_cast<int64_t>(parts->items.size())));
  c.out(0, c.step(FlowOp::kLength, {c.slot(list)}, {{}, DType::kI64, DType::kI64, Ints{}}, true));
}

void import_split_to_sequence(NodeContext& c) {
  c.require_inputs(1, 2);
  const bool keepdims = c.attrs.get_int("keepdims", 1) != 0;
  const int64_t wanted_axis = c.attrs.get_int("axis", 0);
  const FlowType type = c.flow_type(c.binding(0));
  const bool known_split = !c.has(1) || (c.binding(1).is_value() && !c.is_runtime(1));
  if (c.has(1)) {
    const FlowType split = c.flow_type(c.binding(1));
    if (!split.is_tensor() || (split.dtype != DType::kI32 && split.dtype != DType::kI64) ||
        (split.dims && split.dims->size() > 1))
      c.malformed(fmt::format("{} is {}", c.input_name(1, "split"), split.to_string()), "one i32 or i64, or a list");
  }
  // Many parts are no names of their own.
  const auto many = [&] {
    const auto axis = static_cast<size_t>(c.axis(wanted_axis, c.rank(c.in(0))));
    const int64_t extent = c.dims(c.in(0))[axis];
    if (!c.has(1)) return extent > kMostParts;
    return c.rank(c.in(1)) == 0 ? extent / std::max<int64_t>(c.const_int(1, "split"), 1) > kMostParts
                                : c.num_elements(c.in(1)) > kMostParts;
  };
  if (!c.binding(0).is_value() || !known_split || many()) {
    if (!type.is_tensor()) c.malformed(fmt::format("an operand that is {}", type.to_string()), "a tensor");
    const FlowType pieces = type.of_any_shape().in(ValueKind::kSequence);
    return c.out(0, c.step(FlowOp::kSplit, {c.slot(0), c.slot(1)}, pieces, false, {wanted_axis, keepdims}));
  }
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const auto axis = static_cast<size_t>(c.axis(wanted_axis, c.rank(x)));
  Ints sizes;
  const bool squeeze = !c.has(1) && !keepdims;
  if (!c.has(1)) {
    sizes.assign(static_cast<size_t>(dims[axis]), 1);
  } else if (const Ints split = c.const_ints(1, "split"); c.rank(c.in(1)) == 0) {
    if (split[0] < 1) c.malformed(fmt::format("split = {}", split[0]), "1 or more");
    for (int64_t left = dims[axis]; left > 0; left -= sizes.back()) sizes.push_back(std::min(split[0], left));
  } else {
    int64_t sum = 0;
    for (const int64_t size : split) {
      if (size < 0 || size > dims[axis] - sum)
        c.malformed(fmt::format("a part of {} elements", size), "parts that add up to the dimension");
      sum += size;
    }
    if (sum != dims[axis])
      c.malformed(fmt::format("parts of {} elements of a dimension of {}", sum, dims[axis]),
                  "parts that add up to the dimension");
    sizes = split;
  }
  FlowType element{{}, type.dtype, DType::kI64, dims};
  std::vector<Binding> items;
  Ints starts(dims.size(), 0);
  for (const int64_t size : sizes) {
    Ints part = dims;
    part[axis] = size;
    ValueId item = c.slice(x, starts, part, Ints(dims.size(), 1));
    starts[axis] += size;
    if (squeeze) {
      part.erase(part.begin() + static_cast<ptrdiff_t>(axis));
      item = c.reshape(item, part);
    }
    c.mark_like(item, x);
    items.push_back(item);
    if (items.size() == 1) element.dims = part;
    else element.dims = common_dims(element.dims, part);
  }
  give_sequence(c, std::move(items), element.in(ValueKind::kSequence));
}

void import_concat_from_sequence(NodeContext& c) {
  c.require_inputs(1, 1);
  const Binding list = sequence(c, 0);
  const int64_t wanted_axis = c.attrs.require_int("axis");
  const bool new_axis = c.attrs.get_int("new_axis", 0) != 0;
  const Structure* parts = known(list, Kind::kSequence);
  const bool fixed =
      parts && !parts->items.empty() &&
      std::all_of(parts->items.begin(), parts->items.end(), [](const Binding& item) { return item.is_value(); });
  if (!fixed) {
    if (parts && parts->items.empty()) c.malformed("an empty sequence", "a sequence with elements");
    return c.out(0, c.step(FlowOp::kJoin, {c.slot(list)}, c.flow_type(list).element().of_any_shape(), false,
                           {wanted_axis, new_axis}));
  }
  std::vector<ValueId> values;
  const ValueId first = parts->items[0].value;
  const int axis = c.axis(wanted_axis, c.rank(first) + (new_axis ? 1 : 0));
  for (const Binding& item : parts->items) {
    Ints dims = c.dims(item.value), like = c.dims(first);
    const bool same_rank = dims.size() == like.size();
    if (same_rank && !new_axis) like[static_cast<size_t>(axis)] = dims[static_cast<size_t>(axis)];
    if (dims != like)
      c.malformed(fmt::format("elements {} and {}", c.type(first).to_string(), c.type(item.value).to_string()),
                  new_axis ? "elements of one shape" : "elements of one shape but for the axis");
    if (new_axis) dims.insert(dims.begin() + axis, 1);
    values.push_back(c.reshape(item.value, dims));
  }
  const ValueId y = values.size() == 1 ? values[0] : c.op("concat", values, {{"axis", int64_t{axis}}});
  c.out(0, c.mark_like(y, first));
}

void import_optional(NodeContext& c) {
  c.require_inputs(0, 1);
  const onnx::TypeProto* declared = c.attrs.get_type("type");
  if (c.has(0)) {
    const Binding item = c.binding(0);
    const FlowType type = c.flow_type(item);
    if (is_kind(type, ValueKind::kOptional))
      c.malformed(fmt::format("an operand that is {}", type.to_string()), "a tensor or a sequence");
    return c.out(0, Binding(Structure{Kind::kOptional, type.in(ValueKind::kOptional), {item}, -1}));
  }
  if (!declared) c.malformed("neither an operand nor the attribute 'type'", "one of them");
  const auto type = flow_type_of(*declared);
  if (!type) c.unsupported("an optional of that type");
  c.out(0, Binding(Structure{Kind::kOptional, type->in(ValueKind::kOptional), {}, -1}));
}

void import_optional_has_element(NodeContext& c) {
  c.require_inputs(0, 1);
  if (!c.has(0)) return c.out(0, c.scalar(DType::kBool, 0));
  const Binding found = c.binding(0);
  if (const Structure* parts = known(found, Kind::kOptional))
    return c.out(0, c.scalar(DType::kBool, parts->items.empty() ? 0 : 1));
  if (!is_kind(c.flow_type(found), ValueKind::kOptional)) return c.out(0, c.scalar(DType::kBool, 1));
  c.out(0, c.step(FlowOp::kHasElement, {c.slot(found)}, {{}, DType::kBool, DType::kI64, Ints{}}, true));
}

void import_optional_get_element(NodeContext& c) {
  c.require_inputs(1, 1);
  const Binding found = c.binding(0);
  if (const Structure* parts = known(found, Kind::kOptional)) {
    if (parts->items.empty()) c.malformed("an optional without an element", "an optional that has one");
    return c.out(0, parts->items[0]);
  }
  const FlowType type = c.flow_type(found);
  if (!is_kind(type, ValueKind::kOptional)) return c.out(0, found);
  c.out(0, c.step(FlowOp::kGetElement, {c.slot(found)}, type.element(), false));
}

// The body runs for each element: written out where the sequences are known, else as a loop of the flow.
void import_sequence_map(NodeContext& c) {
  c.require_inputs(1, -1);
  const onnx::GraphProto& body = c.attrs.require_graph("body");
  if (body.input_size() != c.num_inputs() || body.output_size() < c.num_outputs())
    c.malformed(fmt::format("a body of {} inputs and {} results", body.input_size(), body.output_size()),
                fmt::format("{} inputs and {} results", c.num_inputs(), c.num_outputs()));
  sequence(c, 0);
  std::vector<Binding> operands;
  std::optional<size_t> count;
  bool all_known = true;
  for (int i = 0; i < c.num_inputs(); ++i) {
    operands.push_back(c.binding(i));
    if (!is_kind(c.flow_type(operands.back()), ValueKind::kSequence)) continue;
    const Structure* parts = known(operands.back(), Kind::kSequence);
    all_known = all_known && parts;
    if (!parts) continue;
    if (count && *count != parts->items.size())
      c.malformed(fmt::format("sequences of {} and {} elements", *count, parts->items.size()), "equal lengths");
    count = parts->items.size();
  }
  if (all_known && *count > 0 && static_cast<int64_t>(*count) <= kMostParts / std::max(1, body.node_size())) {
    std::vector<std::vector<Binding>> results(static_cast<size_t>(body.output_size()));
    for (size_t k = 0; k < *count; ++k) {
      std::vector<Binding> inputs;
      for (const Binding& operand : operands) {
        const Structure* parts = known(operand, Kind::kSequence);
        inputs.push_back(parts ? parts->items[k] : operand);
      }
      const auto step = c.open_bindings(body, inputs);
      for (size_t i = 0; i < results.size(); ++i) results[i].push_back(step.at(i));
    }
    for (int i = 0; i < c.num_outputs(); ++i) {
      auto& items = results[static_cast<size_t>(i)];
      FlowType type = sequence_type(c, items);
      c.out(i, Binding(Structure{Kind::kSequence, std::move(type), std::move(items), -1}));
    }
    return;
  }
  const FlowType number{{}, DType::kI64, DType::kI64, Ints{}};
  const SlotId limit = c.new_slot(number), step = c.new_slot(number);
  std::vector<BlockInput> inputs;
  std::vector<FlowStep> first;
  FlowStep loop{FlowOp::kWhile, {limit, -1, step}, {}, {}, -1, {}, c.step_loc()};
  for (const Binding& operand : operands) {
    const FlowType type = c.flow_type(operand);
    if (!is_kind(type, ValueKind::kSequence)) {
      inputs.push_back({c.slot(operand), type, operand.is_value()});
      continue;
    }
    const SlotId item = c.new_slot(type.element());
    first.push_back({FlowOp::kAt, {c.slot(operand), step}, {item}, {}, -1, {}, c.step_loc()});
    inputs.push_back({item, type.element(), false});
  }
  // Every sequence must be as long as the first.
  FlowStep same{FlowOp::kLength, {}, {limit}, {}, -1, {}, c.step_loc()};
  for (const FlowStep& at : first) same.inputs.push_back(at.inputs[0]);
  const OpenBlock block = c.open_block(body, inputs, std::move(first));
  c.add_step({FlowOp::kNumber, {}, {step}, {0}, -1, {}, c.step_loc()});
  c.add_step(std::move(same));
  std::vector<FlowStep> last;
  for (int i = 0; i < c.num_outputs(); ++i) {
    const BlockInput& result = block.results.at(static_cast<size_t>(i));
    if (!result.type.is_tensor()) c.malformed(fmt::format("a result that is {}", result.type.to_string()), "a tensor");
    const SlotId list = c.new_slot(result.type.in(ValueKind::kSequence));
    c.add_step({FlowOp::kSequence, {}, {list}, {static_cast<int64_t>(result.type.dtype)}, -1, {}, c.step_loc()});
    last.push_back({FlowOp::kInsert, {list, result.slot, -1}, {list}, {}, -1, {}, c.step_loc()});
    c.out(i, c.from_slot(list, result.type.in(ValueKind::kSequence), false));
  }
  last.push_back({FlowOp::kCount, {step}, {step}, {}, -1, {}, c.step_loc()});
  loop.blocks.push_back(block.finish(std::move(last)));
  c.add_step(std::move(loop));
}

}  // namespace

OperatorFamily sequences_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"ConcatFromSequence", 11, import_concat_from_sequence},
      OperatorImporter{"Optional", 15, import_optional},
      OperatorImporter{"OptionalGetElement", 15, import_optional_get_element},
      OperatorImporter{"OptionalHasElement", 15, import_optional_has_element},
      OperatorImporter{"SequenceAt", 11, import_sequence_at},
      OperatorImporter{"SequenceConstruct", 11, import_sequence_construct},
      OperatorImporter{"SequenceEmpty", 11, import_sequence_empty},
      OperatorImporter{"SequenceErase", 11, import_sequence_erase},
      OperatorImporter{"SequenceInsert", 11, import_sequence_insert},
      OperatorImporter{"SequenceLength", 11, import_sequence_length},
      OperatorImporter{"SequenceMap", 17, import_sequence_map},
      OperatorImporter{"SplitToSequence", 11, import_split_to_sequence},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
