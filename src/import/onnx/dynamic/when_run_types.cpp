#include "import/onnx/dynamic/when_run_types.h"

#include <algorithm>

#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;
constexpr size_t kLongest = 64;  // lists whose elements are followed

Extent fixed(int64_t value) { return {value, value}; }

// What no tensor has is a mistake that the run will find: sums of a few of these do not overflow.
Extent dimension(const Extent& e) {
  return e.value > kMaxTensorElements ? Extent{} : Extent{e.value, std::min(e.most, kMaxTensorElements)};
}

bool all_fixed(const Extents& list) {
  return list && std::all_of(list->begin(), list->end(), [](const Extent& e) { return e.is_fixed(); });
}

}  // namespace

Extents dims_of(const FlowType& type) {
  if (!type.dims) return std::nullopt;
  std::vector<Extent> result;
  for (size_t d = 0; d < type.dims->size(); ++d) result.push_back(dimension({(*type.dims)[d], type.most_of(d)}));
  return result;
}

Extents numbers_of(const FlowType& type) {
  if (type.numbers.empty()) return std::nullopt;
  std::vector<Extent> result;
  for (size_t i = 0; i < type.numbers.size(); ++i) result.push_back({type.numbers[i], type.most_numbers[i]});
  return result;
}

void set_dims(FlowType& type, const Extents& dims) {
  type.dims.reset();
  type.most.clear();
  if (!dims) return;
  type.dims.emplace();
  for (const Extent& made : *dims) {
    const Extent dim = dimension(made);
    type.dims->push_back(dim.value);
    type.most.push_back(dim.is_fixed() ? dim.value : dim.most);
  }
}

void set_numbers(FlowType& type, const Extents& numbers) {
  type.numbers.clear();
  type.most_numbers.clear();
  if (!numbers || numbers->size() > kLongest || (type.dtype != DType::kI64 && type.dtype != DType::kBool) ||
      !type.dims || type.dims->size() > 1)
    return;
  const bool any =
      std::any_of(numbers->begin(), numbers->end(), [](const Extent& e) { return e.is_fixed() || e.most < kFlowMost; });
  if (!any) return;
  for (const Extent& number : *numbers) {
    type.numbers.push_back(number.value);
    type.most_numbers.push_back(number.is_fixed() ? number.value : number.most);
  }
}

FlowType known_type(NodeContext& c, int i) {
  const Binding binding = c.binding(i);
  FlowType type = c.flow_type(binding);
  if (!type.is_tensor()) return type;
  if (binding.is_value() && type.dtype == DType::kI64 && type.dims->size() <= 1) {
    if (const auto known = c.constant(binding.value);
        known && known->num_elements() <= static_cast<int64_t>(kLongest)) {
      for (int64_t k = 0; k < known->num_elements(); ++k) {
        type.numbers.push_back(known->get_int(k));
        type.most_numbers.push_back(std::max<int64_t>(known->get_int(k), 0));
      }
    }
  }
  return type;
}

Extents list_of(NodeContext& c, int i) {
  if (!c.has(i)) return std::nullopt;
  const Binding binding = c.binding(i);
  if (binding.is_value()) {
    const auto known = c.constant(binding.value);
    if (known && is_int(known->dtype()) && known->dims().size() <= 1 && known->num_elements() <= 64) {
      std::vector<Extent> list;
      for (int64_t k = 0; k < known->num_elements(); ++k) list.push_back({known->get_int(k), known->get_int(k)});
      return list;
    }
  }
  const FlowType type = c.flow_type(binding);
  if (const Extents numbers = numbers_of(type)) return numbers;
  if (!type.dims || type.dims->size() > 1) return std::nullopt;
  const int64_t count = type.dims->empty() ? 1 : (*type.dims)[0];
  if (count < 0 || count > static_cast<int64_t>(kLongest)) return std::nullopt;
  return std::vector<Extent>(static_cast<size_t>(count));
}

Extents broadcast_extents(const std::vector<Extents>& operands) {
  size_t rank = 0;
  for (const Extents& operand : operands) {
    if (!operand) return std::nullopt;
    rank = std::max(rank, operand->size());
  }
  std::vector<Extent> result(rank, fixed(1));
  for (const Extents& operand : operands)
    for (size_t k = 0; k < operand->size(); ++k) {
      Extent& to = result[rank - operand->size() + k];
      const Extent& from = (*operand)[k];
      if (from.value == 1 || (to.is_fixed() && to.value != 1)) continue;
      if (from.is_fixed() || to.value == 1) to = from;
      else to.most = std::max(to.most, from.most);
    }
  return result;
}

int64_t product_of_most(const std::vector<Extent>& extents) {
  int64_t product = 1;
  for (const Extent& extent : extents)
    product = std::min(product * std::min(extent.most, kFlowMost), kFlowMost * kFlowMost);
  return product;
}

Extents sliced(const Extents& dims, const Extents& starts, const Extents& ends, const Extents& axes, bool has_axes,
               const Extents& steps, bool has_steps) {
  if (!dims) return std::nullopt;
  std::vector<Extent> result = *dims;
  const auto any = [](Extent& extent) { extent = {-1, extent.most}; };
  if (!starts || !ends || (has_axes && !axes) || (has_steps && !steps)) {
    std::for_each(result.begin(), result.end(), any);
    return result;
  }
  for (size_t i = 0; i < starts->size() && i < ends->size(); ++i) {
    // A negative number is not what a run knows: known lists of constants have those, too.
    int64_t axis = static_cast<int64_t>(i);
    if (has_axes) {
      if (i >= axes->size()) continue;
      axis = (*axes)[i].value;
      if (axis < 0) axis = (*axes)[i].most == axis ? axis + std::ssize(result) : -1;
    }
    if (axis < 0 || axis >= std::ssize(result)) {
      std::for_each(result.begin(), result.end(), any);
      return result;
    }
    Extent& extent = result[static_cast<size_t>(axis)];
    const auto known = [](const Extent& e) { return e.value >= 0 || e.most == e.value; };
    const Extent start = (*starts)[i], end = (*ends)[i];
    const int64_t step = has_steps && i < steps->size() && known((*steps)[i]) ? (*steps)[i].value : has_steps ? 0 : 1;
    if (known(start) && known(end) && step > 0 && extent.is_fixed()) {
      const auto place = [&](int64_t at) {
        return std::clamp(at < 0 ? at + extent.value : at, int64_t{0}, extent.value);
      };
      const int64_t distance = place(end.value) - place(start.value);
      extent = fixed(distance <= 0 ? 0 : (distance - 1) / step + 1);
      continue;
    }
    const bool from_begin = start.value == 0 && step == 1;
    const int64_t most = from_begin && end.most >= 0 && end.most < extent.most && !(known(end) && end.value < 0)
                             ? end.most
                             : extent.most;
    extent = {-1, most};
  }
  return result;
}

Extents reshaped(const Extents& dims, const Extents& shape, bool allow_zero) {
  if (!shape) return std::nullopt;
  const int64_t all = dims ? product_of_most(*dims) : kFlowMost;
  std::vector<Extent> result;
  int64_t fixed_product = 1;
  std::optional<size_t> rest;
  for (size_t d = 0; d < shape->size(); ++d) {
    const Extent& wanted = (*shape)[d];
    if (wanted.value == -1 && wanted.most == -1) {
      rest = d;
      result.push_back({-1, all});
    } else if (wanted.value == 0 && !allow_zero) {
      if (dims && d < dims->size()) result.push_back((*dims)[d]);
      else result.push_back({-1, all});
    } else {
      result.push_back(wanted.is_fixed() ? wanted : Extent{-1, std::min(wanted.most, all)});
    }
    if (result.back().is_fixed() &&
        __builtin_mul_overflow(fixed_product, std::max<int64_t>(1, result.back().value), &fixed_product))
      return std::nullopt;  // of no tensor
  }
  if (rest) {
    Extent& extent = result[*rest];
    extent.most = std::max<int64_t>(1, all / fixed_product);
    bool others = true;
    for (size_t d = 0; d < result.size(); ++d) others = others && (d == *rest || result[d].is_fixed());
    if (others && all_fixed(dims) && all % fixed_product == 0) extent = fixed(all / fixed_product);
  }
  return result;
}

void give_numbers(NodeContext& c, const Extents& numbers, bool scalar, FlowOp op, std::vector<SlotId> inputs,
                  FlowType type, std::vector<int64_t> ints) {
  if (all_fixed(numbers) && type.dtype == DType::kI64) {
    Ints values;
    for (const Extent& number : *numbers) values.push_back(number.value);
    const ValueId list = c.ints(values);
    return c.out(0, scalar ? c.reshape(list, {}) : list);
  }
  set_numbers(type, numbers);
  c.out(0, c.step(op, std::move(inputs), type, false, std::move(ints)));
}

}  // namespace tessera::inline onnx_import
