// A session: the memory and the host side of runs of one module.
#pragma once

#include <stdint.h>
#include <atomic>

#include "abi/module_abi.h"
#include "runtime/core/memory.h"
#include "runtime/core/module_loader.h"
#include "runtime/core/tensor_check.h"
#include "tessera/tessera.h"

namespace tessera {
struct FlowRun;
}

// Used by one thread at a time (a second one gets an error). Never moves: host and call point into it.
struct tessera_session {
  const tessera_module* module = nullptr;
  int32_t num_threads = 1;
  bool owns_pool = false;  // during a run: its loops may be split
  std::atomic<bool> running{false};
  tsr_host host = {};
  tsr_call call = {};
  // Arrays behind this struct, in the same allocation; what the checks of a run wrote follows the arrays.
  tessera::BoundTensors bound = {};
  tessera::MemoryRegion memory;             // arena, then scratch
  bool prepared = true;                     // there is memory for the sizes at hand
  uint64_t arena_bytes = 0;                 // of those
  bool sizes_known = false;                 // some run or prepare has bound the symbols
  bool sizes_decided = false;               // the last run with them has decided what data decide
  int64_t* prepared_symbols = nullptr;      // to these; what `memory` is for
  tessera::MemoryRegion states;             // of a module with states: their values
  uint64_t state_bytes = 0;                 // of `states`
  bool states_are_void = false;             // a run failed while it wrote them
  const tessera_session* shares = nullptr;  // the session whose states some of these are
  uint32_t* shared = nullptr;               // of each state its number there; UINT32_MAX: it is this session's own
  tessera_trace_fn trace = nullptr;
  void* trace_user = nullptr;
  tessera_worker_trace_fn worker_trace = nullptr;
  void* worker_trace_user = nullptr;
  int32_t traced_kernel = -1;                  // that runs now; set while either trace is
  tessera::SessionDevices* devices = nullptr;  // null without devices
  tessera::FlowRun* flow = nullptr;            // of the run of a module with values; libtessera_values knows what it is
};

namespace tessera {

// `threads` 0 means default_num_threads().
tessera_status create_session(const tessera_module* module, int32_t threads, tessera_session** session,
                              tessera_error* error);
void free_session(tessera_session* session);
// Binds the named dimensions to those of the inputs, computes the sizes that follow from them and gets memory for them.
tessera_status prepare_session(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                               tessera_error* error);
tessera_status run_session(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                           const tessera_tensor* outputs, int32_t num_outputs, tessera_error* error);
tessera_status run_values(tessera_session* session, const tessera_value* const* inputs, int32_t num_inputs,
                          tessera_value** outputs, int32_t num_outputs, const tessera_allocator* allocator,
                          tessera_error* error);
// Runs the module's code on what the session is bound to; what the code answers.
int32_t run_code(tessera_session* session);
// Of `count` checks from `first` on. The outputs are void when one does not hold.
tessera_status read_checks(const tessera_session& session, uint32_t first, uint32_t count, tessera_error* error);
void set_session_trace(tessera_session* session, tessera_trace_fn trace, void* user);
void set_session_worker_trace(tessera_session* session, tessera_worker_trace_fn trace, void* user);

}  // namespace tessera
