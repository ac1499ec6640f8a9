#include "package/link.h"

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "abi/module_abi.h"
#include "package/linker.h"
#include "support/error.h"

namespace tessera::inline package {

namespace {

// Of lld's words, on one line.
std::string first_lines(const std::string& text) {
  std::string result;
  size_t lines = 0;
  for (size_t at = 0; at < text.size() && lines < 4; ++lines) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.starts_with("ld.lld: error: ")) line = line.substr(15);
    if (!line.empty()) result += (result.empty() ? "" : " ") + line;
    at = end + 1;
  }
  return result;
}

}  // namespace

std::vector<std::byte> link_shared_object(std::span<const std::byte> object, const LinkOptions& options) {
  return link_shared_object(std::span(&object, 1), options);
}

std::vector<std::byte> link_shared_object(std::span<const std::span<const std::byte>> objects,
                                          const LinkOptions& options) {
  // Not every module prepares; a pattern need not match.
  const std::vector<std::string> patterns = options.exports.empty()
                                                ? std::vector<std::string>{TSR_ENTRY_SYMBOL "*", TSR_PREPARE_SYMBOL "*"}
                                                : options.exports;
  const std::string exported = fmt::format("{{ global: {}; local: *; }};\n", fmt::join(patterns, "; "));
  std::vector<AnonymousFile> inputs;
  std::vector<std::string> input_paths;
  for (const std::span<const std::byte> object : objects)
    input_paths.push_back(inputs.emplace_back(file_with("tessera-object", object)).path());
  const AnonymousFile exports = file_with("tessera-exports", std::as_bytes(std::span(exported)));
  OutputPipe output;
  const std::string version_script = "--version-script=" + exports.path(), soname = "-soname=" + options.soname,
                    output_path = output.path();
  std::vector<const char*> args = {"ld.lld",
                                   "-shared",
                                   "-nostdlib",
                                   soname.c_str(),
                                   version_script.c_str(),
                                   "-o",
                                   output_path.c_str(),
                                   "--build-id=none",
                                   "--gc-sections",
                                   "--hash-style=gnu",
                                   "--no-undefined-version",
                                   "--threads=1",
                                   "-z",
                                   "defs",
                                   "-z",
                                   "noexecstack",
                                   "-z",
                                   "max-page-size=4096",
                                   "-z",
                                   "now",
                                   "-z",
                                   "relro",
                                   "-z",
                                   "text"};
  for (const std::string& path : input_paths) args.push_back(path.c_str());
  std::vector<std::string> folders;  // where the loader looks for libraries first: where they were found
  for (const std::string& file : options.files) {
    args.push_back(file.c_str());
    if (file.find(".so") == std::string::npos) continue;
    std::error_code ignored;
    folders.push_back("-rpath=" + std::filesystem::canonical(file, ignored).parent_path().string());
  }
  for (const std::string& folder : folders) args.push_back(folder.c_str());

  const LinkerResult result = run_linker(args);
  if (!result.done && !options.files.empty())
    throw UserError({.id = "TSR-6110",
                     .message = fmt::format("the module cannot be linked with {}: {}", fmt::join(options.files, ", "),
                                            first_lines(result.errors)),
                     .node = {},
                     .legal = "files that define all that they and the declarations name, or name a library that does",
                     .hint = "objects are made with 'cc -c -O2 -fPIC'; of the C library a module has memset, memcpy, "
                             "memmove and memcmp only"});
  if (!result.done) throw InternalError(fmt::format("lld cannot link a module:\n{}", result.errors));
  return output.finish();
}

}  // namespace tessera::inline package
