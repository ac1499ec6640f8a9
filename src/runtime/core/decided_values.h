// Runs of modules that have tensors of numbers alone, with dimensions that data decide, for callers who want results in
// memory of the run's own, as they get them from modules with values.
#pragma once

#include "runtime/core/session.h"

namespace tessera {

// tessera_session_run_values of such a module, with checked counts. On failure, `outputs` are null.
tessera_status run_decided_values(tessera_session* session, const tessera_value* const* inputs, tessera_value** outputs,
                                  const tessera_allocator* allocator, tessera_error* error);

}  // namespace tessera
