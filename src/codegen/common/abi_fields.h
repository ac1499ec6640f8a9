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
inline constexpr int64_t kCallDevices = 56;

inline constexpr int64_t kHostSelf = 8;
inline constexpr int64_t kHostNumWorkers = 16;
inline constexpr int64_t kHostParallelFor = 24;
inline constexpr int64_t kHostTrace = 32;
inline constexpr int64_t kHostStep = 40;
inline constexpr int64_t kHostStart = 48;
inline constexpr int64_t kHostCopy = 56;
inline constexpr int64_t kHostMark = 64;
inline constexpr int64_t kHostWait = 72;

inline constexpr int64_t kDeviceMemoryBytes = 16;  // a row of kCallDevices: arena, weights

static_assert(sizeof(void*) == 8, "the module ABI has 8-byte pointers");
static_assert(offsetof(tsr_call, host) == kCallHost && offsetof(tsr_call, weights) == kCallWeights &&
              offsetof(tsr_call, arena) == kCallArena && offsetof(tsr_call, scratch) == kCallScratch &&
              offsetof(tsr_call, inputs) == kCallInputs && offsetof(tsr_call, outputs) == kCallOutputs &&
              offsetof(tsr_call, symbols) == kCallSymbols && offsetof(tsr_call, devices) == kCallDevices);
static_assert(offsetof(tsr_host, self) == kHostSelf && offsetof(tsr_host, num_workers) == kHostNumWorkers &&
              offsetof(tsr_host, parallel_for) == kHostParallelFor && offsetof(tsr_host, trace) == kHostTrace &&
              offsetof(tsr_host, step) == kHostStep && offsetof(tsr_host, start) == kHostStart &&
              offsetof(tsr_host, copy) == kHostCopy && offsetof(tsr_host, mark) == kHostMark &&
              offsetof(tsr_host, wait) == kHostWait);
static_assert(sizeof(tsr_device_memory) == kDeviceMemoryBytes && offsetof(tsr_device_memory, weights) == 8);

}  // namespace tessera::abi
