#include "driver/api/api_values.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "support/error.h"
#include "support/utf8.h"

namespace tessera::inline driver {

TensorInfo info_of(const tessera_value_info& info) {
  TensorInfo result{info.name, static_cast<DType>(info.dtype), {info.dims, info.dims + std::max(info.rank, 0)}};
  for (int32_t i = 0; i < info.num_wrappers; ++i) result.wrappers.push_back(static_cast<ValueKind>(info.wrappers[i]));
  result.key = static_cast<DType>(info.key);
  result.any_rank = info.rank < 0;
  return result;
}

tessera_value_info api_info_of(const TensorInfo& info) {
  tessera_value_info result = {};
  check(info.dims.size() <= TESSERA_MAX_RANK && info.wrappers.size() <= std::size(result.wrappers),
        "a value of too many dimensions or parts");
  result.name = info.name.c_str();
  result.num_wrappers = static_cast<int32_t>(info.wrappers.size());
  for (size_t i = 0; i < info.wrappers.size(); ++i)
    result.wrappers[i] = static_cast<tessera_value_kind>(info.wrappers[i]);
  result.dtype = static_cast<tessera_dtype>(info.dtype);
  result.key = static_cast<tessera_dtype>(info.key);
  result.rank = info.any_rank ? -1 : static_cast<int32_t>(info.dims.size());
  std::copy(info.dims.begin(), info.dims.end(), result.dims);
  return result;
}

const tessera_value* ApiValues::add(const RunValue& value) {
  tessera_value& result = values_.emplace_back();
  result = {};
  result.kind = static_cast<tessera_value_kind>(value.kind);
  if (!value.is_tensor()) {
    std::vector<const tessera_value*> items;
    for (const RunValue& item : value.items) items.push_back(add(item));
    result.num_items = static_cast<int64_t>(items.size());
    result.items = items_.emplace_back(std::move(items)).data();
    return &result;
  }
  const Tensor& tensor = value.tensor;
  result.dtype = static_cast<tessera_dtype>(tensor.dtype());
  result.rank = static_cast<int32_t>(tensor.dims().size());
  check(result.rank <= TESSERA_MAX_RANK, "a tensor of too high a rank");
  std::copy(tensor.dims().begin(), tensor.dims().end(), result.dims);
  result.data = tensor.bytes();
  if (tensor.dtype() != DType::kString) return &result;
  std::vector<tessera_string> texts;
  for (const std::string& text : tensor.strings()) texts.push_back({text.data(), text.size()});
  result.data = texts_.emplace_back(std::move(texts)).data();
  return &result;
}

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& found, const std::string& legal) {
  throw UserError({.id = "TSR-7042",
                   .message = fmt::format("input '{}' is {}", name, found),
                   .node = {},
                   .legal = legal,
                   .hint = {}});
}

Tensor tensor_from_api(const tessera_value& value, const std::string& name) {
  int64_t count = 1;
  bool sound = value.rank >= 0 && value.rank <= TESSERA_MAX_RANK &&
               (value.dtype == TESSERA_STRING || tessera_dtype_bits(value.dtype) > 0);
  for (int32_t d = 0; sound && d < value.rank; ++d)
    sound = value.dims[d] >= 0 && !__builtin_mul_overflow(count, value.dims[d], &count);
  if (!sound) {
    refuse(name, "a tensor of no sound type and shape",
           "a known dtype, a rank of up to 16, and dimensions of 0 or more");
  }
  if (count > 0 && !value.data) refuse(name, "a tensor without data", "an address of the elements");
  std::vector<int64_t> dims(value.dims, value.dims + value.rank);
  if (value.dtype != TESSERA_STRING) {
    Tensor tensor(static_cast<DType>(value.dtype), std::move(dims));
    if (count > 0) std::memcpy(tensor.mutable_bytes(), value.data, static_cast<size_t>(tensor.num_bytes()));
    return tensor;
  }
  const auto* texts = static_cast<const tessera_string*>(value.data);
  std::vector<std::string> strings;
  for (int64_t i = 0; i < count; ++i) {
    if (texts[i].size > 0 && !texts[i].data) refuse(name, "a tensor of strings without data", "an address of each");
    strings.emplace_back(texts[i].size > 0 ? texts[i].data : "", texts[i].size);
    if (is_utf8(strings.back())) continue;
    throw UserError({.id = "TSR-7044",
                     .message = fmt::format("input '{}' has a string, number {}, that is not UTF-8", name, i),
                     .node = {},
                     .legal = {},
                     .hint = "give strings in UTF-8"});
  }
  return Tensor::of_strings(std::move(strings), std::move(dims));
}

// As the caller gave it, which may be no number of the enumeration.
uint32_t kind_number(const tessera_value& value) {
  uint32_t number;
  static_assert(sizeof(number) == sizeof(value.kind));
  memcpy(&number, &value.kind, sizeof(number));
  return number;
}

}  // namespace

RunValue from_api(const tessera_value* value, const std::string& name) {
  if (!value) refuse(name, "a null pointer", "a value");
  const int64_t count = value->num_items;
  switch (kind_number(*value)) {
    case TESSERA_TENSOR: return tensor_from_api(*value, name);
    case TESSERA_SEQUENCE:
    case TESSERA_OPTIONAL:
    case TESSERA_MAP: break;
    default: refuse(name, "of no known kind", "a tensor, a sequence, an optional, or a map");
  }
  if (count < 0 || (count > 0 && !value->items)) refuse(name, "a value without items", "an address of its items");
  if (value->kind == TESSERA_OPTIONAL && count > 1) refuse(name, "an optional of several elements", "none or one");
  RunValue result(static_cast<ValueKind>(value->kind), {});
  for (int64_t i = 0; i < count; ++i) result.items.push_back(from_api(value->items[i], name));
  if (value->kind != TESSERA_MAP) return result;
  const auto is_list = [](const RunValue& item) { return item.is_tensor() && item.tensor.dims().size() == 1; };
  if (count != 2 || !is_list(result.items[0]) || !is_list(result.items[1]) ||
      result.items[0].tensor.dims() != result.items[1].tensor.dims()) {
    refuse(name, "a map that is no pair of lists", "keys and values, as many of both, as tensors of rank 1");
  }
  return result;
}

}  // namespace tessera::inline driver
