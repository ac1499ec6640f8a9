// Runs the thread form of a kernel (device/thread_form.h): what its barriers are held against. Between two barriers the
// threads of a block run one after the other, each all of its part, in an order of one's choice; so a barrier that is
// missing shows as other results, or as a fault.
//
// Beside the faults of loop_interp.h: two threads that touch an element with no barrier between them, one of which
// stores to it; blocks may touch elements that another block stores to in no case.
#pragma once

#include <cstdint>
#include <span>

#include "device/thread_form.h"
#include "interp/loop_interp.h"

namespace tessera::inline interp {

enum class ThreadOrder : uint8_t { kForwards, kBackwards, kShuffled };

// As interpret(program, params, symbols). LoopFault with kind kRace for a race, which names the threads and the
// element.
void interpret_threads(const LoopProgram& program, const DeviceKernel& kernel, std::span<Tensor* const> params,
                       ThreadOrder order, std::span<const int64_t> symbols = {});

}  // namespace tessera::inline interp
