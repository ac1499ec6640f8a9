// Accelerators that files describe, as devices of a program: `--target unit.json`, `--place 'Conv_*=unit.json'`.
#pragma once

#include <string>
#include <string_view>

#include "accel/description.h"
#include "codegen/common/object_code.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "target/target.h"

namespace tessera::inline driver {

inline constexpr const char* kAcceleratorKind = "accel";  // of ProgramDevice

// Whether a target or a device is the name of a description.
bool names_accelerator(std::string_view text);
// The unit that a file describes, read once. UserError TSR-3501, and TSR-3508 for a file that cannot be
// read.
const Accelerator& accelerator_of(const std::string& file);
// The last one that was read of this name: a device of a program is called after its unit.
const Accelerator& accelerator_named(const std::string& name);

// What tells it apart from other units in tuning records: its name, and a hash of its description.
// REQUIRES: one of accelerator_of.
std::string accelerator_facts(const Accelerator& unit);
inline constexpr std::string_view kAcceleratorFacts = "accelerator ";  // how they begin

// Streams of a device's kernels, proven, and code that simulates its instructions (abi/accel_abi.h).
DeviceImage generate_accelerator(const Program& program, int32_t device, const Target& target,
                                 const CodegenOptions& options);

}  // namespace tessera::inline driver
