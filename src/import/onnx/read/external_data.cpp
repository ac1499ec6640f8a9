#include "import/onnx/read/external_data.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "onnx-ml.pb.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> parse_int(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// True when `path` is `folder` or below it; both canonical.
bool is_below(const fs::path& path, const fs::path& folder) {
  auto part = path.begin();
  for (const fs::path& expected : folder) {
    if (expected.empty()) continue;  // a trailing '/'
    if (part == path.end() || *part != expected) return false;
    ++part;
  }
  return true;
}

[[noreturn]] void fail_location(const std::string& label, const std::string& location, const std::string& why) {
  throw UserError({"TSR-1032",
                   location.empty() ? "external data has no location"
                                    : fmt::format("external data location '{}' {}", location, why),
                   label, "a relative path to a file inside the model's folder",
                   "put the data file beside the model and save the model with that relative location"});
}

}  // namespace

std::shared_ptr<const MappedFile> ExternalData::open(const std::string& location, const std::string& label) {
  const auto known = files_.find(location);
  if (known != files_.end()) return known->second;

  const fs::path relative(location);
  if (location.empty()) fail_location(label, location, "");
  if (location.find('\0') != std::string::npos) fail_location(label, "...", "contains a zero byte");
  if (relative.is_absolute()) fail_location(label, location, "is an absolute path");
  for (const fs::path& part : relative)
    if (part == "..") fail_location(label, location, "contains '..'");

  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (error)
    throw UserError({"TSR-1033", fmt::format("cannot open the model's folder '{}': {}", folder_, error.message()),
                     label, "a folder that can be searched", "check the path and the permissions"});
  const fs::path path = fs::canonical(folder / relative, error);
  if (error)
    throw UserError({"TSR-1033",
                     fmt::format("external data file '{}' is missing from the model's folder '{}' ({})", location,
                                 folder_, error.message()),
                     label, "all external data files stand in the model's folder",
                     "fetch the data file that belongs to the model; it is often named like the model with '.data'"});
  if (!is_below(path, folder))
    fail_location(label, location, "leads out of the model's folder through a symbolic link");
  if (!fs::is_regular_file(path, error))
    throw UserError({"TSR-1033", fmt::format("the external data file '{}' is not a regular file", location), label,
                     "a regular file inside the model's folder",
                     "fetch the data file that belongs to the model; it is often named like the model with '.data'"});
  auto file = MappedFile::open(path.string(), "external data file", "TSR-1033");
  files_.emplace(location, file);
  return file;
}

ExternalData::Bytes ExternalData::find(const onnx::TensorProto& proto, int64_t size, const std::string& label) {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    const auto number = parse_int(entry.value());
    if (!number || *number < 0)
      throw UserError({"TSR-1034", fmt::format("external data {} is '{}'", entry.key(), entry.value().substr(0, 40)),
                       label, "a number of bytes, zero or more", ""});
    if (entry.key() == "offset") offset = *number;
    else length = *number;
  }
  if (folder_.empty())
    throw UserError({"TSR-1033", fmt::format("the tensor's data is in the external file '{}'", location), label,
                     "models without external data when the model is not read from a file",
                     "read the model from its file"});
  const auto file = open(location, label);
  const auto file_size = static_cast<int64_t>(file->size());
  if (length && *length != size)
    throw UserError(
        {"TSR-1034",
         fmt::format("external data has length {}, the tensor's shape and type need {} bytes", *length, size), label,
         fmt::format("length {}", size), ""});
  if (offset > file_size || size > file_size - offset)
    throw UserError({"TSR-1034",
                     fmt::format("external data at offset {} of {} bytes lies outside of '{}', which has {} bytes",
                                 offset, size, location, file_size),
                     label, "a range inside the file", "the data file may be truncated or belong to another model"});
  return {file, file->data() + offset};
}

}  // namespace tessera::inline onnx_import
