#include "runtime/core/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <new>

#include "runtime/core/decided_values.h"
#include "runtime/core/errors.h"
#include "runtime/core/session_states.h"
#include "runtime/cpu/affinity.h"
#include "runtime/cpu/float_state.h"
#include "runtime/cpu/thread_pool.h"

namespace tessera {

namespace {

uint64_t aligned_up(uint64_t bytes) { return (bytes + TSR_BUFFER_ALIGN - 1) / TSR_BUFFER_ALIGN * TSR_BUFFER_ALIGN; }

// A parallel loop whose pieces are reported.
struct TracedLoop {
  const tessera_session* session;
  tsr_task_fn fn;
  const void* arg;
};

void traced_piece(const void* arg, int64_t begin, int64_t end, int32_t worker) {
  const TracedLoop& loop = *static_cast<const TracedLoop*>(arg);
  const tessera_session& session = *loop.session;
  session.worker_trace(session.worker_trace_user, session.traced_kernel, worker, 0);
  loop.fn(loop.arg, begin, end, worker);
  session.worker_trace(session.worker_trace_user, session.traced_kernel, worker, 1);
}

void host_parallel_for(void* self, tsr_task_fn fn, const void* arg, int64_t n, int64_t grain) {
  const tessera_session* session = static_cast<const tessera_session*>(self);
  const TracedLoop traced = {session, fn, arg};
  if (session->worker_trace) {
    fn = traced_piece;
    arg = &traced;
  }
  if (session->owns_pool) {
    ThreadPool::process().parallel_for(fn, arg, n, grain);
  } else if (n > 0) {
    fn(arg, 0, n, 0);
  }
}

void host_trace(void* self, int32_t kernel, int32_t phase) {
  tessera_session* session = static_cast<tessera_session*>(self);
  session->traced_kernel = kernel;
  if (session->trace) session->trace(session->trace_user, kernel, phase);
}

// Arena, then the scratch of all workers, then the spare memory of outputs, which costs nothing until it is used.
// Scratch of one worker after another: the module adds worker * descriptor.scratch_bytes, which its compiler keeps a
// multiple of TSR_BUFFER_ALIGN.
tessera_status map_memory(tessera_session* session, tessera_error* error) {
  const ModuleFile& file = session->module->file;
  const tsr_descriptor& descriptor = *file.descriptor;
  uint64_t spare = 0;
  for (uint32_t i = 0; i < descriptor.num_outputs; ++i) {
    const uint64_t bytes = spare_bytes(file, i);
    if (__builtin_add_overflow(spare, bytes > UINT64_MAX - TSR_BUFFER_ALIGN ? UINT64_MAX : aligned_up(bytes), &spare))
      spare = UINT64_MAX;
  }
  uint64_t scratch, total;
  const bool overflows =
      session->arena_bytes > UINT64_MAX - TSR_BUFFER_ALIGN ||
      __builtin_mul_overflow(descriptor.scratch_bytes, static_cast<uint64_t>(session->num_threads), &scratch) ||
      __builtin_add_overflow(aligned_up(session->arena_bytes), scratch, &total) ||
      __builtin_add_overflow(total, spare, &total);
  if (overflows || !session->memory.map(total)) {
    return fail(error, kErrMemory,
                "not enough memory for a session: the module needs %llu bytes and %llu for each of "
                "%d threads; free memory, or use fewer threads",
                static_cast<unsigned long long>(session->arena_bytes),
                static_cast<unsigned long long>(descriptor.scratch_bytes), session->num_threads);
  }
  session->call.arena = session->memory.data;
  session->call.scratch = session->memory.data + aligned_up(session->arena_bytes);
  uint8_t* next = session->memory.data + (total - spare);
  for (uint32_t i = 0; i < descriptor.num_outputs; ++i) {
    const uint64_t bytes = spare_bytes(file, i);
    session->bound.spare[i] = bytes > 0 ? next : nullptr;
    next += aligned_up(bytes);
  }
  return TESSERA_OK;
}

// Outputs that could not be written in their place at once.
void copy_spares(const tessera_session& session, const tessera_tensor* outputs) {
  const ModuleFile& file = session.module->file;
  for (uint32_t i = 0; i < file.descriptor->num_outputs; ++i) {
    if (session.bound.outputs[i] != outputs[i].data)
      memcpy(outputs[i].data, session.bound.outputs[i], spare_bytes(file, i));
  }
}

tessera_status start_threads(int32_t threads, tessera_error* error) {
  if (threads < 2) return TESSERA_OK;
  const int failure = ThreadPool::process().reserve(threads);
  if (failure == 0) return TESSERA_OK;
  return fail(error, kErrThreadStart,
              "cannot start the threads of a session with %d threads: %s; use fewer threads "
              "(TESSERA_NUM_THREADS, --threads), or raise the limit of threads",
              threads, strerror(failure));
}

// How many numbers the checks of a module need together. No overflow: the table fits into the file.
size_t count_checked_values(const ModuleFile& file) {
  size_t count = 0;
  for (uint32_t i = 0; i < file.descriptor->num_checks; ++i) count += file.checks()[i].count;
  return count;
}

// "3", or "[3, 4]"; a long list ends with dots.
struct ValuesText {
  char text[320];  // 12 numbers of 20 characters and what stands between them fit
};

ValuesText print_values(const int64_t* values, uint32_t count) {
  constexpr uint32_t kShown = 12;
  ValuesText result;
  char* end = stpcpy(result.text, count == 1 ? "" : "[");
  for (uint32_t i = 0; i < count && i < kShown; ++i) {
    end += sprintf(end, "%s%lld", i > 0 ? ", " : "", static_cast<long long>(values[i]));
  }
  stpcpy(end, count == 1 ? "" : count > kShown ? ", ...]" : "]");
  return result;
}

}  // namespace

tessera_status create_session(const tessera_module* module, int32_t threads, tessera_session** result,
                              tessera_error* error) {
  if (threads < 0 || threads > ThreadPool::kMaxThreads) {
    return fail(error, kErrThreadCount,
                "a session with %d threads was asked for; legal are 1..%d, or 0 for the "
                "default",
                threads, ThreadPool::kMaxThreads);
  }
  if (threads == 0) threads = default_num_threads();
  tessera_status status = start_threads(threads, error);
  if (status != TESSERA_OK) return status;

  const tsr_descriptor& descriptor = *module->file.descriptor;
  const size_t slots = size_t{descriptor.num_inputs} + 2 * size_t{descriptor.num_outputs} + descriptor.num_checks +
                       2 * size_t{descriptor.num_states} + 2 * size_t{descriptor.num_symbols} +
                       descriptor.num_computed + count_checked_values(module->file);
  static_assert(sizeof(void*) == sizeof(int64_t) && alignof(tessera_session) >= alignof(int64_t));
  const size_t bytes = sizeof(tessera_session) + slots * sizeof(int64_t);
  void* memory = malloc(bytes);
  if (!memory) return fail(error, kErrMemory, "not enough memory for a session: %zu bytes were refused", bytes);
  tessera_session* session = new (memory) tessera_session();
  session->module = module;
  session->num_threads = threads;
  session->bound.inputs = reinterpret_cast<const void**>(session + 1);
  session->bound.outputs = const_cast<void**>(session->bound.inputs + descriptor.num_inputs + descriptor.num_states);
  void** const checks = session->bound.outputs + descriptor.num_outputs + descriptor.num_states;
  session->bound.spare = checks + descriptor.num_checks;
  session->bound.symbols = reinterpret_cast<int64_t*>(session->bound.spare + descriptor.num_outputs);
  session->prepared_symbols = session->bound.symbols + descriptor.num_symbols + descriptor.num_computed;
  session->prepared = module->code.prepare == nullptr || module->file.has_values();
  if (session->prepared) {
    session->arena_bytes = descriptor.arena_bytes;
    status = map_memory(session, error);
    if (status != TESSERA_OK) {
      free_session(session);
      return status;
    }
  }
  status = create_states(session, error);
  if (status != TESSERA_OK) {
    free_session(session);
    return status;
  }
  status = create_session_devices(session, error);
  if (status != TESSERA_OK) {
    free_session(session);
    return status;
  }
  int64_t* values = session->prepared_symbols + descriptor.num_symbols;
  for (uint32_t i = 0; i < descriptor.num_checks; values += module->file.checks()[i++].count) checks[i] = values;
  session->host.size = sizeof(tsr_host);
  session->host.abi_version = TSR_ABI_VERSION;
  session->host.self = session;
  session->host.num_workers = threads;
  session->host.parallel_for = host_parallel_for;
  if (module->values) session->host.step = module->values->step;
  session->call.host = &session->host;
  session->call.weights = module->file.weights();
  session->call.inputs = session->bound.inputs;
  session->call.outputs = session->bound.outputs;
  session->call.symbols = descriptor.num_symbols ? session->bound.symbols : nullptr;
  *result = session;
  return TESSERA_OK;
}

tessera_status read_checks(const tessera_session& session, uint32_t first, uint32_t count, tessera_error* error) {
  const ModuleFile& file = session.module->file;
  for (uint32_t i = first; i < first + count; ++i) {
    const tsr_check_descr& row = file.checks()[i];
    const int64_t* values = static_cast<const int64_t*>(
        session.bound.outputs[file.descriptor->num_outputs + file.descriptor->num_states + i]);
    if (values[0] != 0) continue;
    return fail(error, kErrValueCheck, "%s is %s; this module was compiled for %s; the outputs are not valid",
                clip_name(file.text(row.what)).text, print_values(values + 1, row.count - 1).text,
                clip_name(file.text(row.legal)).text);
  }
  return TESSERA_OK;
}

int32_t run_code(tessera_session* session) {
  ThreadPool& pool = ThreadPool::process();
  session->owns_pool = session->num_threads > 1 && pool.begin_run(session->num_threads);
  int32_t code;
  {
    const DefaultFloatState float_state;
    code = session->module->code.run(&session->call);
  }
  if (session->owns_pool) pool.end_run();
  session->owns_pool = false;
  return code;
}

namespace {

// Of a session that is marked as running.
tessera_status prepare_sizes(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                             tessera_error* error) {
  const ModuleFile& file = session->module->file;
  const tsr_descriptor& descriptor = *file.descriptor;
  int64_t* sizes = session->bound.symbols;
  const tessera_status status = bind_sizes(file, inputs, num_inputs, sizes, error);
  if (status != TESSERA_OK) return status;
  session->sizes_decided = false;
  const size_t symbol_bytes = (descriptor.num_symbols - descriptor.num_data_symbols) * sizeof(int64_t);
  if (!session->module->code.prepare) {
    if (symbol_bytes > 0) memcpy(session->prepared_symbols, sizes, symbol_bytes);
    session->sizes_known = true;
    return TESSERA_OK;
  }
  if (session->prepared && memcmp(sizes, session->prepared_symbols, symbol_bytes) == 0) return TESSERA_OK;
  session->prepared = session->sizes_known = false;
  session->memory.unmap();
  session->memory = MemoryRegion();
  session->arena_bytes = session->module->code.prepare(sizes, 0);
  for (uint32_t i = 0; i < descriptor.num_derived; ++i) {
    const int64_t dim = sizes[descriptor.num_symbols + i];
    if (dim >= 0 && dim <= kMaxDerivedDim) continue;
    return fail(error, kErrModuleCode, "the code of '%s' gives a dimension of %lld; compile the model again", file.name,
                static_cast<long long>(dim));
  }
  const tessera_status mapped = map_memory(session, error);
  if (mapped != TESSERA_OK) return mapped;
  memcpy(session->prepared_symbols, sizes, symbol_bytes);
  session->prepared = session->sizes_known = true;
  return TESSERA_OK;
}

tessera_status begin_call(tessera_session* session, tessera_error* error) {
  if (!session->running.exchange(true, std::memory_order_acquire)) return TESSERA_OK;
  return fail(error, kErrSessionBusy,
              "the session is already running; a session runs one call at a time: create one "
              "for each thread (they share the module)");
}

tessera_status refuse_values(const ModuleFile& file, tessera_error* error) {
  if (!file.has_values()) return TESSERA_OK;
  return fail(error, kErrHasValues,
              "'%s' has values that are more than tensors of numbers of fixed shapes; run it "
              "with tessera_session_run_values",
              file.name);
}

}  // namespace

tessera_status run_values(tessera_session* session, const tessera_value* const* inputs, int32_t num_inputs,
                          tessera_value** outputs, int32_t num_outputs, const tessera_allocator* allocator,
                          tessera_error* error) {
  const ModuleFile& file = session->module->file;
  if (!file.has_values() && file.descriptor->num_decided > 0) {
    tessera_status counts = check_count("input", num_inputs, file.descriptor->num_inputs, error);
    if (counts == TESSERA_OK) counts = check_count("output", num_outputs, file.descriptor->num_outputs, error);
    return counts == TESSERA_OK ? run_decided_values(session, inputs, outputs, allocator, error) : counts;
  }
  if (!file.has_values()) {
    return fail(error, kErrHasValues, "'%s' has tensors of numbers alone; run it with tessera_session_run", file.name);
  }
  tessera_status status = check_count("input", num_inputs, file.descriptor->num_value_inputs, error);
  if (status == TESSERA_OK) status = check_count("output", num_outputs, file.descriptor->num_value_outputs, error);
  if (status != TESSERA_OK) return status;
  status = begin_call(session, error);
  if (status != TESSERA_OK) return status;
  static constexpr CoreFunctions kCore = {run_code, read_checks};
  status = session->module->values->run(kCore, session, inputs, outputs, allocator, error);
  session->running.store(false, std::memory_order_release);
  return status;
}

tessera_status prepare_session(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                               tessera_error* error) {
  tessera_status status = refuse_values(session->module->file, error);
  if (status == TESSERA_OK) status = begin_call(session, error);
  if (status != TESSERA_OK) return status;
  status = prepare_sizes(session, inputs, num_inputs, error);
  session->running.store(false, std::memory_order_release);
  return status;
}

void free_session(tessera_session* session) {
  free_session_devices(session);
  session->memory.unmap();
  session->states.unmap();
  free(session->shared);
  free(session);  // trivially destructible
}

tessera_status run_session(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                           const tessera_tensor* outputs, int32_t num_outputs, tessera_error* error) {
  const ModuleFile& file = session->module->file;
  tessera_status status = refuse_values(file, error);
  if (status == TESSERA_OK) status = begin_call(session, error);
  if (status != TESSERA_OK) return status;
  status = check_count("input", num_inputs, file.descriptor->num_inputs, error);
  if (status == TESSERA_OK) status = check_count("output", num_outputs, file.descriptor->num_outputs, error);
  if (status == TESSERA_OK) status = prepare_sizes(session, inputs, num_inputs, error);
  if (status == TESSERA_OK) status = check_and_bind(file, inputs, outputs, session->bound, error);
  if (status == TESSERA_OK) status = check_states(*session, inputs, outputs, error);
  if (status == TESSERA_OK) {
    if (const int32_t code = run_code(session); code != 0) {
      status = device_failure(session, error);
      if (status == TESSERA_OK)
        status = fail(error, kErrModuleCode,
                      "the code of '%s' reported error %d, which its metadata explains; the "
                      "outputs are not valid",
                      file.name, code);
    } else {
      status = read_checks(*session, 0, file.descriptor->num_checks, error);
      if (status == TESSERA_OK) copy_spares(*session, outputs);
      session->sizes_decided = status == TESSERA_OK;
    }
    finish_states(session, status == TESSERA_OK);
  }
  session->running.store(false, std::memory_order_release);
  return status;
}

void set_session_trace(tessera_session* session, tessera_trace_fn trace, void* user) {
  session->trace = trace;
  session->trace_user = user;
  session->host.trace = trace || session->worker_trace ? host_trace : nullptr;
}

void set_session_worker_trace(tessera_session* session, tessera_worker_trace_fn trace, void* user) {
  session->worker_trace = trace;
  session->worker_trace_user = user;
  session->host.trace = trace || session->trace ? host_trace : nullptr;
}

}  // namespace tessera
