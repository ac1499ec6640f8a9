#include "driver/engine/input_sizes.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/error.h"

namespace tessera::inline driver {

namespace {

struct InputAxis {
  const DeclaredTensor* input = nullptr;
  size_t axis = 0;
};

// "x[2]" as the input and its axis; none for other names, and for names that a dimension of the model has.
std::optional<InputAxis> parse_axis_name(const std::vector<DeclaredTensor>& inputs, const std::string& name) {
  const size_t bracket = name.rfind('[');
  if (!name.ends_with(']') || bracket == std::string::npos) return std::nullopt;
  size_t axis = 0;
  const char *begin = name.data() + bracket + 1, *end = name.data() + name.size() - 1;
  const auto [stop, error] = std::from_chars(begin, end, axis);
  if (error != std::errc() || stop != end) return std::nullopt;
  std::optional<InputAxis> found;
  for (const DeclaredTensor& input : inputs) {
    if (std::any_of(input.dims.begin(), input.dims.end(), [&](const DeclaredDim& dim) { return dim.name == name; }))
      return std::nullopt;
    if (input.name == name.substr(0, bracket) && axis < input.dims.size()) found = {&input, axis};
  }
  return found;
}

std::string bounds_text(const DimBounds& bounds) {
  if (bounds.lo == bounds.hi) return std::to_string(bounds.lo);
  return fmt::format("{}..{}{}", bounds.lo, bounds.hi, bounds.step == 1 ? "" : fmt::format(":{}", bounds.step));
}

bool same(const DimBounds& a, const DimBounds& b) { return a.lo == b.lo && a.hi == b.hi && a.step == b.step; }

[[noreturn]] void fail_contradiction(const std::string& message, const DeclaredTensor& input) {
  throw UserError({.id = "TSR-1022",
                   .message = message,
                   .node = {},
                   .legal = fmt::format("input '{}' is {}", input.name, input.type_text()),
                   .hint = "leave the option out, or make it agree"});
}

}  // namespace

bool has_axis_names(const CompileOptions& options) {
  return std::any_of(options.dims.begin(), options.dims.end(),
                     [](const auto& entry) { return entry.first.ends_with(']'); });
}

CompileOptions with_dim_names(const std::vector<DeclaredTensor>& inputs, CompileOptions options) {
  std::map<std::string, DimBounds> dims;
  const auto add = [&](const std::string& name, const DimBounds& bounds, const std::string& given,
                       const DeclaredTensor* input) {
    const auto [it, inserted] = dims.emplace(name, bounds);
    if (inserted || same(it->second, bounds)) return;
    fail_contradiction(fmt::format("--dim {}={}: dimension '{}' is {} elsewhere", given, bounds_text(bounds), name,
                                   bounds_text(it->second)),
                       *input);
  };
  for (const auto& [name, bounds] : options.dims)
    if (!parse_axis_name(inputs, name)) add(name, bounds, name, nullptr);
  for (const auto& [name, bounds] : options.dims) {
    const std::optional<InputAxis> place = parse_axis_name(inputs, name);
    if (!place) continue;
    const DeclaredDim& dim = place->input->dims[place->axis];
    if (dim.value < 0) {
      add(place->input->dim_name(place->axis), bounds, name, place->input);
    } else if (!same(bounds, {dim.value, dim.value, 1})) {
      fail_contradiction(fmt::format("--dim {}={} contradicts the model: dimension {} is {}", name, bounds_text(bounds),
                                     place->axis, dim.value),
                         *place->input);
    }
  }
  options.dims = std::move(dims);
  return options;
}

std::vector<std::string> take_sizes(const std::vector<DeclaredTensor>& inputs, const GivenShapes& given,
                                    CompileOptions& options) {
  check(inputs.size() == given.size(), "as many shapes as inputs");
  options = with_dim_names(inputs, std::move(options));
  // What is decided already, by the names of the dimensions.
  std::map<std::string, std::pair<int64_t, const DeclaredTensor*>> taken;
  const auto is_fixed = [&](const DeclaredTensor& input, size_t axis) {
    return input.dims[axis].value >= 0 || options.dims.count(input.dim_name(axis)) != 0;
  };
  std::map<std::string, DimBounds> by_shape;  // named dimensions of inputs with a --shape
  for (const DeclaredTensor& input : inputs) {
    const auto shape = options.shapes.find(input.name);
    if (shape == options.shapes.end() || shape->second.size() != input.dims.size()) continue;
    for (size_t axis = 0; axis < input.dims.size(); ++axis)
      if (!is_fixed(input, axis)) by_shape[input.dim_name(axis)] = {shape->second[axis], shape->second[axis], 1};
  }
  std::vector<std::string> lines;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DeclaredTensor& input = inputs[i];
    if (!given[i] || !input.dtype || options.shapes.count(input.name)) continue;
    const std::vector<int64_t>& dims = *given[i];
    const std::string text = fmt::format("{}", fmt::join(dims, "x"));
    const std::string line =
        fmt::format("input '{}' taken as {}", input.name, dims.empty() ? std::string("a scalar") : text);
    if (!input.has_rank) {
      options.shapes[input.name] = dims;
      lines.push_back(line);
      continue;
    }
    bool decides = false;
    for (size_t axis = 0; axis < input.dims.size(); ++axis) {
      const std::string name = input.dim_name(axis);
      if (is_fixed(input, axis) || by_shape.count(name)) continue;
      if (dims.size() != input.dims.size()) {
        throw UserError({.id = "TSR-6303",
                         .message = fmt::format("input '{}' got a tensor of {} dimensions{}", input.name, dims.size(),
                                                dims.empty() ? "" : ", " + text),
                         .node = {},
                         .legal = fmt::format("{}, its declared type", input.type_text()),
                         .hint = "give a tensor of that rank"});
      }
      const auto [it, inserted] = taken.emplace(name, std::pair(dims[axis], &input));
      if (!inserted && it->second.first != dims[axis])
        fail_contradiction(fmt::format("input '{}' got {}: dimension '{}' is {} there, and {} in input '{}'",
                                       input.name, text, name, dims[axis], it->second.first, it->second.second->name),
                           *it->second.second);
      decides = true;
    }
    if (decides) lines.push_back(line);
  }
  for (const auto& [name, size] : taken) options.dims[name] = {size.first, size.first, 1};
  return lines;
}

}  // namespace tessera::inline driver
