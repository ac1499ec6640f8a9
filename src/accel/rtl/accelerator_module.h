// The whole of an accelerator as a module in SystemVerilog.
#pragma once

#include <string>

#include "accel/rtl/unit_plan.h"

namespace tessera::inline rtl {

// `module accelerator`: instruction_fetch, an instruction_fifo for each queue, tokens for each pair of queues, a memory
// for each of the description's, and a queue_NAME for each queue.
std::string accelerator_module(const UnitPlan& unit);

}  // namespace tessera::inline rtl
