#include "driver/model.h"

#include <algorithm>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera {

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

std::string TensorInfo::type_text() const { return text_of(dtype, dims); }

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
                       .hint = "convert the values to that dtype; nothing is converted silently"});
    }
    if (info.dims.empty() && inputs[i].num_elements() == 1 && !inputs[i].dims().empty()) {
      inputs[i] = Tensor(info.dtype, {}, std::make_shared<const Tensor>(inputs[i]), inputs[i].bytes());
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

}  // namespace tessera
