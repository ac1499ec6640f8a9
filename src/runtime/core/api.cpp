// The C API over the parts of the runtime: null checks and field access only.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/core/errors.h"
#include "runtime/core/module_loader.h"
#include "runtime/core/session.h"
#include "runtime/core/session_states.h"
#include "runtime/cpu/affinity.h"
#include "tessera/tessera.h"

using namespace tessera;

namespace {

tessera_status null_argument(const char* function, const char* argument, tessera_error* error) {
  return fail(error, kErrNullArgument, "%s: %s is null; only options and error may be", function, argument);
}

struct LoadOptions {
  bool check_weights = true;
  const char* entry = nullptr;
};

// Options carry their size so that a program built with an older header keeps working with a newer runtime.
tessera_status read_load_options(const tessera_load_options* options, LoadOptions* read, tessera_error* error) {
  if (!options) return TESSERA_OK;
  constexpr size_t kFirstSize = offsetof(tessera_load_options, entry);  // of the first header
  if (options->size < kFirstSize) {
    return fail(error, kErrOptionsSize,
                "the load options say they have %u bytes; set size to "
                "sizeof(tessera_load_options), at least %zu",
                options->size, kFirstSize);
  }
  read->check_weights = options->skip_weights_digest == 0;
  if (options->size >= sizeof(tessera_load_options)) read->entry = options->entry;
  return TESSERA_OK;
}

tessera_status tensor_info(const ModuleFile& file, const tsr_tensor_descr* tensors, uint32_t count, int32_t index,
                           tessera_tensor_info* info) {
  if (index < 0 || static_cast<uint32_t>(index) >= count) return TESSERA_NOT_FOUND;
  const tsr_tensor_descr& tensor = tensors[index];
  info->name = file.text(tensor.name);
  info->dtype = static_cast<tessera_dtype>(tensor.dtype);
  info->rank = static_cast<int32_t>(tensor.rank);
  for (int axis = 0; axis < TESSERA_MAX_RANK; ++axis) {
    info->dims[axis] = static_cast<uint32_t>(axis) < tensor.rank ? tensor.dims[axis] : 0;
  }
  return TESSERA_OK;
}

void fill_dims(const int64_t* dims, int32_t rank, tessera_value_info* info) {
  info->rank = rank;
  for (int32_t axis = 0; axis < rank; ++axis) info->dims[axis] = dims[axis] < 0 ? -1 : dims[axis];
}

tessera_status value_info(const ModuleFile& file, const tsr_tensor_descr* tensors, uint32_t count, int32_t index,
                          tessera_value_info* info) {
  if (index < 0 || static_cast<uint32_t>(index) >= count) return TESSERA_NOT_FOUND;
  const tsr_tensor_descr& tensor = tensors[index];
  *info = {};
  info->name = file.text(tensor.name);
  info->dtype = static_cast<tessera_dtype>(tensor.dtype);
  fill_dims(tensor.dims, static_cast<int32_t>(tensor.rank), info);
  return TESSERA_OK;
}

tessera_status value_info(const ModuleFile& file, const tsr_value_descr* values, uint32_t count, int32_t index,
                          tessera_value_info* info) {
  if (index < 0 || static_cast<uint32_t>(index) >= count) return TESSERA_NOT_FOUND;
  const tsr_value_descr& value = values[index];
  *info = {};
  info->name = file.text(value.name);
  info->dtype = static_cast<tessera_dtype>(value.dtype);
  info->key = static_cast<tessera_dtype>(value.key);
  info->num_wrappers = static_cast<int32_t>(value.num_wrappers);
  for (uint32_t i = 0; i < value.num_wrappers; ++i) {
    info->wrappers[i] = static_cast<tessera_value_kind>(value.wrappers[i]);
  }
  fill_dims(value.dims, value.rank, info);
  return TESSERA_OK;
}

tessera_status decided_value_info(const ModuleFile& file, int32_t index, tessera_value_info* info) {
  const tessera_status status = value_info(file, file.outputs(), file.descriptor->num_outputs, index, info);
  for (uint32_t i = 0; status == TESSERA_OK && i < file.descriptor->num_decided; ++i) {
    const tsr_decided_descr& dim = file.decided()[i];
    if (dim.output == static_cast<uint32_t>(index)) info->dims[dim.axis] = -1;
  }
  return status;
}

}  // namespace

extern "C" {

static_assert(TESSERA_MAX_RANK == TSR_MAX_RANK);

const char* tessera_version(void) { return TESSERA_VERSION; }
int32_t tessera_dtype_bits(tessera_dtype dtype) { return module_dtype_bits(static_cast<uint32_t>(dtype)); }
const char* tessera_dtype_name(tessera_dtype dtype) { return module_dtype_name(static_cast<uint32_t>(dtype)); }
int32_t tessera_default_num_threads(void) { return default_num_threads(); }

tessera_status tessera_module_load(const char* path, const tessera_load_options* options, tessera_module** module,
                                   tessera_error* error) {
  if (!path) return null_argument("tessera_module_load", "path", error);
  if (!module) return null_argument("tessera_module_load", "module", error);
  LoadOptions read;
  const tessera_status status = read_load_options(options, &read, error);
  return status == TESSERA_OK ? load_from_path(path, read.entry, read.check_weights, module, error) : status;
}

tessera_status tessera_module_load_memory(const void* data, size_t size, const tessera_load_options* options,
                                          tessera_module** module, tessera_error* error) {
  if (!data) return null_argument("tessera_module_load_memory", "data", error);
  if (!module) return null_argument("tessera_module_load_memory", "module", error);
  LoadOptions read;
  const tessera_status status = read_load_options(options, &read, error);
  return status == TESSERA_OK ? load_from_memory(data, size, read.entry, read.check_weights, module, error) : status;
}

tessera_status tessera_module_check(const char* path, tessera_error* error) {
  if (!path) return null_argument("tessera_module_check", "path", error);
  ModuleFile file;
  const tessera_status status = file.open_path(path, nullptr, true, error);
  file.close();
  return status;
}

void tessera_module_free(tessera_module* module) {
  if (!module) return;
  close_devices(module->devices);
  module->code.unload();
  module->file.close();
  free(module);  // trivially destructible
}

int32_t tessera_module_num_inputs(const tessera_module* module) {
  if (!module) return 0;
  const tsr_descriptor& descriptor = *module->file.descriptor;
  return static_cast<int32_t>(module->file.has_values() ? descriptor.num_value_inputs : descriptor.num_inputs);
}

int32_t tessera_module_num_outputs(const tessera_module* module) {
  if (!module) return 0;
  const tsr_descriptor& descriptor = *module->file.descriptor;
  return static_cast<int32_t>(module->file.has_values() ? descriptor.num_value_outputs : descriptor.num_outputs);
}

int32_t tessera_module_num_symbols(const tessera_module* module) {
  if (!module || module->file.has_values()) return 0;  // those are dimensions inside of the module
  return static_cast<int32_t>(module->file.descriptor->num_symbols - module->file.descriptor->num_data_symbols);
}

int32_t tessera_module_num_kernels(const tessera_module* module) {
  return module ? static_cast<int32_t>(module->file.descriptor->num_kernels) : 0;
}

int32_t tessera_module_num_states(const tessera_module* module) {
  return module ? static_cast<int32_t>(module->file.descriptor->num_states) : 0;
}

tessera_status tessera_module_state(const tessera_module* module, int32_t index, tessera_tensor_info* info) {
  if (!module || !info) return TESSERA_INVALID_ARGUMENT;
  if (index < 0 || index >= tessera_module_num_states(module)) return TESSERA_NOT_FOUND;
  return tensor_info(module->file, &module->file.states()[index].tensor, 1, 0, info);
}

int32_t tessera_module_num_entries(const tessera_module* module) {
  int32_t count = 0;
  for (uint64_t i = 0; module && i < module->file.bundle.num_entries; ++i)
    count += module->file.bundle.entries[i].kind == TSR_ENTRY_MODULE;
  return count;
}

const char* tessera_module_entry(const tessera_module* module, int32_t index) {
  for (uint64_t i = 0; module && index >= 0 && i < module->file.bundle.num_entries; ++i) {
    const tsr_bundle_entry& entry = module->file.bundle.entries[i];
    if (entry.kind == TSR_ENTRY_MODULE && index-- == 0) return entry.name;
  }
  return nullptr;
}

tessera_status tessera_session_share_states(tessera_session* session, const tessera_session* owner,
                                            tessera_error* error) {
  if (!session) return null_argument("tessera_session_share_states", "session", error);
  if (!owner) return null_argument("tessera_session_share_states", "owner", error);
  return share_states(session, owner, error);
}

tessera_status tessera_session_state(const tessera_session* session, int32_t index, tessera_tensor* tensor) {
  if (!session || !tensor) return TESSERA_INVALID_ARGUMENT;
  tessera_tensor_info info;
  const tessera_status status = tessera_module_state(session->module, index, &info);
  if (status != TESSERA_OK) return status;
  tensor->data = state_data(*session, static_cast<uint32_t>(index));
  tensor->dtype = info.dtype;
  tensor->rank = info.rank;
  memcpy(tensor->dims, info.dims, sizeof(info.dims));
  return TESSERA_OK;
}

tessera_status tessera_session_reset(tessera_session* session, tessera_error* error) {
  if (!session) return null_argument("tessera_session_reset", "session", error);
  if (session->running.exchange(true, std::memory_order_acquire))
    return fail(error, kErrSessionBusy, "the session is running; reset it between runs");
  reset_states(session);
  session->running.store(false, std::memory_order_release);
  return TESSERA_OK;
}

tessera_status tessera_module_input(const tessera_module* module, int32_t index, tessera_tensor_info* info) {
  if (!module || !info) return TESSERA_INVALID_ARGUMENT;
  if (module->file.has_values()) return TESSERA_UNSUPPORTED;
  return tensor_info(module->file, module->file.inputs(), module->file.descriptor->num_inputs, index, info);
}

tessera_status tessera_module_output(const tessera_module* module, int32_t index, tessera_tensor_info* info) {
  if (!module || !info) return TESSERA_INVALID_ARGUMENT;
  if (module->file.has_values()) return TESSERA_UNSUPPORTED;
  const ModuleFile& file = module->file;
  const tessera_status status = tensor_info(file, file.outputs(), file.descriptor->num_outputs, index, info);
  for (uint32_t i = 0; status == TESSERA_OK && i < file.descriptor->num_decided; ++i) {
    const tsr_decided_descr& dim = file.decided()[i];
    if (dim.output == static_cast<uint32_t>(index)) info->dims[dim.axis] = -static_cast<int64_t>(dim.size) - 1;
  }
  return status;
}

int32_t tessera_module_decides_shapes(const tessera_module* module) {
  return module && module->file.descriptor->num_decided > 0 ? 1 : 0;
}

int32_t tessera_module_has_values(const tessera_module* module) { return module && module->file.has_values() ? 1 : 0; }

tessera_status tessera_module_input_value(const tessera_module* module, int32_t index, tessera_value_info* info) {
  if (!module || !info) return TESSERA_INVALID_ARGUMENT;
  const ModuleFile& file = module->file;
  return file.has_values() ? value_info(file, file.value_inputs(), file.descriptor->num_value_inputs, index, info)
                           : value_info(file, file.inputs(), file.descriptor->num_inputs, index, info);
}

tessera_status tessera_module_output_value(const tessera_module* module, int32_t index, tessera_value_info* info) {
  if (!module || !info) return TESSERA_INVALID_ARGUMENT;
  const ModuleFile& file = module->file;
  return file.has_values() ? value_info(file, file.value_outputs(), file.descriptor->num_value_outputs, index, info)
                           : decided_value_info(file, index, info);
}

tessera_status tessera_module_symbol(const tessera_module* module, int32_t index, tessera_symbol_info* info) {
  if (!module || !info) return TESSERA_INVALID_ARGUMENT;
  if (index < 0 || index >= tessera_module_num_symbols(module)) return TESSERA_NOT_FOUND;
  const tsr_symbol_descr& symbol = module->file.symbols()[index];
  *info = {module->file.text(symbol.name), symbol.lo, symbol.hi, symbol.step < 2 ? 1 : int64_t{symbol.step}};
  return TESSERA_OK;
}

tessera_status tessera_module_kernel(const tessera_module* module, int32_t index, tessera_kernel_info* info) {
  if (!module || !info) return TESSERA_INVALID_ARGUMENT;
  if (index < 0 || index >= tessera_module_num_kernels(module)) return TESSERA_NOT_FOUND;
  const tsr_kernel_descr& kernel = module->file.kernels()[index];
  *info = {module->file.text(kernel.name), kernel.flops, kernel.bytes};
  return TESSERA_OK;
}

int32_t tessera_module_writes_in_place(const tessera_module* module, int32_t output, int32_t input) {
  if (!module || output < 0 || input < 0) return 0;
  return module->file.may_alias(static_cast<uint32_t>(output), static_cast<uint32_t>(input)) ? 1 : 0;
}

uint64_t tessera_module_arena_bytes(const tessera_module* module) {
  return module ? module->file.descriptor->arena_bytes : 0;
}

uint64_t tessera_module_weights_bytes(const tessera_module* module) {
  return module ? module->file.footer.weights_size : 0;
}

const char* tessera_module_metadata(const tessera_module* module, size_t* size) {
  if (size) *size = module ? module->file.footer.metadata_size : 0;
  return module ? module->file.metadata() : nullptr;
}

const void* tessera_module_contents(const tessera_module* module, size_t* size) {
  if (size) *size = module ? static_cast<size_t>(module->file.size) : 0;
  return module ? module->file.data : nullptr;
}

tessera_status tessera_session_create(const tessera_module* module, const tessera_session_options* options,
                                      tessera_session** session, tessera_error* error) {
  if (!module) return null_argument("tessera_session_create", "module", error);
  if (!session) return null_argument("tessera_session_create", "session", error);
  if (options && options->size < sizeof(tessera_session_options)) {
    return fail(error, kErrOptionsSize,
                "the session options say they have %u bytes; set size to "
                "sizeof(tessera_session_options), at least %zu",
                options->size, sizeof(tessera_session_options));
  }
  return create_session(module, options ? options->num_threads : 0, session, error);
}

void tessera_session_free(tessera_session* session) {
  if (session) free_session(session);
}

int32_t tessera_session_num_threads(const tessera_session* session) { return session ? session->num_threads : 0; }

tessera_status tessera_session_run(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                                   const tessera_tensor* outputs, int32_t num_outputs, tessera_error* error) {
  if (!session) return null_argument("tessera_session_run", "session", error);
  if (!inputs && num_inputs > 0) return null_argument("tessera_session_run", "inputs", error);
  if (!outputs && num_outputs > 0) return null_argument("tessera_session_run", "outputs", error);
  return run_session(session, inputs, num_inputs, outputs, num_outputs, error);
}

tessera_status tessera_session_prepare(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                                       tessera_error* error) {
  if (!session) return null_argument("tessera_session_prepare", "session", error);
  if (!inputs && num_inputs > 0) return null_argument("tessera_session_prepare", "inputs", error);
  return prepare_session(session, inputs, num_inputs, error);
}

tessera_status tessera_session_output(const tessera_session* session, int32_t index, tessera_tensor_info* info) {
  if (!session || !info) return TESSERA_INVALID_ARGUMENT;
  if (session->module->file.has_values()) return TESSERA_UNSUPPORTED;
  const ModuleFile& file = session->module->file;
  const tessera_status status = tensor_info(file, file.outputs(), file.descriptor->num_outputs, index, info);
  if (status != TESSERA_OK) return status;
  const int64_t num_symbols = file.descriptor->num_symbols;
  for (int32_t axis = 0; axis < info->rank; ++axis) {
    const int64_t size = -(info->dims[axis] + 1);
    if (size < 0) continue;
    if (!session->sizes_known) return TESSERA_INVALID_ARGUMENT;
    info->dims[axis] = size < num_symbols ? session->prepared_symbols[size] : session->bound.symbols[size];
  }
  for (uint32_t i = 0; session->sizes_decided && i < file.descriptor->num_decided; ++i) {
    const tsr_decided_descr& dim = file.decided()[i];
    if (dim.output == static_cast<uint32_t>(index)) info->dims[dim.axis] = session->bound.symbols[dim.size];
  }
  return TESSERA_OK;
}

uint64_t tessera_session_arena_bytes(const tessera_session* session) { return session ? session->arena_bytes : 0; }

tessera_status tessera_session_run_values(tessera_session* session, const tessera_value* const* inputs,
                                          int32_t num_inputs, tessera_value** outputs, int32_t num_outputs,
                                          const tessera_allocator* allocator, tessera_error* error) {
  if (!session) return null_argument("tessera_session_run_values", "session", error);
  if (!inputs && num_inputs > 0) return null_argument("tessera_session_run_values", "inputs", error);
  if (!outputs && num_outputs > 0) return null_argument("tessera_session_run_values", "outputs", error);
  if (allocator && (!allocator->allocate || !allocator->release)) {
    return null_argument("tessera_session_run_values", "a function of the allocator", error);
  }
  return run_values(session, inputs, num_inputs, outputs, num_outputs, allocator, error);
}

// A value is one piece of memory, that of the run's allocator or of malloc (values/transfer.cpp).
void tessera_value_free(tessera_value* value, const tessera_allocator* allocator) {
  if (!value) return;
  if (allocator) allocator->release(allocator->user, value);
  else free(value);
}

void tessera_session_set_trace(tessera_session* session, tessera_trace_fn trace, void* user) {
  if (session) set_session_trace(session, trace, user);
}

void tessera_session_set_device_trace(tessera_session* session, tessera_device_trace_fn trace, void* user) {
  if (session) set_device_trace(session, trace, user);
}

void tessera_session_set_worker_trace(tessera_session* session, tessera_worker_trace_fn trace, void* user) {
  if (session) set_session_worker_trace(session, trace, user);
}

}  // extern "C"
