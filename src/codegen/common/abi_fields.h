// Byte offsets of the fields that generated code reads from tsr_call and tsr_host. Written as numbers, because the
// generated code may be for another machine than the compiler's; every supported target has 8-byte pointers and the
// layout that the assertions check here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/module_abi.h"

namespace tessera::abi {

inline constexpr int64_t kCallHost = 0;
inline constexpr int64_t kCallWeights = 8;
inline constexpr int64_t kCallArena = 16;
inline constexpr int64_t kCallScratch = 24;
inline constexpr int64_t kCallInputs = 32;
inline constexpr int64_t kCallOutputs = 40;
inline constexpr int64_t kCallSymbols = 48;

inline constexpr int64_t kHostSelf = 8;
inline constexpr int64_t kHostNumWorkers = 16;
inline constexpr int64_t kHostParallelFor = 24;
inline constexpr int64_t kHostTrace = 32;
inline constexpr int64_t kHostStep = 40;

static_assert(sizeof(void*) == 8, "the module ABI has 8-byte pointers");
static_assert(offsetof(tsr_call, host) == kCallHost && offsetof(tsr_call, weights) == kCallWeights &&
              offsetof(tsr_call, arena) == kCallArena && offsetof(tsr_call, scratch) == kCallScratch &&
              offsetof(tsr_call, inputs) == kCallInputs && offsetof(tsr_call, outputs) == kCallOutputs &&
              offsetof(tsr_call, symbols) == kCallSymbols);
static_assert(offsetof(tsr_host, self) == kHostSelf && offsetof(tsr_host, num_workers) == kHostNumWorkers &&
              offsetof(tsr_host, parallel_for) == kHostParallelFor && offsetof(tsr_host, trace) == kHostTrace &&
              offsetof(tsr_host, step) == kHostStep);

}  // namespace tessera::abi
