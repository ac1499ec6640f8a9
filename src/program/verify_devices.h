// What a program with devices must obey beyond program/verify.h: which buffers lie where, what may stand in a start,
// and that nobody touches what a queue is at work on.
#pragma once

#include <functional>
#include <string>

#include "program/program.h"

namespace tessera::inline program {

// Calls `report(where, rule)` with every violation. REQUIRES: ids of buffers and kernels are valid, and the steps name
// the calls as they should.
void verify_devices(const Program& program,
                    const std::function<void(const std::string& where, const std::string& rule)>& report);

}  // namespace tessera::inline program
