// The image of a communicator: a device whose kernels are collectives (abi/collective_abi.h).
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/common/object_code.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "target/target.h"
#include "types/collective.h"

namespace tessera::inline driver {

// What a kernel does together with other ranks; none of kernels of one rank alone.
std::optional<Collective> collective_of(const Kernel& kernel);

// REQUIRES: every kernel of the device is a collective, all over one mesh.
DeviceImage generate_collectives(const Program& program, int32_t device, const Target& target,
                                 const CodegenOptions& options);

}  // namespace tessera::inline driver
