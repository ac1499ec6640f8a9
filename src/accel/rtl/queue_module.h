// A queue of an accelerator as a module in SystemVerilog.
#pragma once

#include <cstddef>
#include <string>

#include "accel/rtl/unit_plan.h"

namespace tessera::inline rtl {

// `module queue_NAME`: the fields of its kinds of instructions, a sequencer, an address_generator for each way to a
// memory, and a kernel_KIND for what each kind computes in a step.
std::string queue_module(const UnitPlan& unit, size_t queue);

}  // namespace tessera::inline rtl
