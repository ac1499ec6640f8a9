#include "import/onnx/read/model_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "import/common/refused_model.h"
#include "import/onnx/dynamic/flow_types.h"
#include "import/onnx/read/dim_names.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/tensor_reader.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

// A dimension as the model states it.
struct Dim {
  std::optional<int64_t> value;
  std::string name;  // empty: open and unnamed
  std::string by;    // the option that fixed it, for messages
};

struct OpenInput {
  std::string name;
  DType dtype;
  bool has_rank;
  std::vector<Dim> dims;
  std::vector<ValueKind> wrappers = {};
  DType key = DType::kI64;
};

Dim read_dim(const onnx::TensorShapeProto::Dimension& dim) {
  if (dim.has_dim_value()) {
    if (dim.dim_value() < 0) return {};  // exporters write -1 for "any"
    return {dim.dim_value(), "", ""};
  }
  const std::string& name = dim.dim_param();
  if (name == "?" || name == "-1") return {};
  return {std::nullopt, name, ""};
}

const char* kind_of(const onnx::TypeProto& type) {
  switch (type.value_case()) {
    case onnx::TypeProto::kSequenceType: return "a sequence";
    case onnx::TypeProto::kMapType: return "a map";
    case onnx::TypeProto::kOptionalType: return "an optional";
    case onnx::TypeProto::kSparseTensorType: return "a sparse tensor";
    case onnx::TypeProto::kOpaqueType: return "an opaque value";
    default: return "a value without a type";
  }
}

OpenInput read_input(const onnx::ValueInfoProto& info, const std::string& reader) {
  const std::string where = fmt::format("input '{}'", info.name());
  const auto type = flow_type_of(info.type());
  if (!type && info.type().has_tensor_type())
    throw RefusedModel(
        RefusedModel::Reason::kUnsupported,
        {"TSR-1024",
         fmt::format("{} has the data type {}", where, onnx_dtype_name(info.type().tensor_type().elem_type())), reader,
         "float, integer and bool tensors up to 64 bits, and strings",
         "prepare this input outside of the model, and cut off the part that reads it"});
  if (!type)
    throw RefusedModel(RefusedModel::Reason::kUnsupported,
                       {"TSR-1024", fmt::format("{} is {}", where, kind_of(info.type())), reader,
                        "tensors, sequences and optionals of tensors, and maps of numbers",
                        "give the input such a type in the model, or cut off the part that reads it"});
  OpenInput input{info.name(), type->dtype, type->dims.has_value(), {}, type->wrappers, type->key};
  if (type->is_tensor()) {
    for (const auto& dim : info.type().tensor_type().shape().dim()) input.dims.push_back(read_dim(dim));
  } else if (type->dims) {
    for (const int64_t dim : *type->dims) input.dims.push_back(dim < 0 ? Dim{} : Dim{dim, "", ""});
  }
  return input;
}

std::string shape_text(const OpenInput& input) {
  if (!input.has_rank) return "of unknown rank";
  std::vector<std::string> parts;
  for (const Dim& dim : input.dims)
    parts.push_back(dim.value ? fmt::format("{}", *dim.value) : dim.name.empty() ? "?" : dim.name);
  return fmt::format("{}[{}]", dtype_name(input.dtype), fmt::join(parts, ","));
}

std::string quoted_list(const std::set<std::string>& names) {
  return names.empty() ? "none" : fmt::format("'{}'", fmt::join(names, "', '"));
}

// The option that fixes all open dimensions of the input, with sizes of the usual kind in their places. `sizes` has
// those of the named dimensions so far: the same name stands for the same size.
std::string option_for(const OpenInput& input, std::map<std::string, int64_t>& sizes) {
  if (!input.has_rank) return fmt::format("--shape {}=1x3x224x224", input.name);
  const size_t rank = input.dims.size();
  const auto is_channels = [&](size_t axis) { return input.dims[axis].value && *input.dims[axis].value <= 4; };
  const bool picture = rank == 4 && (is_channels(1) || is_channels(3));
  std::vector<int64_t> parts;
  for (size_t i = 0; i < rank; ++i) {
    const Dim& dim = input.dims[i];
    const int64_t usual = i == 0 ? 1 : picture ? 224 : 128;
    if (dim.value) parts.push_back(*dim.value);
    else if (dim.name.empty()) parts.push_back(usual);
    else parts.push_back(sizes.emplace(dim.name, usual).first->second);
  }
  return fmt::format("--shape {}={}", input.name, fmt::join(parts, "x"));
}

class Resolver {
 public:
  Resolver(std::vector<OpenInput> inputs, const ImportOptions& options, bool allow_open)
      : inputs_(std::move(inputs)), options_(options), allow_open_(allow_open) {}

  std::vector<ModelInput> run() {
    check_names();
    for (const auto& [name, range] : options_.dims) bind_dim(name, range);
    for (const auto& [name, dims] : options_.shapes) apply_shape(name, dims);
    for (OpenInput& input : inputs_)
      for (size_t i = 0; i < input.dims.size(); ++i)
        if (Dim& dim = input.dims[i]; !dim.value)
          if (const auto given = symbols_.find(name_of(input, i)); given != symbols_.end())
            dim.value = given->second.first;
    for (const SymbolRange& symbol : options_.symbols) sizes_[symbol.var->name] = symbol.var;
    for (const auto& [name, given] : symbols_) sizes_.emplace(name, given.first);
    for (const auto& [name, size] : options_.equal) sizes_[name] = size;
    if (!allow_open_) require_fixed();
    std::vector<ModelInput> result;
    for (const OpenInput& input : inputs_) {
      std::vector<int64_t> dims, most;
      for (size_t i = 0; i < input.dims.size(); ++i) {
        const std::optional<int64_t> value = input.dims[i].value;
        const auto range = ranges_.find(name_of(input, i));
        dims.push_back(value.value_or(-1));
        most.push_back(value || range == ranges_.end() ? value.value_or(kFlowMost) : range->second);
      }
      ModelInput resolved{input.name, {input.wrappers, input.dtype, input.key, std::nullopt}};
      if (input.has_rank) resolved.type.dims = dims;
      if (input.has_rank && input.wrappers.empty() && (!options_.symbols.empty() || options_.data_sizes))
        find_shape(input, resolved);
      if (input.has_rank && !resolved.type.is_fixed()) resolved.type.most = most;
      // Of open dimensions, and those of what a sequence holds, the known ones count.
      std::vector<int64_t> known;
      std::copy_if(dims.begin(), dims.end(), std::back_inserter(known), [](int64_t d) { return d >= 0; });
      if (dims.size() > kMostDims || !checked_num_elements(known))
        throw UserError(
            {"TSR-1023",
             dims.size() > kMostDims ? fmt::format("input '{}' has {} dimensions", input.name, dims.size())
                                     : fmt::format("input '{}' has the shape [{}]", input.name, fmt::join(dims, ",")),
             "", fmt::format("at most 2^40 elements, and {} dimensions", kMostDims), "give sizes that fit in memory"});
      result.push_back(std::move(resolved));
    }
    return result;
  }

 private:
  // Open dimensions without a name are called by their place: "x[0]".
  static std::string name_of(const OpenInput& input, size_t axis) {
    const std::string& name = input.dims[axis].name;
    return name.empty() ? fmt::format("{}[{}]", input.name, axis) : name;
  }

  // The extent that a symbol, or an expression of symbols as a name, gives a dimension; empty when there is none.
  std::optional<Expr> size_of(const OpenInput& input, size_t axis) const {
    if (options_.symbols.empty()) return std::nullopt;
    const std::string name = name_of(input, axis);
    if (const auto given = options_.equal.find(name); given != options_.equal.end()) return given->second;
    if (const auto size = parse_dim_name(name, sizes_)) return size;
    const auto known = sizes_.find(name);
    return known == sizes_.end() ? std::nullopt : std::make_optional(known->second);
  }

  void find_shape(const OpenInput& input, ModelInput& resolved) const {
    Shape shape;
    for (size_t i = 0; i < input.dims.size(); ++i) {
      const auto size = input.dims[i].value ? std::make_optional(Expr(*input.dims[i].value)) : size_of(input, i);
      if (!size) {
        resolved.no_shape = fmt::format("dimension {} has neither a value nor a range", i);
        return;
      }
      shape.push_back(*size);
    }
    resolved.shape = std::move(shape);
  }

  void check_names() const {
    std::set<std::string> input_names, dim_names;
    for (const OpenInput& input : inputs_) {
      input_names.insert(input.name);
      for (size_t i = 0; i < input.dims.size(); ++i)
        if (!input.dims[i].value) dim_names.insert(name_of(input, i));
    }
    for (const auto& [name, dims] : options_.shapes)
      if (!input_names.count(name))
        throw UserError({"TSR-1021", fmt::format("--shape names the input '{}', which the model does not have", name),
                         "", fmt::format("inputs: {}", quoted_list(input_names)), "correct the name"});
    for (const auto& [name, range] : options_.dims)
      if (!dim_names.count(name))
        throw UserError({"TSR-1021", fmt::format("--dim names the dimension '{}', which the model does not have", name),
                         "", fmt::format("named dimensions: {}", quoted_list(dim_names)),
                         "correct the name; dimensions without a name are called INPUT[AXIS]"});
  }

  void bind_dim(const std::string& name, DimRange range) {
    if (range.lo != range.hi && (options_.leave_open || !options_.symbols.empty())) {
      check_range(fmt::format("--dim {}={}..{}", name, range.lo, range.hi), range.hi);
      ranges_[name] = range.hi;
      return;
    }
    if (range.lo != range.hi)
      throw UserError({"TSR-1025", fmt::format("--dim {}={}..{} is a range", name, range.lo, range.hi), "",
                       "one value: shapes are fixed when a model is compiled",
                       fmt::format("give --dim {}={}", name, range.hi)});
    check_range(fmt::format("--dim {}={}", name, range.lo), range.lo);
    symbols_[name] = {range.lo, fmt::format("--dim {}={}", name, range.lo)};
  }

  static void check_range(const std::string& option, int64_t value) {
    if (value < 0 || value > kMaxTensorElements)
      throw UserError({"TSR-1023", fmt::format("{}: {} is not a dimension", option, value), "", "0 to 2^40",
                       "give a size that fits in memory"});
  }

  void apply_shape(const std::string& name, const std::vector<int64_t>& dims) {
    const std::string option = fmt::format("--shape {}={}", name, fmt::join(dims, "x"));
    for (OpenInput& input : inputs_) {
      if (input.name != name) continue;
      if (!input.has_rank) {
        input.has_rank = true;
        input.dims.resize(dims.size());
      }
      const auto contradict = [&](const std::string& why) {
        throw UserError({"TSR-1022", fmt::format("{} contradicts {}", option, why), "",
                         fmt::format("input '{}' is {}", name, shape_text(input)),
                         "leave the option out, or make it agree"});
      };
      if (dims.size() != input.dims.size())
        contradict(fmt::format("the model: {} dimensions instead of {}", dims.size(), input.dims.size()));
      for (size_t i = 0; i < dims.size(); ++i) {
        Dim& dim = input.dims[i];
        check_range(option, dims[i]);
        if (dim.value && *dim.value != dims[i]) contradict(fmt::format("the model: dimension {} is {}", i, *dim.value));
        if (dim.value) continue;
        if (dim.name.empty()) {
          dim.value = dims[i];
          continue;
        }
        const auto [it, inserted] = symbols_.emplace(dim.name, std::make_pair(dims[i], option));
        if (!inserted && it->second.first != dims[i])
          contradict(fmt::format("{}: dimension '{}' is {} there",
                                 it->second.second == option ? "itself" : it->second.second, dim.name,
                                 it->second.first));
      }
    }
  }

  void require_fixed() const {
    std::string found, hint, range;
    std::map<std::string, int64_t> sizes;
    for (const OpenInput& input : inputs_) {
      if (!input.wrappers.empty()) continue;
      bool open = !input.has_rank;
      for (size_t i = 0; i < input.dims.size(); ++i) {
        if (input.dims[i].value.has_value() || ranges_.count(name_of(input, i)) || size_of(input, i)) continue;
        open = true;
        if (range.empty()) range = fmt::format(", or a range of sizes: --dim {}=1..8", name_of(input, i));
      }
      if (!open) continue;
      found += fmt::format("\n    input '{}': {}", input.name, shape_text(input));
      hint += (hint.empty() ? "" : " ") + option_for(input, sizes);
    }
    if (!found.empty())
      throw RefusedModel(RefusedModel::Reason::kOpenSizes,
                         {"TSR-1020", "the model leaves dimensions open that have no value yet:" + found, "",
                          "a value for every dimension", fmt::format("add {}, with your sizes{}", hint, range)});
  }

  std::vector<OpenInput> inputs_;
  const ImportOptions& options_;
  bool allow_open_;
  std::map<std::string, std::pair<int64_t, std::string>> symbols_;  // name -> value and the option that gave it
  std::map<std::string, int64_t> ranges_;                           // name -> the largest value
  std::map<std::string, Expr> sizes_;                               // name -> what it stands for in expressions
};

}  // namespace

std::vector<ModelInput> resolve_inputs(const onnx::GraphProto& graph, const std::set<std::string>& initializers,
                                       const ImportOptions& options, const std::map<std::string, std::string>& readers,
                                       bool allow_open) {
  std::vector<OpenInput> inputs;
  for (const auto& info : graph.input())
    if (!initializers.count(info.name())) {
      const auto reader = readers.find(info.name());
      inputs.push_back(read_input(info, reader == readers.end() ? "" : reader->second));
    }
  return Resolver(std::move(inputs), options, allow_open).run();
}

}  // namespace tessera::inline onnx_import
