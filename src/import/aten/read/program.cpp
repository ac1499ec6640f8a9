#include "import/aten/read/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "import/aten/read/json_place.h"
#include "import/common/limits.h"
#include "support/error.h"

namespace tessera::inline aten {
namespace {

constexpr int64_t kSchema = 8;

[[noreturn]] void unread(const std::string& message, const std::string& legal, const std::string& hint) {
  throw UserError({.id = "TSR-1115", .message = message, .node = {}, .legal = legal, .hint = hint});
}

nlohmann::json parse(std::string_view text, const std::string& name, const std::string& place) {
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded())
    throw UserError({.id = "TSR-1114",
                     .message = fmt::format("{}: {} is no JSON", place, name),
                     .node = {},
                     .legal = "a text in JSON",
                     .hint = "save the program again by torch.export.save"});
  return json;
}

// The numbers are those of ScalarType in the schema.
void set_dtype(AtenType& type, int64_t number) {
  switch (number) {
    case 1: type.dtype = DType::kU8; return;
    case 2: type.dtype = DType::kI8; return;
    case 3: type.dtype = DType::kI16; return;
    case 4: type.dtype = DType::kI32; return;
    case 5: type.dtype = DType::kI64; return;
    case 6: type.dtype = DType::kF16; return;
    case 7: type.dtype = DType::kF32; return;
    case 8: type.dtype = DType::kF64; return;
    case 9:
    case 10:
    case 11: type.no_dtype = "complex numbers"; return;
    case 12: type.dtype = DType::kBool; return;
    case 13: type.dtype = DType::kBF16; return;
    case 28: type.dtype = DType::kU16; return;
    case 29: type.dtype = DType::kF8E4M3FN; return;
    case 30: type.dtype = DType::kF8E5M2; return;
    case 31: type.dtype = DType::kF8E4M3FNUZ; return;
    case 32: type.dtype = DType::kF8E5M2FNUZ; return;
    case 33: type.dtype = DType::kF8E8M0; return;
    case 34: type.dtype = DType::kU32; return;
    case 35: type.dtype = DType::kU64; return;
    default: type.no_dtype = fmt::format("elements of type {}", number);
  }
}

AtenSize read_size(const JsonPlace& place) {
  const auto [kind, value] = place.choice();
  if (kind == "as_int") return {value.integer()};
  if (kind == "as_expr") {
    AtenSize size;
    size.expr = value.at("expr_str").text();
    return size;
  }
  place.fail("as_int or as_expr");
}

AtenType read_type(const JsonPlace& place) {
  AtenType type;
  set_dtype(type, place.at("dtype").integer());
  place.at("sizes").elements([&](const JsonPlace& size) {
    type.sizes.push_back(read_size(size));
    if (type.sizes.back().expr.empty() && type.sizes.back().value < 0) size.fail("a size of 0 or more");
  });
  if (type.sizes.size() > kMostDims) place.fail(fmt::format("at most {} dimensions", kMostDims));
  constexpr int64_t kStrided = 7;
  if (place.has("layout") && place.at("layout").integer() != kStrided) type.no_dtype = "a sparse layout";
  return type;
}

// Built up step by step: what a place throws while a structure in braces is made would leave g++ 12 to destroy parts of
// it that do not exist yet.
AtenArgument one(ArgumentKind kind, ArgumentItem item) {
  AtenArgument result;
  result.kind = kind;
  result.items.push_back(std::move(item));
  return result;
}
ArgumentItem named(const std::string& name) {
  ArgumentItem item;
  item.name = name;
  return item;
}
AtenArgument tensor_of(const JsonPlace& place) { return one(ArgumentKind::kTensor, named(place.at("name").text())); }

class ArgumentReader {
 public:
  AtenArgument read(const JsonPlace& place) {
    const auto [kind, value] = place.choice();
    if (kind == "as_none") return {};
    if (kind == "as_tensor") return tensor_of(value);
    if (kind == "as_tensors")
      return list(ArgumentKind::kTensors, value, [](const JsonPlace& e) { return named(e.at("name").text()); });
    if (kind == "as_optional_tensor") return optional(value);
    if (kind == "as_optional_tensors")
      return list(ArgumentKind::kTensors, value, [](const JsonPlace& e) {
        const auto [which, tensor] = e.choice();
        return which == "as_tensor" ? named(tensor.at("name").text()) : ArgumentItem{};
      });
    if (kind == "as_int") return one(ArgumentKind::kInt, integer(value));
    if (kind == "as_ints") return list(ArgumentKind::kInts, value, integer);
    if (kind == "as_sym_int") return one(ArgumentKind::kInt, symbol(value));
    if (kind == "as_sym_ints") return list(ArgumentKind::kInts, value, symbol);
    if (kind == "as_float") return one(ArgumentKind::kFloat, real(value));
    if (kind == "as_floats") return list(ArgumentKind::kFloats, value, real);
    if (kind == "as_sym_float") return one(ArgumentKind::kFloat, symbol(value));
    if (kind == "as_sym_floats") return list(ArgumentKind::kFloats, value, symbol);
    if (kind == "as_bool") return one(ArgumentKind::kBool, truth(value));
    if (kind == "as_bools") return list(ArgumentKind::kBools, value, truth);
    if (kind == "as_sym_bool") return one(ArgumentKind::kBool, symbol(value));
    if (kind == "as_string") return one(ArgumentKind::kString, named(value.text()));
    if (kind == "as_strings")
      return list(ArgumentKind::kStrings, value, [](const JsonPlace& e) { return named(e.text()); });
    if (kind == "as_scalar_type") return one(ArgumentKind::kDType, integer(value));
    if (kind == "as_memory_format" || kind == "as_layout" || kind == "as_device") return {ArgumentKind::kIgnored};
    return one(ArgumentKind::kForeign, named(kind.starts_with("as_") ? kind.substr(3) : kind));
  }

 private:
  template <typename Read>
  static AtenArgument list(ArgumentKind kind, const JsonPlace& place, const Read& read) {
    AtenArgument result{kind};
    place.elements([&](const JsonPlace& element) { result.items.push_back(read(element)); });
    return result;
  }
  static AtenArgument optional(const JsonPlace& place) {
    const auto [kind, value] = place.choice();
    if (kind != "as_tensor") return {};
    return tensor_of(value);
  }
  static ArgumentItem integer(const JsonPlace& place) {
    const int64_t value = place.integer();
    return {{}, value, static_cast<double>(value)};
  }
  static ArgumentItem real(const JsonPlace& place) {
    ArgumentItem item;
    item.real = place.number();
    return item;
  }
  static ArgumentItem truth(const JsonPlace& place) {
    const bool value = place.boolean();
    return {{}, value, static_cast<double>(value)};
  }
  static ArgumentItem symbol(const JsonPlace& place) {
    const auto [kind, value] = place.choice();
    if (kind == "as_name") return named(value.text());
    if (kind == "as_int") return integer(value);
    if (kind == "as_float") return real(value);
    if (kind == "as_bool") return truth(value);
    place.fail("a name or a number");
  }
};

AtenNode read_node(const JsonPlace& place) {
  ArgumentReader reader;
  AtenNode node;
  node.target = place.at("target").text();
  constexpr std::string_view kPrefix = "torch.ops.";
  if (node.target.starts_with(kPrefix)) node.target.erase(0, kPrefix.size());
  place.at("inputs").elements([&](const JsonPlace& input) {
    node.arguments.emplace_back(input.at("name").text(), reader.read(input.at("arg")));
  });
  place.at("outputs").elements([&](const JsonPlace& output) { node.outputs.push_back(reader.read(output)); });
  if (place.has("name")) node.name = place.at("name").text();
  for (const AtenArgument& output : node.outputs)
    for (const ArgumentItem& item : output.items)
      if (node.name.empty()) node.name = item.name;
  if (node.name.empty()) node.name = node.target;
  return node;
}

AtenInput read_input(const JsonPlace& place) {
  ArgumentReader reader;
  const auto [kind, value] = place.choice();
  if (kind == "user_input" || kind == "constant_input") {
    AtenInput input;
    input.kind = kind == "user_input" ? AtenInput::Kind::kUser : AtenInput::Kind::kConstant;
    if (kind == "user_input") input.argument = reader.read(value.at("arg"));
    return input;
  }
  const auto weight = [&](const char* name, bool is_buffer) {
    AtenInput input;
    input.kind = AtenInput::Kind::kWeight;
    input.argument = tensor_of(value.at("arg"));
    input.weight = value.at(name).text();
    input.is_buffer = is_buffer;
    return input;
  };
  if (kind == "parameter") return weight("parameter_name", false);
  if (kind == "buffer") return weight("buffer_name", true);
  if (kind == "tensor_constant") return weight("tensor_constant_name", false);
  unread(fmt::format("the program has an input of the kind '{}'", kind), "tensors, parameters, buffers and constants",
         "export a module without such inputs");
}

AtenOutput read_output(const JsonPlace& place) {
  ArgumentReader reader;
  const auto [kind, value] = place.choice();
  AtenOutput output;
  if (kind == "user_output") {
    output.argument = reader.read(value.at("arg"));
    return output;
  }
  if (kind == "buffer_mutation") {
    output.argument = tensor_of(value.at("arg"));
    output.buffer = value.at("buffer_name").text();
    return output;
  }
  unread(fmt::format("the program has an output of the kind '{}'", kind), "results, and new values of buffers",
         "export a module that neither trains nor changes its inputs");
}

void read_weights(const Pt2Archive& archive, const std::string& config, const std::string& folder,
                  AtenProgram& program) {
  if (!archive.has(config)) return;
  const nlohmann::json json = parse(archive.read(config).bytes, config, archive.place());
  JsonPlace(json, config).at("config").members([&](const std::string& name, const JsonPlace& place) {
    const std::string path = folder + place.at("path_name").text();
    if (place.has("use_pickle") && place.at("use_pickle").boolean())
      unread(fmt::format("'{}' is a pickled Python object, in {}", name, path), "tensors as plain bytes",
             "such objects are programs and are never opened; export a module whose weights are plain tensors");
    AtenWeight weight;
    const JsonPlace meta = place.at("tensor_meta");
    weight.type = read_type(meta);
    meta.at("strides").elements([&](const JsonPlace& stride) { weight.strides.push_back(read_size(stride).value); });
    if (meta.has("storage_offset")) weight.offset = read_size(meta.at("storage_offset")).value;
    weight.bytes = archive.read(path);
    if (!program.weights.emplace(name, std::move(weight)).second) place.fail("one weight of each name");
  });
}

std::string model_name(const Pt2Archive& archive) {
  std::string found;
  for (const std::string& name : archive.names()) {
    if (name == "serialized_exported_program.json" || name == "serialized_state_dict.pt" ||
        name == "data/weights/model.pt" || name.ends_with(".pkl"))
      unread(
          fmt::format("{} has the pickled Python objects of an older or another format: '{}'", archive.place(), name),
          "what torch.export.save writes since PyTorch 2.9: weights as plain bytes",
          "load the program with the PyTorch that wrote it, and save it again with a newer one");
    if (!name.starts_with("models/") || !name.ends_with(".json")) continue;
    if (!found.empty())
      unread(fmt::format("{} has several programs: '{}' and '{}'", archive.place(), found, name), "one",
             "save them one by one");
    found = name;
  }
  if (found.empty())
    throw UserError({.id = "TSR-1113",
                     .message = fmt::format("{} has no program: no entry 'models/NAME.json'", archive.place()),
                     .node = {},
                     .legal = "what torch.export.save writes",
                     .hint = "save the program by torch.export.save"});
  return found;
}

}  // namespace

AtenProgram read_program(const Pt2Archive& archive) {
  const std::string name = model_name(archive);
  AtenProgram program = program_of_json(archive.read(name).bytes, name, archive.place());
  const std::string stem = name.substr(7, name.size() - 7 - 5);
  read_weights(archive, fmt::format("data/weights/{}_weights_config.json", stem), "data/weights/", program);
  read_weights(archive, fmt::format("data/constants/{}_constants_config.json", stem), "data/constants/", program);
  return program;
}

AtenProgram program_of_json(std::string_view text, const std::string& name, const std::string& place) {
  const nlohmann::json json = parse(text, name, place);
  const JsonPlace root(json, name);
  const int64_t schema = root.at("schema_version").at("major").integer();
  if (schema != kSchema)
    unread(fmt::format("{} is of schema {} of torch.export", place, schema), fmt::format("schema {}", kSchema),
           "save the program again with a PyTorch of that schema");
  AtenProgram program;
  program.place = place;
  const JsonPlace module = root.at("graph_module"), graph = module.at("graph"), signature = module.at("signature");
  signature.at("input_specs").elements([&](const JsonPlace& spec) { program.inputs.push_back(read_input(spec)); });
  signature.at("output_specs").elements([&](const JsonPlace& spec) { program.outputs.push_back(read_output(spec)); });
  graph.at("nodes").elements([&](const JsonPlace& node) { program.nodes.push_back(read_node(node)); });
  graph.at("tensor_values").members([&](const std::string& tensor, const JsonPlace& type) {
    program.types.emplace(tensor, read_type(type));
  });
  graph.get("sym_int_values").members([&](const std::string& value, const JsonPlace& size) {
    program.size_values.emplace(value, read_size(size));
  });
  root.get("range_constraints").members([&](const std::string& symbol, const JsonPlace& range) {
    AtenRange read;
    if (range.has("min_val")) read.lo = std::max<int64_t>(0, range.at("min_val").integer());
    if (range.has("max_val")) read.hi = range.at("max_val").integer();
    if (read.hi && *read.hi < read.lo) range.fail("a greatest value that is not below the least");
    program.ranges.emplace(symbol, read);
  });
  return program;
}

Tensor weight_tensor(const AtenProgram& program, const std::string& name) {
  const auto found = program.weights.find(name);
  const auto wrong = [&](const std::string& message, const std::string& legal) {
    throw UserError({.id = "TSR-1116",
                     .message = fmt::format("weight '{}' {}", name, message),
                     .node = {},
                     .legal = legal,
                     .hint = "get the file again, or save the program again by torch.export.save"});
  };
  if (found == program.weights.end()) wrong("is not in the file", "every parameter and buffer that the program reads");
  const AtenWeight& weight = found->second;
  if (!weight.type.no_dtype.empty()) wrong(fmt::format("has {}", weight.type.no_dtype), "numbers and bools, dense");
  std::vector<int64_t> dims;
  for (const AtenSize& size : weight.type.sizes) {
    if (!size.expr.empty()) wrong("has a size that is not fixed", "numbers");
    dims.push_back(size.value);
  }
  const std::optional<int64_t> count = checked_num_elements(dims);
  const int64_t width = dtype_bytes(weight.type.dtype, 1);
  if (!count) wrong(fmt::format("has the shape [{}]", fmt::join(dims, ",")), "at most 2^40 elements");
  if (weight.strides.size() != dims.size() || weight.offset < 0)
    wrong("has other strides than dimensions", "one for each dimension, and an offset of 0 or more");
  // The last element, and whether they lie in order.
  int64_t last = weight.offset, dense = 1;
  bool in_order = true, fits = true;
  for (size_t d = dims.size(); d-- > 0;) {
    int64_t reach = 0;
    fits = fits && weight.strides[d] >= 0 &&
           !__builtin_mul_overflow(std::max<int64_t>(dims[d] - 1, 0), weight.strides[d], &reach) &&
           !__builtin_add_overflow(last, reach, &last);
    in_order = in_order && (dims[d] <= 1 || weight.strides[d] == dense);
    dense *= std::max<int64_t>(dims[d], 1);
  }
  const auto bytes = static_cast<int64_t>(weight.bytes.bytes.size());
  if (*count > 0 && (!fits || last >= bytes / width))
    wrong(fmt::format("goes beyond its {} bytes", bytes), fmt::format("bytes for {} elements", *count));
  if (*count == 0) return Tensor(weight.type.dtype, dims);
  const char* first = weight.bytes.bytes.data() + weight.offset * width;
  const bool aligned = reinterpret_cast<uintptr_t>(first) % static_cast<uintptr_t>(width) == 0;
  if (in_order && aligned) return Tensor(weight.type.dtype, dims, weight.bytes.owner, first);
  // Elements may stand for many: a file of a few bytes must not fill the memory.
  constexpr int64_t kMostSpread = int64_t{1} << 28;
  if (*count > kMostSpread && *count > bytes / width)
    wrong(fmt::format("has {} elements in {} bytes", *count, bytes), fmt::format("at most {}", kMostSpread));
  Tensor tensor(weight.type.dtype, dims);
  std::vector<int64_t> index(dims.size(), 0);
  char* to = reinterpret_cast<char*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < *count; ++i, to += width) {
    int64_t at = 0;
    for (size_t d = 0; d < dims.size(); ++d) at += index[d] * weight.strides[d];
    std::copy_n(first + at * width, width, to);
    for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
  return tensor;
}

}  // namespace tessera::inline aten
