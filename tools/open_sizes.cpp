#include "open_sizes.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/error.h"

namespace tessera {

OpenSizes::OpenSizes(std::vector<TensorInfo> inputs, std::vector<OpenDim> dims)
    : declared_(inputs), infos_(std::move(inputs)), dims_(std::move(dims)), sizes_(dims_.size()) {}

void OpenSizes::choose(size_t symbol, int64_t size) {
  sizes_[symbol] = size;
  for (size_t i = 0; i < declared_.size(); ++i)
    for (size_t axis = 0; axis < declared_[i].dims.size(); ++axis)
      if (declared_[i].dims[axis] == -static_cast<int64_t>(symbol) - 1) infos_[i].dims[axis] = size;
}

void OpenSizes::follow(const CompileOptions& sizes, bool strict) {
  const auto fail = [&](const std::string& message) {
    if (!strict) return;
    std::vector<std::string> open;
    for (const OpenDim& dim : dims_) open.push_back(fmt::format("'{}' from {} to {}", dim.name, dim.lo, dim.hi));
    std::vector<std::string> inputs;
    for (const TensorInfo& info : declared_) inputs.push_back(fmt::format("'{}': {}", info.name, info.type_text()));
    throw UserError({.id = "TSR-4061",
                     .message = message,
                     .node = {},
                     .legal = open.empty() ? fmt::format("the module's inputs are fixed: {}", fmt::join(inputs, ", "))
                                           : fmt::format("the module leaves open {}", fmt::join(open, ", ")),
                     .hint = open.empty() ? "compile the ONNX model for that size" : "give one size of those"});
  };
  for (const auto& [name, bounds] : sizes.dims) {
    std::optional<size_t> symbol;
    for (size_t i = 0; i < dims_.size(); ++i)
      if (dims_[i].name == name) symbol = i;
    for (const TensorInfo& info : declared_)
      for (size_t axis = 0; axis < info.dims.size() && !symbol; ++axis)
        if (info.dims[axis] < 0 && name == fmt::format("{}[{}]", info.name, axis))
          symbol = static_cast<size_t>(-(info.dims[axis] + 1));
    if (!symbol || *symbol >= dims_.size())
      fail(fmt::format("--dim {}: the module has no open dimension of that name", name));
    else if (bounds.lo != bounds.hi)
      fail(fmt::format("--dim {}={}..{}: a run has one size", name, bounds.lo, bounds.hi));
    else choose(*symbol, bounds.lo);
  }
  for (const auto& [name, shape] : sizes.shapes) {
    const auto info = std::ranges::find(declared_, name, &TensorInfo::name);
    if (info == declared_.end()) {
      fail(fmt::format("--shape {}: the module has no such input", name));
      continue;
    }
    const bool fits = std::equal(info->dims.begin(), info->dims.end(), shape.begin(), shape.end(),
                                 [](int64_t want, int64_t got) { return want < 0 || want == got; });
    if (!fits) {
      fail(fmt::format("--shape {}={}: the input is {}", name, fmt::join(shape, "x"), info->type_text()));
      continue;
    }
    take(static_cast<size_t>(info - declared_.begin()), shape);
  }
}

void OpenSizes::take(size_t input, const std::optional<std::vector<int64_t>>& shape) {
  const std::vector<int64_t>& dims = declared_[input].dims;
  if (!shape || shape->size() != dims.size()) return;  // what does not fit, the run refuses
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] >= 0) continue;
    const auto symbol = static_cast<size_t>(-(dims[axis] + 1));
    if (symbol < sizes_.size() && !sizes_[symbol]) choose(symbol, (*shape)[axis]);
  }
}

}  // namespace tessera
