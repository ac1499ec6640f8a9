// What a run is given, compared with what its module declares.
#pragma once

#include <stdint.h>

#include "runtime/core/module_file.h"
#include "tessera/tessera.h"

namespace tessera {

// Where a run's checked tensors go; arrays as long as the module's tables.
struct BoundTensors {
  const void** inputs;
  void** outputs;
  int64_t* symbols;  // values of the named dimensions, bound by the inputs
};

// Checks count, dtype, rank, dims, data and alignment of every tensor, and that no output shares memory with another
// tensor; fills `bound`. Allocates nothing. The pointers must not be null unless their count is 0.
tessera_status check_and_bind(const ModuleFile& module, const tessera_tensor* inputs, int32_t num_inputs,
                              const tessera_tensor* outputs, int32_t num_outputs, const BoundTensors& bound,
                              tessera_error* error);

}  // namespace tessera
