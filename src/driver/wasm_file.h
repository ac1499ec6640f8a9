// A planned program as a WebAssembly file: code, weights, memory, and what a loader has to know of them as JSON in a
// custom section (include/tessera/tessera.mjs reads it).
#pragma once

#include <cstddef>
#include <vector>

#include "codegen/common/object_code.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "target/target.h"

namespace tessera::inline driver {

// UserError TSR-5150 for what WebAssembly has no form for.
std::vector<std::byte> wasm_file(const Program& program, const Target& target, const CodegenOptions& options,
                                 const ModuleInfo& info);

}  // namespace tessera::inline driver
