// The last part of every compile, whoever asks for it: a planned program becomes a module.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/common/object_code.h"
#include "package/anonymous_file.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "target/target.h"

namespace tessera::inline driver {

// What any module for this machine says of itself; the model's digest, operators and options are the caller's to add.
ModuleInfo module_info(std::string model_name, const Target& target);

struct BuiltModule {
  Program program;                  // planned, with the weights
  std::vector<std::byte> code;      // the shared object
  std::vector<DeviceImage> images;  // the code of its devices
};

// Links what was generated for the program, `more` for other targets, and generates what its devices need. UserError
// TSR-6110 as link_shared_object says.
BuiltModule link_module(const ObjectCode& object, Program planned, const Target& target, const CodegenOptions& options,
                        std::span<const ObjectCode> more = {});

// Generates the code of a planned program, links it, and writes the module to a file in memory, ready for the runtime's
// loader. `remarks`, if any, get the code generator's.
AnonymousFile build_module(Program planned, const Target& target, const ModuleInfo& info, const CodegenOptions& options,
                           std::vector<std::string>* remarks = nullptr);

}  // namespace tessera::inline driver
