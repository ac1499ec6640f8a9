#include "import/onnx/dynamic/when_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "import/onnx/dynamic/when_run_types.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/model_file.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

FlowType tensor_type(NodeContext& c, int i) {
  FlowType type = c.flow_type(c.binding(i));
  if (!type.is_tensor()) c.malformed(fmt::format("input {} is {}", i, type.to_string()), "a tensor");
  return type.of_any_shape();
}

// Operand `i`, a list of integers, or the attribute that came before it; -1 when there is neither.
SlotId list(NodeContext& c, int i, const std::string& name, int64_t since) {
  if (c.version() >= since) {
    if (c.has(i))
      if (const DType dtype = tensor_type(c, i).dtype; dtype != DType::kI64 && dtype != DType::kI32)
        c.malformed(fmt::format("{} is {}", c.input_name(i, name), dtype_name(dtype)), "integers");
    constexpr int64_t kLongest = 64;  // no tensor has as many dimensions
    if (c.has(i))
      if (const FlowType type = c.flow_type(c.binding(i));
          type.is_fixed() && !type.dims->empty() && (*type.dims)[0] > kLongest)
        c.unsupported(fmt::format("{} is {}", c.input_name(i, name), type.to_string()));
    return c.slot(i);
  }
  if (!c.attrs.has(name)) return -1;
  return c.slot(Binding(c.ints(c.attrs.get_ints(name))));
}

// What is known of integers that are computed from shapes.
Extents computed_numbers(NodeContext& c, const std::string& op) {
  std::vector<std::vector<Extent>> operands;
  size_t count = 1;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const FlowType type = c.flow_type(c.binding(i));
    const Extents numbers = type.dtype == DType::kI64 || numbers_of(type) ? list_of(c, i) : std::nullopt;
    if (!numbers || type.dtype != (op == "Where" && i == 0 ? DType::kBool : DType::kI64)) return std::nullopt;
    count = std::max(count, numbers->size());
    operands.push_back(*numbers);
  }
  std::vector<Extent> result;
  const auto at = [&](size_t i, size_t k) { return operands[i][operands[i].size() == 1 ? 0 : k]; };
  const auto is_known = [](const Extent& e) { return e.is_fixed() || e.most == e.value; };
  for (size_t k = 0; k < count; ++k) {
    std::optional<Extent> value;
    for (const auto& operand : operands)
      if (operand.size() != 1 && operand.size() != count) return std::nullopt;
    if (op == "Where") {
      const Extent condition = at(0, k), x = at(1, k), y = at(2, k);
      if (condition.is_fixed()) result.push_back(condition.value != 0 ? x : y);
      else if (x.is_fixed() && x.value == y.value) result.push_back(x);
      else result.push_back({-1, std::max(x.most, y.most)});
      continue;
    }
    if (op == "Equal") {
      const Extent x = at(0, k), y = at(1, k);
      if (is_known(x) && is_known(y)) result.push_back({x.value == y.value, x.value == y.value});
      else result.push_back({-1, 1});
      continue;
    }
    for (const auto& operand : operands) {
      if (operand.size() != 1 && operand.size() != count) return std::nullopt;
      const Extent& next = operand[operand.size() == 1 ? 0 : k];
      if (!value) {
        value = next;
        continue;
      }
      const bool both = value->is_fixed() && next.is_fixed();
      const int64_t a = value->value, b = next.value;
      int64_t sum = 0, product = 0;
      const bool wraps = (op == "Add" && (__builtin_add_overflow(a, b, &sum) ||
                                          __builtin_add_overflow(value->most, next.most, &sum))) ||
                         (op == "Mul" && __builtin_mul_overflow(a, b, &product));
      Extent made;
      if (value->most < 0 || next.most < 0 || wraps) made = {};  // the run finds it
      else if (op == "Min") made = {both ? std::min(a, b) : -1, std::min(value->most, next.most)};
      else if (op == "Max") made = {both ? std::max(a, b) : -1, std::max(value->most, next.most)};
      else if (op == "Add") made = {both ? a + b : -1, std::min(value->most + next.most, kFlowMost)};
      else if (op == "Mul") made = {both ? product : -1, std::min(product_of_most({*value, next}), kFlowMost)};
      else if (op == "Sub") made = {both && a >= b ? a - b : -1, value->most};
      else if (op == "Div") made = {both && b > 0 ? a / b : -1, value->most};
      else return std::nullopt;
      if (both && made.is_fixed()) made.most = made.value;
      value = made;
    }
    result.push_back(*value);
  }
  return result;
}

// Every operand that is no single constant is broadcast to one shape, and the operator's kernel runs over it in pieces
// of a fixed size.
void elementwise(NodeContext& c) {
  const std::string& op = c.op_type();
  std::vector<Extents> dims;
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.has(i)) dims.push_back(dims_of(known_type(c, i)));
  const Extents result_dims = broadcast_extents(dims);
  Extents numbers;
  const bool keeps = op == "Cast" && c.attrs.get_int("to", 0) == onnx::TensorProto::INT64;
  if (result_dims && result_dims->size() <= 1 && (keeps || op != "Cast")) numbers = computed_numbers(c, op);
  if (numbers && op != "Equal" &&
      std::all_of(numbers->begin(), numbers->end(), [](const Extent& e) { return e.is_fixed(); })) {
    Ints values;
    for (const Extent& number : *numbers) values.push_back(number.value);
    const ValueId list = c.ints(values);
    for (const std::string& name : c.attrs.unread()) c.attrs.ignore(name);
    return c.out(0, result_dims->empty() ? c.reshape(list, {}) : list);
  }
  std::vector<SlotId> inputs;
  std::vector<FlowType> results;
  const int32_t piece = c.state().elementwise(c.node(), inputs, results);
  for (const std::string& name : c.attrs.unread()) c.attrs.ignore(name);  // the piece's import has read them
  if (inputs.empty()) c.unsupported("no operand with a shape");
  FlowStep step{FlowOp::kElementwise, std::move(inputs), {}, {}, piece, {}, c.step_loc()};
  int output = 0;
  for (FlowType& type : results) {
    while (!c.wants(output)) ++output;
    set_dims(type, result_dims);
    if (output == 0) set_numbers(type, numbers);
    step.outputs.push_back(c.new_slot(type));
    step.ints.push_back(type.dtype == DType::kString);
    c.out(output++, c.from_slot(step.outputs.back(), type, false));
  }
  c.add_step(std::move(step));
}

FlowType typed(DType dtype, const Extents& dims) {
  FlowType type{{}, dtype, DType::kI64, std::nullopt};
  set_dims(type, dims);
  return type;
}

// The same elements as operand 0 in other dimensions.
void give(NodeContext& c, FlowOp op, std::vector<SlotId> inputs, const Extents& dims, std::vector<int64_t> ints = {},
          const Extents& numbers = {}) {
  const FlowType type = typed(known_type(c, 0).dtype, dims);
  if (dims && dims->size() <= 1 && numbers)
    return give_numbers(c, numbers, dims->empty(), op, std::move(inputs), type, std::move(ints));
  c.out(0, c.step(op, std::move(inputs), type, false, std::move(ints)));
}

void shape(NodeContext& c) {
  c.require_inputs(1, 1);
  tensor_type(c, 0);
  const int64_t start = c.attrs.get_int("start", 0), end = c.attrs.get_int("end", INT64_MAX);
  Extents numbers = dims_of(c.flow_type(c.binding(0)));
  if (numbers) {
    const int64_t rank = std::ssize(*numbers);
    const auto bounded = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
    const int64_t begin = bounded(start), last = std::max(begin, bounded(end));
    numbers = std::vector<Extent>(numbers->begin() + begin, numbers->begin() + last);
  }
  const FlowType type =
      typed(DType::kI64, numbers ? Extents{{Extent{std::ssize(*numbers), std::ssize(*numbers)}}} : Extents{{Extent{}}});
  give_numbers(c, numbers, false, FlowOp::kShape, {c.slot(0)}, type, {start, end});
}

void size(NodeContext& c) {
  c.require_inputs(1, 1);
  tensor_type(c, 0);
  c.out(0, c.step(FlowOp::kSize, {c.slot(0)}, typed(DType::kI64, std::vector<Extent>{}), true));
}

void slice(NodeContext& c) {
  const FlowType type = tensor_type(c, 0), known = known_type(c, 0);
  SlotId starts = -1, ends = -1, axes = -1, steps = -1;
  Extents dims, numbers;
  const auto follow = [&](const Extents& from, const Extents& to, const Extents& along, bool has_axes,
                          const Extents& by, bool has_steps) {
    dims = sliced(dims_of(known), from, to, along, has_axes, by, has_steps);
    const Extents all = numbers_of(known);
    if (!all || !from || !to || from->size() != 1 || to->size() != 1) return;
    const bool bounds = (*from)[0].most == (*from)[0].value && (*to)[0].most == (*to)[0].value;
    if (!bounds || (has_steps && (!by || by->size() != 1 || (*by)[0].value != 1))) return;
    const int64_t count = std::ssize(*all);
    const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + count : at, 0, count); };
    const int64_t first = place((*from)[0].value), last = std::max(first, place((*to)[0].value));
    numbers = std::vector<Extent>(all->begin() + first, all->begin() + last);
  };
  if (c.version() < 10) {
    const Ints from = c.attrs.require_ints("starts"), to = c.attrs.require_ints("ends");
    starts = c.slot(Binding(c.ints(from)));
    ends = c.slot(Binding(c.ints(to)));
    const auto extents = [](const Ints& list) {
      std::vector<Extent> result;
      for (const int64_t value : list) result.push_back({value, value});
      return result;
    };
    const bool has_axes = c.attrs.has("axes");
    const Ints along = has_axes ? c.attrs.get_ints("axes") : Ints{};
    if (has_axes) axes = c.slot(Binding(c.ints(along)));
    follow(extents(from), extents(to), extents(along), has_axes, {}, false);
  } else {
    c.require_inputs(3, 5);
    starts = list(c, 1, "starts", 10), ends = list(c, 2, "ends", 10), axes = list(c, 3, "axes", 10),
    steps = list(c, 4, "steps", 10);
    follow(list_of(c, 1), list_of(c, 2), list_of(c, 3), c.has(3), list_of(c, 4), c.has(4));
  }
  give(c, FlowOp::kSlice, {c.slot(0), starts, ends, axes, steps}, dims, {}, numbers);
}

void reshape(NodeContext& c) {
  const FlowType known = (tensor_type(c, 0), known_type(c, 0));
  const SlotId shape = list(c, 1, "shape", 5);
  if (shape < 0) c.malformed("no shape", "a shape");
  const bool allow_zero = c.attrs.get_int("allowzero", 0) != 0;
  Extents wanted;
  if (c.version() >= 5) wanted = list_of(c, 1);
  const Extents dims = reshaped(dims_of(known), wanted, allow_zero);
  give(c, FlowOp::kReshape, {c.slot(0), shape}, dims, {allow_zero ? 1 : 0}, numbers_of(known));
}

void squeeze(NodeContext& c) {
  const FlowType known = (tensor_type(c, 0), known_type(c, 0));
  const SlotId axes = list(c, 1, "axes", 13);
  Extents dims = dims_of(known), wanted;
  if (c.version() >= 13) wanted = list_of(c, 1);
  else if (axes >= 0) {
    wanted.emplace();
    for (const int64_t axis : c.attrs.get_ints("axes")) wanted->push_back({axis, axis});
  }
  if (dims && axes >= 0) {
    const auto rank = std::ssize(*dims);
    std::vector<bool> drop(dims->size(), false);
    bool sound = wanted.has_value();
    for (size_t i = 0; sound && i < wanted->size(); ++i) {
      const Extent axis = (*wanted)[i];
      const int64_t at = axis.value < 0 && axis.most == axis.value ? axis.value + rank : axis.value;
      sound = at >= 0 && at < rank;
      if (sound) drop[static_cast<size_t>(at)] = true;
    }
    std::vector<Extent> left;
    for (size_t d = 0; d < dims->size(); ++d)
      if (!drop[d]) left.push_back((*dims)[d]);
    dims = sound ? Extents(left) : std::nullopt;
  } else {
    dims.reset();  // a dimension of 1 that only a run sees would go, too
  }
  give(c, FlowOp::kSqueeze, {c.slot(0), axes}, dims, {}, numbers_of(known));
}

void unsqueeze(NodeContext& c) {
  const FlowType known = (tensor_type(c, 0), known_type(c, 0));
  const SlotId axes = list(c, 1, "axes", 13);
  if (axes < 0) c.malformed("no axes", "a list of axes");
  Extents dims = dims_of(known), wanted;
  if (c.version() >= 13) wanted = list_of(c, 1);
  else {
    wanted.emplace();
    for (const int64_t axis : c.attrs.get_ints("axes")) wanted->push_back({axis, axis});
  }
  if (dims && wanted) {
    const auto rank = static_cast<size_t>(dims->size() + wanted->size());
    std::vector<bool> fresh(rank, false);
    bool sound = true;
    for (const Extent& axis : *wanted) {
      const int64_t at =
          axis.value < 0 && axis.most == axis.value ? axis.value + static_cast<int64_t>(rank) : axis.value;
      sound = sound && at >= 0 && at < static_cast<int64_t>(rank) && !fresh[static_cast<size_t>(at)];
      if (sound) fresh[static_cast<size_t>(at)] = true;
    }
    std::vector<Extent> result;
    size_t own = 0;
    for (size_t d = 0; sound && d < rank; ++d) result.push_back(fresh[d] ? Extent{1, 1} : (*dims)[own++]);
    dims = sound ? Extents(result) : std::nullopt;
  } else {
    dims.reset();
  }
  give(c, FlowOp::kUnsqueeze, {c.slot(0), axes}, dims, {}, numbers_of(known));
}

void transpose(NodeContext& c) {
  const FlowType known = (tensor_type(c, 0), known_type(c, 0));
  const Ints perm = c.attrs.get_ints("perm");
  Extents dims = dims_of(known);
  if (dims && !perm.empty()) {
    std::vector<Extent> result;
    for (const int64_t from : perm)
      if (from >= 0 && from < std::ssize(*dims)) result.push_back((*dims)[static_cast<size_t>(from)]);
    dims = result;
  } else if (dims) {
    std::reverse(dims->begin(), dims->end());
  }
  give(c, FlowOp::kTranspose, {c.slot(0)}, dims, perm);
}

void gather(NodeContext& c) {
  c.require_inputs(2, 2);
  const FlowType known = (tensor_type(c, 0), known_type(c, 0)), indices = tensor_type(c, 1);
  if (indices.dtype != DType::kI32 && indices.dtype != DType::kI64)
    c.malformed(fmt::format("indices {}", indices.to_string()), "i32 or i64");
  const int64_t axis = c.attrs.get_int("axis", 0);
  const Extents from = dims_of(known), places = dims_of(known_type(c, 1));
  Extents dims, numbers;
  if (from && places) {
    const int64_t at = axis < 0 ? axis + std::ssize(*from) : axis;
    if (at < 0 || at >= std::ssize(*from))
      c.malformed(fmt::format("axis {} of {}", axis, known.to_string()), "an axis of it");
    std::vector<Extent> result(from->begin(), from->begin() + at);
    result.insert(result.end(), places->begin(), places->end());
    result.insert(result.end(), from->begin() + at + 1, from->end());
    dims = result;
  }
  const Extents all = numbers_of(known), chosen = list_of(c, 1);
  if (all && chosen) {
    numbers.emplace();
    for (const Extent& place : *chosen) {
      const bool is_known = place.most == place.value;
      const int64_t at = place.value < 0 ? place.value + std::ssize(*all) : place.value;
      if (is_known && at >= 0 && at < std::ssize(*all)) numbers->push_back((*all)[static_cast<size_t>(at)]);
      else numbers->push_back({});
    }
  }
  give(c, FlowOp::kGather, {c.slot(0), c.slot(1)}, dims, {axis}, numbers);
}

void expand(NodeContext& c) {
  c.require_inputs(2, 2);
  const FlowType known = (tensor_type(c, 0), known_type(c, 0));
  const SlotId shape = list(c, 1, "shape", 8);
  give(c, FlowOp::kExpand, {c.slot(0), shape}, broadcast_extents({dims_of(known), list_of(c, 1)}));
}

void constant_of_shape(NodeContext& c) {
  c.require_inputs(1, 1);
  const SlotId shape = list(c, 0, "input", 9);
  const auto* proto = c.attrs.get_tensor("value");
  Tensor value = proto ? c.tensor(*proto) : Tensor(DType::kF32, {});
  if (value.num_elements() != 1 || value.dtype() == DType::kString)
    c.malformed(fmt::format("a value of {} elements", value.num_elements()), "one number");
  const DType dtype = value.dtype();
  const ValueId scalar = c.reshape(c.constant_value(std::move(value)), {});
  c.out(0, c.step(FlowOp::kExpand, {c.slot(Binding(scalar)), shape}, typed(dtype, list_of(c, 0)), false));
}

void range(NodeContext& c) {
  c.require_inputs(3, 3);
  const FlowType type = tensor_type(c, 0);
  for (int i = 1; i < 3; ++i)
    if (const FlowType other = tensor_type(c, i); other.dtype != type.dtype)
      c.malformed(fmt::format("operands {} and {}", type.to_string(), other.to_string()), "one type");
  Extent count;
  const Extents start = list_of(c, 0), limit = list_of(c, 1), delta = list_of(c, 2);
  for (const Extents& operand : {start, limit, delta})
    if (operand && operand->size() != 1)
      c.malformed(fmt::format("an operand of {} elements", operand->size()), "start, limit and delta as one each");
  if (start && limit && delta && (*start)[0].value >= 0 && (*delta)[0].value >= 1) count.most = (*limit)[0].most;
  c.out(0, c.step(FlowOp::kRange, {c.slot(0), c.slot(1), c.slot(2)}, typed(type.dtype, std::vector<Extent>{count}),
                  false));
}

void pad(NodeContext& c) {
  const FlowType known = (tensor_type(c, 0), known_type(c, 0));
  if (c.version() < 11) c.unsupported("pads of a tensor whose shape is known only when the model runs");
  c.require_inputs(2, 4);
  const std::string mode = c.attrs.get_string("mode", "constant");
  static constexpr std::array<std::string_view, 4> kModes = {"constant", "edge", "reflect", "wrap"};
  const auto number = std::find(kModes.begin(), kModes.end(), mode) - kModes.begin();
  if (number == std::ssize(kModes)) c.malformed(fmt::format("mode '{}'", mode), "constant, edge, reflect, wrap");
  const SlotId pads = list(c, 1, "pads", 11), axes = list(c, 3, "axes", 11);
  Extents dims = dims_of(known);
  const Extents wide = list_of(c, 1);
  const auto is_known = [](const Extent& e) { return e.most == e.value; };
  const bool all =
      dims && wide && axes < 0 && wide->size() == 2 * dims->size() && std::all_of(wide->begin(), wide->end(), is_known);
  for (size_t d = 0; dims && d < dims->size(); ++d) {
    Extent& extent = (*dims)[d];
    if (!all) {
      extent = {};
      continue;
    }
    const int64_t before = (*wide)[d].value, behind = (*wide)[d + dims->size()].value;
    for (const int64_t amount : {before, behind})
      if (amount < -kMaxTensorElements || amount > kMaxTensorElements)
        c.malformed(fmt::format("pads of {}", amount), "amounts of up to 2^40");
    const int64_t more = before + behind;
    extent = {extent.is_fixed() ? extent.value + more : -1, std::max<int64_t>(extent.most + more, 0)};
    if (more < 0 && extent.value < 0) extent.value = -1;
  }
  give(c, FlowOp::kPad, {c.slot(0), pads, mode == "constant" ? c.slot(2) : -1, axes}, dims, {number});
}

void concat(NodeContext& c) {
  c.require_inputs(1, -1);
  const FlowType type = tensor_type(c, 0);
  std::vector<SlotId> parts;
  const int64_t axis = c.version() < 4 ? c.attrs.get_int("axis", 1) : c.attrs.require_int("axis");
  Extents dims, numbers = std::vector<Extent>();
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (const FlowType other = tensor_type(c, i); other.dtype != type.dtype)
      c.malformed(fmt::format("operands {} and {}", type.to_string(), other.to_string()), "one type");
    parts.push_back(c.slot(i));
    const FlowType known = known_type(c, i);
    const Extents own = dims_of(known), list = list_of(c, i);
    if (numbers && list && own && own->size() == 1 && type.dtype == DType::kI64)
      numbers->insert(numbers->end(), list->begin(), list->end());
    else numbers.reset();
    if (i == 0) dims = own;
    else if (!dims || !own || own->size() != dims->size()) dims.reset();
    else
      for (size_t d = 0; d < dims->size(); ++d) {
        Extent& sum = (*dims)[d];
        const Extent& next = (*own)[d];
        const int64_t along = axis < 0 ? axis + std::ssize(*dims) : axis;
        if (static_cast<int64_t>(d) == along)
          sum = {sum.is_fixed() && next.is_fixed() ? sum.value + next.value : -1, sum.most + next.most};
        else if (!sum.is_fixed()) sum = next.is_fixed() ? next : Extent{-1, std::min(sum.most, next.most)};
      }
  }
  give(c, FlowOp::kConcat, std::move(parts), dims, {axis}, numbers);
}

void flatten(NodeContext& c) {
  c.require_inputs(1, 1);
  const FlowType known = (tensor_type(c, 0), known_type(c, 0));
  const int64_t axis = c.attrs.get_int("axis", 1);
  Extents dims = dims_of(known);
  if (dims) {
    const int64_t at = std::clamp<int64_t>(axis < 0 ? axis + std::ssize(*dims) : axis, 0, std::ssize(*dims));
    const auto all = [](const std::vector<Extent>& part) {
      int64_t value = 1;
      for (const Extent& e : part)
        if (!e.is_fixed() || value < 0 || __builtin_mul_overflow(value, e.value, &value)) value = -1;
      return Extent{value, value >= 0 ? value : product_of_most(part)};
    };
    dims = std::vector<Extent>{all({dims->begin(), dims->begin() + at}), all({dims->begin() + at, dims->end()})};
  }
  give(c, FlowOp::kFlatten, {c.slot(0)}, dims, {axis});
}

void cast(NodeContext& c) {
  const FlowType from = tensor_type(c, 0);
  constexpr int kText = onnx::TensorProto::STRING;
  if (from.dtype != DType::kString && c.attrs.get_int("to", 0) != kText) return elementwise(c);
  c.unsupported("a cast of strings whose shape is known only when the model runs");
}

struct Row {
  std::string_view op;
  WhenRun handler;
};

// Sorted by name.
constexpr std::array kRows = {
    Row{"Abs", elementwise},
    Row{"Acos", elementwise},
    Row{"Acosh", elementwise},
    Row{"Add", elementwise},
    Row{"And", elementwise},
    Row{"Asin", elementwise},
    Row{"Asinh", elementwise},
    Row{"Atan", elementwise},
    Row{"Atanh", elementwise},
    Row{"BitShift", elementwise},
    Row{"BitwiseAnd", elementwise},
    Row{"BitwiseNot", elementwise},
    Row{"BitwiseOr", elementwise},
    Row{"BitwiseXor", elementwise},
    Row{"Cast", cast},
    Row{"Ceil", elementwise},
    Row{"Celu", elementwise},
    Row{"Clip", elementwise},
    Row{"Concat", concat},
    Row{"ConstantOfShape", constant_of_shape},
    Row{"Cos", elementwise},
    Row{"Cosh", elementwise},
    Row{"Div", elementwise},
    Row{"Elu", elementwise},
    Row{"Equal", elementwise},
    Row{"Erf", elementwise},
    Row{"Exp", elementwise},
    Row{"Expand", expand},
    Row{"Flatten", flatten},
    Row{"Floor", elementwise},
    Row{"Gather", gather},
    Row{"Gelu", elementwise},
    Row{"Greater", elementwise},
    Row{"GreaterOrEqual", elementwise},
    Row{"HardSigmoid", elementwise},
    Row{"HardSwish", elementwise},
    Row{"IsInf", elementwise},
    Row{"IsNaN", elementwise},
    Row{"LeakyRelu", elementwise},
    Row{"Less", elementwise},
    Row{"LessOrEqual", elementwise},
    Row{"Log", elementwise},
    Row{"Max", elementwise},
    Row{"Mean", elementwise},
    Row{"Min", elementwise},
    Row{"Mish", elementwise},
    Row{"Mod", elementwise},
    Row{"Mul", elementwise},
    Row{"Neg", elementwise},
    Row{"Not", elementwise},
    Row{"Or", elementwise},
    Row{"Pad", pad},
    Row{"Pow", elementwise},
    Row{"Range", range},
    Row{"Reciprocal", elementwise},
    Row{"Relu", elementwise},
    Row{"Reshape", reshape},
    Row{"Round", elementwise},
    Row{"Selu", elementwise},
    Row{"Shape", shape},
    Row{"Sigmoid", elementwise},
    Row{"Sign", elementwise},
    Row{"Sin", elementwise},
    Row{"Sinh", elementwise},
    Row{"Size", size},
    Row{"Slice", slice},
    Row{"Softplus", elementwise},
    Row{"Softsign", elementwise},
    Row{"Sqrt", elementwise},
    Row{"Squeeze", squeeze},
    Row{"Sub", elementwise},
    Row{"Sum", elementwise},
    Row{"Tan", elementwise},
    Row{"Tanh", elementwise},
    Row{"ThresholdedRelu", elementwise},
    Row{"Transpose", transpose},
    Row{"Unsqueeze", unsqueeze},
    Row{"Where", elementwise},
    Row{"Xor", elementwise},
};

}  // namespace

WhenRun find_when_run(const onnx::NodeProto& node) {
  if (!standard_domain(node.domain()).empty()) return nullptr;
  const auto row = std::lower_bound(kRows.begin(), kRows.end(), node.op_type(),
                                    [](const Row& r, const std::string& name) { return r.op < name; });
  return row != kRows.end() && row->op == node.op_type() ? row->handler : nullptr;
}

}  // namespace tessera::inline onnx_import
