#include "tensor_spec.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>
#include <regex>

#include <fmt/format.h>

#include "import/onnx/read/tensor_proto.h"
#include "npy.h"
#include "support/error.h"

namespace tessera {

namespace {

constexpr char kForms[] =
    "[NAME=]@FILE, NAME=0.5, [NAME=]1x3x224x224[xf32][=0], [NAME=]1x3x224x224[xf32]=random:SEED or [NAME=]random:SEED";
constexpr char kFileForms[] = "[NAME=]@FILE.npy or [NAME=]@FILE.pb";

[[noreturn]] void fail_to_parse(const std::string& text, const std::string& why, const std::string& legal) {
  throw UserError({.id = "TSR-4010",
                   .message = fmt::format("'{}' is not a tensor: {}", text, why),
                   .node = {},
                   .legal = legal,
                   .hint = "see 'tessera run --help' for examples"});
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// "1x3xf32": dims, then the dtype, which may be missing behind two dims or more ("3" alone is a number). False when
// `text` has another form.
bool parse_type(const std::string& text, TensorSpec& spec) {
  const std::vector<std::string> parts = split(text, 'x');
  const std::optional<DType> dtype = parse_dtype(parts.back());
  if (!dtype && parts.size() < 2) return false;
  std::vector<int64_t> dims;
  for (size_t i = 0; i + (dtype ? 1 : 0) < parts.size(); ++i) {
    int64_t dim = 0;
    const char* end = parts[i].data() + parts[i].size();
    const auto [stop, error] = std::from_chars(parts[i].data(), end, dim);
    if (error != std::errc() || stop != end || dim < 0 || parts[i].empty()) return false;
    dims.push_back(dim);
  }
  spec.dtype = dtype;
  spec.has_dims = true;
  spec.dims = std::move(dims);
  return true;
}

// Numbers with commas between them, or true and false.
bool is_list_of_values(const std::string& text) {
  static const std::regex kValues(
      "[-+]?[0-9.][-+.0-9eE]*(,[-+]?[0-9.][-+.0-9eE]*)*|(true|false)(,(true|false))*|-?inf|nan");
  return std::regex_match(text, kValues);
}

bool is_tensor_file(const std::string& text) {
  const std::string extension = std::filesystem::path(text).extension();
  return extension == ".npy" || extension == ".npz" || extension == ".pb" || is_picture(text);
}

bool is_archive(const std::string& path) { return std::filesystem::path(path).extension() == ".npz"; }

// numpy's names for arrays that were given none.
bool is_numbered(const std::string& name) {
  static const std::regex kNumbered("arr_[0-9]+");
  return std::regex_match(name, kNumbered);
}

bool parse_random(const std::string& text, TensorSpec& spec) {
  static const std::regex kRandom("random(?::([0-9]{1,19}))?");
  std::smatch match;
  if (!std::regex_match(text, match, kRandom)) return false;
  spec.kind = TensorSpec::Kind::kRandom;
  spec.seed = match[1].matched ? std::stoull(match[1]) : 0;
  return true;
}

// Without overflow, and within what a process could hold.
int64_t element_count(const TensorSpec& spec) {
  int64_t count = 1;
  for (const int64_t dim : spec.dims) {
    if (__builtin_mul_overflow(count, dim, &count) || count > int64_t{1} << 40) {
      fail_to_parse(spec.text, "it has too many elements", "at most 2^40 elements");
    }
  }
  return count;
}

void set_element(Tensor& tensor, int64_t index, const std::string& text, const std::string& whole) {
  const DType dtype = tensor.dtype();
  if (dtype == DType::kBool && (text == "true" || text == "false")) {
    tensor.set_int(index, text == "true");
    return;
  }
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  if (is_float(dtype)) {
    double value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end) fail_to_parse(whole, "'" + text + "' is not a number", kForms);
    tensor.set_double(index, value);
    return;
  }
  int64_t value = 0;
  uint64_t large = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, value); error == std::errc() && stop == end) {
    tensor.set_int(index, value);
  } else if (const auto [stop, error] = std::from_chars(begin, end, large); error == std::errc() && stop == end) {
    tensor.set_int(index, static_cast<int64_t>(large));
  } else {
    fail_to_parse(whole, "'" + text + "' is not an integer", kForms);
  }
}

Tensor tensor_of_values(const TensorSpec& spec) {
  const int64_t count = element_count(spec);
  if (spec.values.size() != 1 && static_cast<int64_t>(spec.values.size()) != count) {
    fail_to_parse(spec.text, fmt::format("it has {} elements and {} values", count, spec.values.size()),
                  "one value for all elements, or one for each");
  }
  if (*spec.dtype == DType::kString) {
    std::vector<std::string> texts(static_cast<size_t>(count), spec.values[0]);
    if (spec.values.size() != 1) texts = spec.values;
    return Tensor::of_strings(std::move(texts), spec.dims);
  }
  Tensor tensor(*spec.dtype, spec.dims);
  for (int64_t i = 0; i < count; ++i) {
    set_element(tensor, i, spec.values[spec.values.size() == 1 ? 0 : static_cast<size_t>(i)], spec.text);
  }
  return tensor;
}

}  // namespace

TensorSpec parse_tensor_spec(const std::string& text, bool files_only) {
  TensorSpec spec;
  spec.text = text;
  const size_t file = text.starts_with('@') ? 0 : text.find("=@");
  if (file != std::string::npos) {
    spec.kind = TensorSpec::Kind::kFile;
    spec.name = text.substr(0, file);
    spec.path = text.substr(file + (file == 0 && text.starts_with('@') ? 1 : 2));
    if (const size_t array = spec.path.rfind(".npz:"); array != std::string::npos) {
      spec.array = spec.path.substr(array + 5);
      spec.path.resize(array + 4);
    } else if (is_archive(spec.path)) {
      spec.array = spec.name;
    }
    if (spec.path.empty()) fail_to_parse(text, "there is no file name behind '@'", kForms);
    return spec;
  }
  if (is_tensor_file(text)) {
    const size_t at = text.rfind('=');
    const std::string name = at == std::string::npos ? "" : text.substr(0, at + 1);
    fail_to_parse(text,
                  fmt::format("a file is written with '@': did you mean '{}@{}'?", name, text.substr(name.size())),
                  files_only ? kFileForms : kForms);
  }
  if (files_only) fail_to_parse(text, "it does not name a file", kFileForms);
  spec.kind = TensorSpec::Kind::kRandom;
  const size_t last = text.rfind('=');
  const std::string value = last == std::string::npos ? text : text.substr(last + 1);
  const std::string left = last == std::string::npos ? "" : text.substr(0, last);
  const auto is_string = [&] { return spec.dtype == DType::kString; };
  // A type alone, with a name or without: random numbers of it.
  if (parse_type(value, spec)) {
    spec.name = left;
    if (is_string()) fail_to_parse(text, "strings cannot be drawn", "values, or a file");
    return spec;
  }
  const bool random = parse_random(value, spec);
  if (last == std::string::npos) {
    if (!random) fail_to_parse(text, "it has none of the known forms", kForms);
    return spec;
  }
  // What is left is a type, a name, or both.
  const size_t middle = left.rfind('=');
  if (parse_type(middle == std::string::npos ? left : left.substr(middle + 1), spec)) {
    if (middle != std::string::npos) spec.name = left.substr(0, middle);
  } else if (!left.empty() && (random || is_list_of_values(value))) {
    spec.name = left;
  } else {
    fail_to_parse(text, "there is no shape and dtype before '='", kForms);
  }
  if (!random) {
    spec.kind = TensorSpec::Kind::kValues;
    spec.values = split(value, ',');
  }
  if (is_string() && random) fail_to_parse(text, "strings cannot be drawn", "values, or a file");
  return spec;
}

std::vector<TensorSpec> parse_tensor_specs(const std::vector<std::string>& texts, bool files_only) {
  std::vector<TensorSpec> specs;
  for (const std::string& text : texts) {
    const TensorSpec spec = parse_tensor_spec(text, files_only);
    if (spec.kind != TensorSpec::Kind::kFile || !is_archive(spec.path) || !spec.array.empty()) {
      specs.push_back(spec);
      continue;
    }
    for (const std::string& array : names_in_npz(spec.path)) {
      TensorSpec& one = specs.emplace_back(spec);
      one.text = fmt::format("@{}:{}", spec.path, array);
      one.array = array;
      if (!is_numbered(array)) one.name = array;
    }
  }
  return specs;
}

std::vector<int> match_specs(const std::vector<TensorSpec>& specs, const std::vector<TensorInfo>& infos,
                             const std::string& flag) {
  const auto fail = [&](const std::string& message) {
    std::string names;
    for (const TensorInfo& info : infos) names += (names.empty() ? "'" : ", '") + info.name + "'";
    throw UserError({.id = "TSR-4011",
                     .message = fmt::format("{}: {}", flag, message),
                     .node = {},
                     .legal = infos.empty() ? "the model has none" : "the model has " + names,
                     .hint = {}});
  };
  std::vector<int> chosen(infos.size(), -1);
  for (size_t s = 0; s < specs.size(); ++s) {
    if (specs[s].name.empty()) continue;
    const auto info = std::find_if(infos.begin(), infos.end(), [&](const auto& i) { return i.name == specs[s].name; });
    if (info == infos.end()) fail(fmt::format("there is no '{}'", specs[s].name));
    int& place = chosen[static_cast<size_t>(info - infos.begin())];
    if (place >= 0) fail(fmt::format("'{}' is given twice", specs[s].name));
    place = static_cast<int>(s);
  }
  size_t next = 0;
  for (size_t s = 0; s < specs.size(); ++s) {
    if (!specs[s].name.empty()) continue;
    while (next < infos.size() && chosen[next] >= 0) ++next;
    if (next == infos.size()) fail(fmt::format("'{}' is one too many", specs[s].text));
    chosen[next] = static_cast<int>(s);
  }
  return chosen;
}

Tensor read_tensor_file(const TensorSpec& spec) {
  const std::string& path = spec.path;
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".npy") return read_npy(path);
  if (extension == ".npz") return read_npz(path, spec.array);
  if (extension == ".pb") return read_tensor_proto_file(path);
  throw UserError({.id = "TSR-6210",
                   .message = fmt::format("'{}' is of no kind that is known by its extension", path),
                   .node = {},
                   .legal = ".npy, .npz, .pb; for inputs also .png, .jpg, .jpeg and .bmp",
                   .hint = "save the tensor with numpy.save"});
}

void write_tensor_file(const std::string& path, const Tensor& tensor, const std::string& name) {
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".npy") return write_npy(path, tensor);
  if (extension == ".pb") return write_tensor_proto_file(path, tensor, name);
  throw UserError({.id = "TSR-6210",
                   .message = fmt::format("'{}' is of no kind that is known by its extension", path),
                   .node = {},
                   .legal = ".npy, .pb",
                   .hint = {}});
}

RunValue read_value_file(const TensorSpec& spec, const TensorInfo& info) {
  if (std::filesystem::path(spec.path).extension() == ".pb")
    return read_value_proto_file(spec.path, flow_type_of(info));
  return read_tensor_file(spec);
}

void write_value_file(const std::string& path, const RunValue& value, const std::string& name) {
  if (value.is_tensor()) return write_tensor_file(path, value.tensor, name);
  if (std::filesystem::path(path).extension() == ".pb") return write_value_proto_file(path, value, name);
  throw UserError({.id = "TSR-6210",
                   .message = fmt::format("'{}' is of no kind that can hold a sequence, optional or map", path),
                   .node = {},
                   .legal = ".pb",
                   .hint = {}});
}

namespace {

[[noreturn]] void fail_needs_file(const TensorInfo& info) {
  throw UserError({.id = "TSR-4013",
                   .message = fmt::format("input '{}' is {}: it needs a file", info.name, info.type_text()),
                   .node = {},
                   .legal = info.is_tensor() ? "@FILE.npy, @FILE.pb, or values such as 3xstring=a,b,c" : "@FILE.pb",
                   .hint = "write the value with onnx.numpy_helper, or with numpy.save"});
}

}  // namespace

namespace {

// "x=1x3x224x224", with sizes of the usual kind for those that are open.
std::string example_shape(const TensorInfo& info) {
  const std::vector<int64_t>& dims = info.dims;
  const auto is_channels = [&](size_t axis) { return dims[axis] >= 1 && dims[axis] <= 4; };
  const bool picture = dims.size() == 4 && (is_channels(1) || is_channels(3));
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : "x", dims[i] >= 0 ? dims[i] : i == 0 ? 1 : picture ? 224 : 128);
  return fmt::format("{}={}", info.name, text);
}

// The same with the dtype.
std::string example_of(const TensorInfo& info) {
  return fmt::format("{}{}{}", example_shape(info), info.dims.empty() ? "" : "x", dtype_name(info.dtype));
}

}  // namespace

RunValue random_value(const TensorInfo& info, uint64_t seed) {
  if (!info.is_tensor() || info.any_rank || info.dtype == DType::kString) fail_needs_file(info);
  return random_tensor(info, seed);
}

RunValue make_value(const TensorSpec& spec, const TensorInfo& info, const PictureOptions& pictures) {
  if (spec.kind == TensorSpec::Kind::kFile && !is_picture(spec.path)) return read_value_file(spec, info);
  if (!info.is_tensor()) fail_needs_file(info);
  if (spec.kind == TensorSpec::Kind::kRandom && (info.any_rank || info.dtype == DType::kString) &&
      (!spec.dtype || *spec.dtype == DType::kString))
    fail_needs_file(info);
  return make_tensor(spec, info, pictures);
}

Tensor random_tensor(const TensorInfo& info, uint64_t seed) {
  if (!info.is_static()) {
    throw UserError(
        {.id = "TSR-4012",
         .message = fmt::format("input '{}' is {}: its open dimensions need values", info.name, info.type_text()),
         .node = {},
         .legal = fmt::format("a tensor of one size, such as --input {}=random:0", example_of(info)),
         .hint = fmt::format("or choose the size alone: --shape {}", example_shape(info))});
  }
  Tensor tensor(info.dtype, info.dims);
  // The engine's numbers are defined by the language; the distributions' are not, so they are made here.
  std::mt19937_64 engine(seed);
  const int64_t count = tensor.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = engine();
    if (is_float(info.dtype)) {
      tensor.set_double(i, static_cast<double>(bits >> 40) / static_cast<double>(1 << 24));
    } else {
      const int width = dtype_bits(info.dtype) - (is_signed_int(info.dtype) ? 1 : 0);
      const uint64_t range = info.dtype == DType::kBool ? 2 : std::min<uint64_t>(10, uint64_t{1} << std::min(width, 8));
      tensor.set_int(i, static_cast<int64_t>((bits >> 32) % range));
    }
  }
  return tensor;
}

std::optional<std::vector<int64_t>> shape_of(const TensorSpec& spec, const TensorInfo& info) {
  if (spec.kind == TensorSpec::Kind::kFile && is_picture(spec.path)) return picture_dims(spec.path, info);
  if (spec.kind == TensorSpec::Kind::kFile) {
    if (!info.is_tensor()) return std::nullopt;
    return read_tensor_file(spec).dims();
  }
  if (!spec.has_dims) return std::nullopt;
  return spec.dims;
}

namespace {

// What the spec leaves out as the input has it. Where the input leaves one size open, as many as there are values.
TensorSpec completed(TensorSpec spec, const TensorInfo& info) {
  if (!spec.dtype) spec.dtype = info.dtype;
  if (spec.has_dims) return spec;
  spec.dims = info.dims;
  const auto open = std::count_if(spec.dims.begin(), spec.dims.end(), [](int64_t dim) { return dim < 0; });
  if (info.any_rank || open > 1) random_tensor(info, 0);  // refuses: the size is not known
  int64_t others = 1;
  for (const int64_t dim : spec.dims) others *= dim < 0 ? 1 : dim;
  for (int64_t& dim : spec.dims)
    if (dim < 0) dim = others > 0 ? static_cast<int64_t>(spec.values.size()) / others : 0;
  return spec;
}

}  // namespace

Tensor make_tensor(const TensorSpec& spec, const TensorInfo& info, const PictureOptions& pictures) {
  switch (spec.kind) {
    case TensorSpec::Kind::kFile:
      return is_picture(spec.path) ? read_picture(spec.path, info, pictures) : read_tensor_file(spec);
    case TensorSpec::Kind::kValues: return tensor_of_values(completed(spec, info));
    case TensorSpec::Kind::kRandom: break;
  }
  if (!spec.has_dims) return random_tensor(info, spec.seed);
  element_count(spec);
  return random_tensor({info.name, spec.dtype.value_or(info.dtype), spec.dims}, spec.seed);
}

}  // namespace tessera
