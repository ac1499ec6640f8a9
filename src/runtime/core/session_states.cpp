#include "runtime/core/session_states.h"

#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/core/errors.h"

namespace tessera {

namespace {

uint64_t bytes_of(const tsr_state_descr& state) {  // the descriptor was checked: no overflow
  uint64_t bits = static_cast<uint64_t>(module_dtype_bits(state.tensor.dtype));
  for (uint32_t axis = 0; axis < state.tensor.rank; ++axis) bits *= static_cast<uint64_t>(state.tensor.dims[axis]);
  return (bits + 7) / 8;
}

uint64_t aligned_bytes_of(const tsr_state_descr& state) {
  return (bytes_of(state) + TSR_BUFFER_ALIGN - 1) / TSR_BUFFER_ALIGN * TSR_BUFFER_ALIGN;
}

// Where the run reads and writes the states: behind the module's own inputs and outputs.
const void** before(const tessera_session& session) {
  return session.bound.inputs + session.module->file.descriptor->num_inputs;
}
void** after(const tessera_session& session) {
  return session.bound.outputs + session.module->file.descriptor->num_outputs;
}

uint64_t bytes_of(const tessera_tensor& tensor) {  // checked against its declaration: no overflow
  uint64_t bits = static_cast<uint64_t>(module_dtype_bits(static_cast<uint32_t>(tensor.dtype)));
  for (int32_t axis = 0; axis < tensor.rank; ++axis) bits *= static_cast<uint64_t>(tensor.dims[axis]);
  return (bits + 7) / 8;
}

tessera_status check_apart(const tessera_session& session, const char* kind, const tsr_tensor_descr& row,
                           const tessera_tensor& tensor, tessera_error* error) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(session.states.data),
                  first = reinterpret_cast<uintptr_t>(tensor.data);
  const uint64_t bytes = bytes_of(tensor);
  if (bytes == 0 || first >= begin + session.state_bytes || first + bytes <= begin) return TESSERA_OK;
  return fail(error, kErrTensorOverlap, "%s '%s' shares memory with the states of the session; copy the state first",
              kind, clip_name(session.module->file.text(row.name)).text);
}

}  // namespace

tessera_status create_states(tessera_session* session, tessera_error* error) {
  const ModuleFile& file = session->module->file;
  const uint32_t count = file.descriptor->num_states;
  if (count == 0) return TESSERA_OK;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const tsr_state_descr& state = file.states()[i];
    const uint64_t bytes = aligned_bytes_of(state);
    if (bytes > INT64_MAX / 2 || __builtin_add_overflow(total, state.in_place ? bytes : 2 * bytes, &total))
      total = UINT64_MAX;
  }
  if (!session->states.map(total)) {
    return fail(error, kErrMemory, "not enough memory for a session: its states need %llu bytes; free memory",
                static_cast<unsigned long long>(total));
  }
  session->state_bytes = total;
  uint8_t* next = session->states.data;
  for (uint32_t i = 0; i < count; ++i) {
    const tsr_state_descr& state = file.states()[i];
    const uint64_t bytes = aligned_bytes_of(state);
    before(*session)[i] = next;
    if (!state.in_place) next += bytes;
    after(*session)[i] = next;
    next += bytes;
  }
  reset_states(session);
  return TESSERA_OK;
}

void reset_states(tessera_session* session) {
  const ModuleFile& file = session->module->file;
  for (uint32_t i = 0; i < file.descriptor->num_states; ++i) {
    const tsr_state_descr& state = file.states()[i];
    void* const data = state_data(*session, i);
    if (state.initial == TSR_NO_INITIAL) memset(data, 0, bytes_of(state));
    else memcpy(data, file.weights() + state.initial, bytes_of(state));
  }
  session->states_are_void = false;
}

tessera_status check_states(const tessera_session& session, const tessera_tensor* inputs, const tessera_tensor* outputs,
                            tessera_error* error) {
  const ModuleFile& file = session.module->file;
  const tsr_descriptor& descriptor = *file.descriptor;
  if (descriptor.num_states == 0) return TESSERA_OK;
  if (session.states_are_void) {
    return fail(error, kErrStatesVoid,
                "the states of the session hold nothing, because a run of '%s' failed while it wrote them; call "
                "tessera_session_reset first",
                file.name);
  }
  tessera_status status = TESSERA_OK;
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor.num_inputs; ++i)
    status = check_apart(session, "input", file.inputs()[i], inputs[i], error);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor.num_outputs; ++i)
    status = check_apart(session, "output", file.outputs()[i], outputs[i], error);
  return status;
}

void finish_states(tessera_session* session, bool succeeded) {
  const ModuleFile& file = session->module->file;
  for (uint32_t i = 0; i < file.descriptor->num_states; ++i) {
    if (!succeeded) {
      session->states_are_void |= file.states()[i].in_place != 0;
      continue;
    }
    const void* const old = before(*session)[i];
    before(*session)[i] = after(*session)[i];
    after(*session)[i] = const_cast<void*>(old);
  }
}

void* state_data(const tessera_session& session, uint32_t index) { return const_cast<void*>(before(session)[index]); }

}  // namespace tessera
