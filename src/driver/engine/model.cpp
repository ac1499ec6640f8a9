#include "driver/engine/model.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline driver {

namespace {

std::string text_of(DType dtype, const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "" : ",") + (dim < 0 ? "?" : std::to_string(dim));
  return fmt::format("{}[{}]", dtype_name(dtype), text);
}

bool shape_fits(const std::vector<int64_t>& declared, const std::vector<int64_t>& given) {
  return std::equal(declared.begin(), declared.end(), given.begin(), given.end(),
                    [](int64_t want, int64_t got) { return want < 0 || want == got; });
}

}  // namespace

bool TensorInfo::is_static() const {
  return std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
}

std::string TensorInfo::type_text() const {
  if (wrappers.empty() && !any_rank) return text_of(dtype, dims);
  return flow_type_of(*this).to_string();
}

FlowType flow_type_of(const TensorInfo& info) {
  FlowType type{info.wrappers, info.dtype, info.key, std::nullopt};
  if (!info.any_rank) type.dims = info.dims;
  return type;
}

void Model::bind_values(std::vector<RunValue> inputs) {
  std::vector<Tensor> tensors;
  for (RunValue& value : fitting_values(this->inputs(), std::move(inputs))) tensors.push_back(std::move(value.tensor));
  bind(std::move(tensors));
}

const std::vector<TensorInfo>& Model::states() const {
  static const std::vector<TensorInfo> none;
  return none;
}

Tensor Model::state(size_t index) const { throw InternalError("a model without states was asked for one"); }
void Model::set_state(size_t index, const Tensor& value) {
  throw InternalError("a model without states was given one");
}

std::vector<RunValue> Model::value_results() const { return {results().begin(), results().end()}; }

TensorInfo info_of(const FlowPort& port) {
  TensorInfo info{port.name, port.type.dtype, port.type.dims.value_or(std::vector<int64_t>())};
  info.wrappers = port.type.wrappers;
  info.key = port.type.key;
  info.any_rank = !port.type.dims;
  return info;
}

std::string value_text(const RunValue& value) {
  switch (value.kind) {
    case ValueKind::kTensor: return text_of(value.tensor.dtype(), value.tensor.dims());
    case ValueKind::kSequence: return fmt::format("a sequence of {}", value.items.size());
    case ValueKind::kOptional: return value.items.empty() ? "an empty optional" : "an optional";
    default: return fmt::format("a map of {}", value.items.at(0).tensor.num_elements());
  }
}

namespace {

// What is wrong with a value for the type that is left when `depth` wrappers are taken off; empty when nothing is.
std::string misfit(const TensorInfo& info, const RunValue& value, size_t depth) {
  const ValueKind wanted = depth < info.wrappers.size() ? info.wrappers[depth] : ValueKind::kTensor;
  if (value.kind != wanted) return value_text(value);
  if (wanted == ValueKind::kTensor) return value.tensor.dtype() == info.dtype ? "" : value_text(value);
  if (wanted == ValueKind::kMap) {
    const bool fits = value.items.size() == 2 && value.items[0].tensor.dtype() == info.key &&
                      value.items[1].tensor.dtype() == info.dtype;
    return fits ? "" : "a map of other types";
  }
  for (const RunValue& item : value.items)
    if (std::string found = misfit(info, item, depth + 1); !found.empty())
      return fmt::format("{} with {}", value_text(value), found);
  return "";
}

}  // namespace

std::vector<RunValue> fitting_values(const std::vector<TensorInfo>& infos, std::vector<RunValue> inputs) {
  if (infos.size() != inputs.size()) fitting_inputs(infos, std::vector<Tensor>(inputs.size()));
  for (size_t i = 0; i < infos.size(); ++i) {
    const TensorInfo& info = infos[i];
    if (info.is_tensor() && inputs[i].is_tensor()) {
      if (!info.any_rank || info.dtype != inputs[i].tensor.dtype())
        inputs[i] = fitting_inputs({info}, {inputs[i].tensor})[0];
      continue;
    }
    if (const std::string found = misfit(info, inputs[i], 0); !found.empty())
      throw UserError({.id = "TSR-6309",
                       .message = fmt::format("input '{}' got {}", info.name, found),
                       .node = {},
                       .legal = fmt::format("{}, its declared type", info.type_text()),
                       .hint = "give a file with a value of that type"});
  }
  return inputs;
}

std::vector<Tensor> fitting_inputs(const std::vector<TensorInfo>& infos, std::vector<Tensor> inputs) {
  if (infos.size() != inputs.size()) {
    throw UserError({.id = "TSR-6301",
                     .message = fmt::format("the model has {} inputs and {} were given", infos.size(), inputs.size()),
                     .node = {},
                     .legal = "one tensor for each input",
                     .hint = {}});
  }
  for (size_t i = 0; i < infos.size(); ++i) {
    const TensorInfo& info = infos[i];
    const std::string given = text_of(inputs[i].dtype(), inputs[i].dims());
    if (info.dtype != inputs[i].dtype()) {
      throw UserError({.id = "TSR-6302",
                       .message = fmt::format("input '{}' got {}", info.name, given),
                       .node = {},
                       .legal = fmt::format("{}, its declared type", info.type_text()),
                       .hint = shape_fits(info.dims, inputs[i].dims())
                                   ? "convert the values to that dtype; nothing is converted silently"
                                   : "convert the values to that dtype, and give a tensor of that shape; nothing is "
                                     "converted silently"});
    }
    if (info.dims.empty() && inputs[i].num_elements() == 1 && !inputs[i].dims().empty()) {
      inputs[i] = inputs[i].with_dims({});
    }
    if (!shape_fits(info.dims, inputs[i].dims())) {
      throw UserError({.id = "TSR-6303",
                       .message = fmt::format("input '{}' got {}", info.name, given),
                       .node = {},
                       .legal = fmt::format("{}, its declared type", info.type_text()),
                       .hint = "give a tensor of that shape, or compile the model for this one with --shape"});
    }
  }
  return inputs;
}

Tensor copy_of(const Tensor& tensor) {
  Tensor copy(tensor.dtype(), tensor.dims());
  if (copy.num_bytes() > 0) std::memcpy(copy.mutable_bytes(), tensor.bytes(), static_cast<size_t>(copy.num_bytes()));
  return copy;
}

void require_fits_state(const TensorInfo& info, const Tensor& value) {
  if (value.dtype() == info.dtype && value.dims() == info.dims) return;
  const TensorInfo given{info.name, value.dtype(), value.dims()};
  throw UserError({.id = value.dtype() == info.dtype ? "TSR-6303" : "TSR-6302",
                   .message = fmt::format("state '{}' got {}", info.name, given.type_text()),
                   .node = {},
                   .legal = fmt::format("{}, its declared type", info.type_text()),
                   .hint = "give a tensor of that dtype and shape; nothing is converted silently"});
}

}  // namespace tessera::inline driver
