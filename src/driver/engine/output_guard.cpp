#include "driver/engine/output_guard.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "abi/executable_trailer.h"
#include "abi/module_abi.h"
#include "diagnose/inspect.h"
#include "driver/model_file.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

// What tells one model from another, whatever sizes it is compiled for: its name, and names and dtypes of its border.
json identity(const json& metadata) {
  json result = {metadata.at("model").at("name"), metadata.at("target").at("triple")};
  for (const char* side : {"inputs", "outputs"})
    for (const json& tensor : metadata.at(side)) {
      const std::string type = tensor.at("type").get<std::string>();
      result.push_back({tensor.at("name"), type.substr(0, type.find('['))});
    }
  return result;
}

// Whether the file ends as modules of every format do, but for the number of the format.
bool ends_as_module(const std::string& path) {
  constexpr std::string_view kMagic(TSR_FOOTER_MAGIC, sizeof(tsr_footer::magic));
  std::array<char, kMagic.size()> last = {};
  std::ifstream file(path, std::ios::binary);
  if (!file.seekg(-static_cast<std::streamoff>(last.size()), std::ios::end) || !file.read(last.data(), last.size()))
    return false;
  return std::string_view(last.data(), last.size() - 1) == kMagic.substr(0, kMagic.size() - 1);
}

void require_ours(const std::string& path, bool (*is_ours)(std::string_view file), const char* what) {
  std::error_code none;
  if (!fs::is_regular_file(path, none) || fs::file_size(path, none) == 0) return;
  if (is_ours(MappedFile::open(path, "output", "TSR-6101")->text())) return;
  throw UserError({.id = "TSR-4063",
                   .message = fmt::format("'{}' is there already, and is no {} of Tessera's", path, what),
                   .node = {},
                   .legal = fmt::format("a new file, or a {} to replace", what),
                   .hint = "give another name with -o, or replace it with --force"});
}

bool is_program_of_ours(std::string_view file) {
  tsr_executable_trailer trailer;
  if (file.size() < sizeof(trailer)) return false;
  std::memcpy(&trailer, file.data() + file.size() - sizeof(trailer), sizeof(trailer));
  return std::memcmp(trailer.magic, TSR_EXECUTABLE_MAGIC, sizeof(trailer.magic)) == 0;
}

bool is_source_of_ours(std::string_view file) {
  constexpr size_t kHead = 500;
  return file.substr(0, kHead).find("Written by tessera") != std::string_view::npos;
}

}  // namespace

void refuse_foreign_program(const std::string& output) { require_ours(output, is_program_of_ours, "program"); }
void refuse_foreign_source(const std::string& output) { require_ours(output, is_source_of_ours, "source"); }

std::vector<std::string> files_of_model(const std::string& model) {
  std::vector<std::string> files = {model};
  const auto declared = declarations_of_file(model);
  if (!declared) return files;
  for (const std::string& name : declared->external_files) files.push_back(fs::path(model).parent_path() / name);
  return files;
}

void refuse_to_overwrite(const std::string& output, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code error;
    if (!fs::is_regular_file(input, error) || !fs::equivalent(output, input, error) || error) continue;
    throw UserError(
        {.id = "TSR-4062",
         .message = output == input
                        ? fmt::format("'{}' would be written over, and it is read", output)
                        : fmt::format("'{}' would be written over, and it is '{}', which is read", output, input),
         .node = {},
         .legal = "a file that the command does not read",
         .hint = "give another name to -o"});
  }
}

ReplacedModule::ReplacedModule(const std::string& output, bool force) {
  std::error_code error;
  if (!fs::is_regular_file(output, error) || fs::file_size(output, error) == 0 || error) return;
  const bool is_module = ends_as_module(output);
  try {
    if (is_module) metadata_ = module_metadata_of(output);
  } catch (const UserError&) {
    return;  // of another format or runtime interface: nothing in it can be compared
  }
  if (is_module || force) return;
  throw UserError({.id = "TSR-4063",
                   .message = fmt::format("'{}' exists and is not a module of Tessera's", output),
                   .node = {},
                   .legal = "a new file, or a module that is replaced",
                   .hint = "give another name to -o, or --force to replace it"});
}

bool ReplacedModule::is_foreign(const Program& program, const ModuleInfo& info) const {
  if (metadata_.empty()) return false;
  try {
    return identity(json::parse(metadata_)) != identity(json::parse(module_metadata(program, info)));
  } catch (const json::exception&) {
    return false;  // the metadata of another version: what it says cannot be compared
  }
}

std::string ReplacedModule::difference(const ModuleInfo& info) const {
  if (metadata_.empty()) return "";
  const json metadata = json::parse(metadata_, nullptr, false);
  if (!metadata.is_object()) return "a module of another version";
  const auto text = [&](const char* section, const char* key) {
    const auto found = metadata.find(section);
    return found != metadata.end() && found->is_object() ? found->value(key, std::string()) : std::string();
  };
  const std::string name = text("model", "name"), triple = text("target", "triple"), cpu = text("target", "cpu");
  const bool same_model = name == info.model_name && text("model", "digest") == info.model_digest;
  if (same_model && triple == info.target_triple && cpu == info.target_cpu) return "";
  return fmt::format("a module of {} for {}{}{}",
                     name != info.model_name ? fmt::format("'{}'", name)
                     : same_model            ? "this model"
                                             : fmt::format("'{}' with other weights or sizes", name),
                     triple, cpu.empty() ? "" : ", ", cpu);
}

}  // namespace tessera::inline driver
