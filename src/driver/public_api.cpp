// include/tessera/compiler.h on top of the driver.
#include "driver/compile.h"
#include "support/error.h"
#include "tessera/compiler.h"

namespace tessera {

namespace {

// Runs `work`; what it throws becomes a CompileError.
template <typename Work>
auto translate_errors(const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    const Diagnostic& d = error.diagnostic();
    throw CompileError(error.what(), {d.id, d.message, d.node, d.legal, d.hint});
  } catch (const std::exception& error) {
    throw CompileError(error.what(), {.id = {}, .message = error.what(), .node = {}, .legal = {}, .hint = {}});
  }
}

Compiled compile(const std::string& model_path, const CompileOptions& options) {
  DriverOptions driver;
  driver.compile = options;
  return compile_model(model_path, driver);
}

}  // namespace

void compile_file(const std::string& model_path, const std::string& module_path, const CompileOptions& options) {
  translate_errors([&] { write_module(compile(model_path, options), module_path); });
}

std::vector<std::byte> compile_to_memory(const std::string& model_path, const CompileOptions& options) {
  return translate_errors([&] { return module_in_memory(compile(model_path, options)).contents(); });
}

}  // namespace tessera
