#include "package/link_wasm.h"

#include <fmt/format.h>

#include "package/linker.h"
#include "support/error.h"

namespace tessera::inline package {

namespace {

void add_number(std::vector<std::byte>& bytes, uint64_t value) {  // LEB128
  do {
    const auto low = static_cast<uint8_t>(value & 0x7f);
    value >>= 7;
    bytes.push_back(static_cast<std::byte>(value ? low | 0x80 : low));
  } while (value);
}

void add_text(std::vector<std::byte>& bytes, std::string_view text) {
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

}  // namespace

std::vector<std::byte> link_wasm(std::span<const std::byte> object, const WasmLinkOptions& options) {
  const AnonymousFile input = file_with("tessera-object", object);
  OutputPipe output;
  const std::string input_path = input.path(), output_path = output.path();
  std::vector<std::string> exports;
  for (const std::string& name : options.functions) exports.push_back("--export-if-defined=" + name);
  for (const std::string& name : options.globals) exports.push_back("--export=" + name);
  std::vector<const char*> args = {
      "wasm-ld",           "--no-entry",  "--strip-all", "--stack-first",     "-z",
      "stack-size=262144", "--threads=1", "-o",          output_path.c_str(), input_path.c_str()};
  for (const std::string& argument : exports) args.push_back(argument.c_str());
  const LinkerResult result = run_linker(args);
  if (!result.done) throw InternalError(fmt::format("lld cannot link WebAssembly:\n{}", result.errors));
  std::vector<std::byte> module = output.finish();

  constexpr std::string_view kSection = "tessera";
  std::vector<std::byte> section;
  add_number(section, kSection.size());
  add_text(section, kSection);
  add_text(section, options.description);
  module.push_back(std::byte{0});  // a custom section
  add_number(module, section.size());
  module.insert(module.end(), section.begin(), section.end());
  return module;
}

}  // namespace tessera::inline package
