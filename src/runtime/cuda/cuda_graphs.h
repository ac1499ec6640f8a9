// Launches of a queue as graphs of CUDA's. Launches wait until something else is to happen; those that then go to the
// driver together, with the same numbers of blocks and the same arguments as before, are captured once and started as
// one. So each size of a module has graphs of its own, and what comes once, as in a run that is alone, has none.
//
// Used by one thread at a time. Memory grows while lists of launches are new.
#pragma once

#include <stdint.h>

#include "runtime/cuda/cuda_device.h"

namespace tessera {

constexpr uint32_t kMostKeptLists = 16;

// A list of launches, each a CudaCall with its arguments behind it.
struct CudaCalls {
  uint8_t* bytes;
  uint64_t size, capacity;
  uint32_t count;
};

struct CudaGraphs {
  CudaCalls waiting;
  struct Kept {
    CudaCalls calls;
    CudaGraphExec graph;  // null before the list came twice
    bool is_refused;      // the driver makes none of it
    uint64_t last_use;
  } kept[kMostKeptLists];
  uint64_t uses;
  bool are_off;
};

// Adds a launch. False when there is no memory for it.
bool add_call(CudaGraphs* graphs, const CudaOperation* operation, const CudaLaunch* launch, const unsigned blocks[3],
              const uint64_t* values, uint32_t num_values);
// Gives the waiting launches to the stream. `failed`: the operation of the one that the driver does not take.
CudaResult run_calls(CudaGraphs* graphs, const CudaDevice* device, CudaStream stream, const CudaOperation** failed);
void drop_calls(CudaGraphs* graphs);
// REQUIRES: the stream has no work.
void close_graphs(CudaGraphs* graphs, const CudaDevice* device);

}  // namespace tessera
