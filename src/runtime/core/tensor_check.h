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
  int64_t* symbols;  // values of the named dimensions, bound by the inputs, and what was computed from those
  void** spare;      // for each output memory of the session, or null
};

// Bytes of memory that a session needs beside an output, so that the output may have the memory of an input that the
// module still reads when it writes the output: those of an output of the type of some input, when no dimension is
// named.
uint64_t spare_bytes(const ModuleFile& module, uint32_t output);

// Checks count, dtype, rank and dims of the inputs, but for dimensions that are derived from symbols; binds the
// symbols.
tessera_status bind_sizes(const ModuleFile& module, const tessera_tensor* inputs, int32_t num_inputs, int64_t* symbols,
                          tessera_error* error);

// The rest, when the computed sizes are there: derived dims, data and alignment of every tensor, all of outputs, and
// that no output shares memory with another tensor, except with an input of its type and place; fills `bound`, with the
// spare memory where the module would read what it has overwritten. Allocates nothing. The pointers must not be null
// unless their count is 0.
tessera_status check_and_bind(const ModuleFile& module, const tessera_tensor* inputs, const tessera_tensor* outputs,
                              const BoundTensors& bound, tessera_error* error);

// Derived dimensions are sizes of tensors: between 0 and this.
inline constexpr int64_t kMaxDerivedDim = int64_t{1} << 40;

// Whether as many inputs or outputs (`kind`) were given as the module has.
tessera_status check_count(const char* kind, int32_t given, uint32_t wanted, tessera_error* error);

}  // namespace tessera
