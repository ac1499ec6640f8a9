// The descriptor section of a module: tables that the runtime reads in place.
#pragma once

#include <cstddef>
#include <vector>

#include "package/module_writer.h"

namespace tessera::inline package {

// REQUIRES: static shapes of inputs and outputs.
std::vector<std::byte> make_descriptor(const Program& program, const ModuleInfo& info);

}  // namespace tessera::inline package
