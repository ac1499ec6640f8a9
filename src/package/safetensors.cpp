#include "package/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline package {
namespace {

constexpr std::array<std::pair<DType, const char*>, 15> kNames = {{{DType::kF64, "F64"},
                                                                   {DType::kF32, "F32"},
                                                                   {DType::kF16, "F16"},
                                                                   {DType::kBF16, "BF16"},
                                                                   {DType::kI64, "I64"},
                                                                   {DType::kI32, "I32"},
                                                                   {DType::kI16, "I16"},
                                                                   {DType::kI8, "I8"},
                                                                   {DType::kU64, "U64"},
                                                                   {DType::kU32, "U32"},
                                                                   {DType::kU16, "U16"},
                                                                   {DType::kU8, "U8"},
                                                                   {DType::kBool, "BOOL"},
                                                                   {DType::kF8E4M3FN, "F8_E4M3"},
                                                                   {DType::kF8E5M2, "F8_E5M2"}}};
constexpr uint64_t kMostHeader = 100'000'000;  // the library's own limit

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw UserError({.id = "TSR-6214",
                   .message = fmt::format("'{}': {}", path, what),
                   .node = {},
                   .legal = "a file of the form safetensors",
                   .hint = {}});
}

// The form keeps this name for the metadata: a tensor of that name, or of one that this makes, has a further underscore
// in the file.
constexpr std::string_view kMetadata = "__metadata__";

bool is_metadata_with(const std::string& name, size_t least_underscores) {
  return name.starts_with(kMetadata) && name.size() >= kMetadata.size() + least_underscores &&
         name.find_first_not_of('_', kMetadata.size()) == std::string::npos;
}

std::string name_in_file(const std::string& name) { return is_metadata_with(name, 0) ? name + "_" : name; }
std::string name_of_tensor(const std::string& in_file) {
  return is_metadata_with(in_file, 1) ? in_file.substr(0, in_file.size() - 1) : in_file;
}

}  // namespace

void write_safetensors(const std::string& path, const NamedTensors& contents) {
  nlohmann::json header = nlohmann::json::object();
  if (!contents.metadata.empty()) header[kMetadata] = contents.metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    const auto known =
        std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == tensor.dtype(); });
    check(known != kNames.end(), "a type that safetensors has");
    const auto size = static_cast<uint64_t>(tensor.num_bytes());
    header[name_in_file(name)] = {
        {"dtype", known->second}, {"shape", tensor.dims()}, {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  AtomicFile file(path, "checkpoint");
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const auto& [name, tensor] : contents.tensors)
    file.write(std::span(tensor.bytes(), static_cast<size_t>(tensor.num_bytes())));
  file.commit();
}

NamedTensors read_safetensors(const std::string& path) {
  if (std::filesystem::is_directory(path)) refuse(path, "it is a folder");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) refuse(path, std::strerror(errno));
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  file.seekg(0);
  uint64_t length = 0;
  if (size < sizeof(length) || !file.read(reinterpret_cast<char*>(&length), sizeof(length)))
    refuse(path, fmt::format("{} bytes are too few", size));
  if (length > std::min(kMostHeader, size - sizeof(length)))
    refuse(path, fmt::format("a header of {} bytes in a file of {}", length, size));
  std::string text(length, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length))) refuse(path, "it cannot be read");
  const nlohmann::json header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) refuse(path, "its header is no JSON object");
  const uint64_t begin = sizeof(length) + length;
  uint64_t end = 0;
  NamedTensors contents;
  try {
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) {
        contents.metadata = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      const auto word = entry.at("dtype").get<std::string>();
      const auto known = std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return word == n.second; });
      if (known == kNames.end()) refuse(path, fmt::format("tensor '{}' has the type {}", name, word));
      const auto dims = entry.at("shape").get<std::vector<int64_t>>();
      const auto offsets = entry.at("data_offsets").get<std::array<uint64_t, 2>>();
      uint64_t elements = 1;
      for (const int64_t d : dims)
        if (d < 0 || __builtin_mul_overflow(elements, static_cast<uint64_t>(d), &elements) || elements > size)
          refuse(path, fmt::format("tensor '{}' has a shape that does not fit the file", name));
      const auto bytes = static_cast<uint64_t>(dtype_bytes(known->first, static_cast<int64_t>(elements)));
      if (offsets[0] > offsets[1] || offsets[1] > size - begin || offsets[1] - offsets[0] != bytes)
        refuse(path, fmt::format("tensor '{}' has {} bytes from {} to {}", name, bytes, offsets[0], offsets[1]));
      end = std::max(end, offsets[1]);
      Tensor tensor(known->first, dims);
      file.seekg(static_cast<std::streamoff>(begin + offsets[0]));
      if (!file.read(reinterpret_cast<char*>(tensor.mutable_bytes()), static_cast<std::streamsize>(bytes)))
        refuse(path, fmt::format("tensor '{}' cannot be read", name));
      contents.tensors.emplace_back(name_of_tensor(name), std::move(tensor));
    }
  } catch (const nlohmann::json::exception&) {
    refuse(path, "an entry of its header is not as it should be");
  }
  if (end != size - begin) refuse(path, fmt::format("{} bytes follow its last tensor", size - begin - end));
  return contents;
}

}  // namespace tessera::inline package
