// Brings calls into an order in which a device works while the host does: each call that goes to a device stands
// directly behind the last call that it waits for, and what waits for a device stands behind everything that does not.
// Within each run of calls between other steps; results do not change.
//
// With @sum on a device:
// before:  call @a(%x, %g)           after:  call @a(%x, %g)
//          call @b(%x, %h)                   call @sum(%g, %s)
//          call @sum(%g, %s)                 call @b(%x, %h)
//          call @use(%s, %y)                 call @use(%s, %y)
//
// What it costs is memory: operands and results of devices live longer.
#pragma once

#include <cstdint>
#include <functional>

#include "program/program.h"

namespace tessera::inline program {

// `device_of`: as for assign_devices, which comes behind it; 0 is the host. REQUIRES: a verified program without
// devices, not planned.
void overlap_calls(Program& program, const std::function<int32_t(const KernelCall& call)>& device_of);

}  // namespace tessera::inline program
