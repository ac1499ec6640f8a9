#include "runtime/core/session_states.h"

#include <stdlib.h>
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

bool lies_in_states(const tessera_session& session, const tessera_tensor& tensor) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(session.states.data),
                  first = reinterpret_cast<uintptr_t>(tensor.data);
  const uint64_t bytes = bytes_of(tensor);
  return bytes != 0 && first < begin + session.state_bytes && first + bytes > begin;
}

tessera_status check_apart(const tessera_session& session, const char* kind, const tsr_tensor_descr& row,
                           const tessera_tensor& tensor, tessera_error* error) {
  if (!lies_in_states(session, tensor) && !(session.shares && lies_in_states(*session.shares, tensor)))
    return TESSERA_OK;
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
    if (session->shared && session->shared[i] != UINT32_MAX) continue;  // they are another session's
    void* const data = state_data(*session, i);
    if (state.initial == TSR_NO_INITIAL) memset(data, 0, bytes_of(state));
    else memcpy(data, file.weights() + state.initial, bytes_of(state));
  }
  session->states_are_void = false;
}

namespace {

// The state of this name; UINT32_MAX: there is none.
uint32_t state_named(const ModuleFile& file, const char* name) {
  for (uint32_t i = 0; i < file.descriptor->num_states; ++i)
    if (strcmp(file.text(file.states()[i].tensor.name), name) == 0) return i;
  return UINT32_MAX;
}

bool have_one_type(const tsr_tensor_descr& a, const tsr_tensor_descr& b) {
  return a.dtype == b.dtype && a.rank == b.rank && memcmp(a.dims, b.dims, a.rank * sizeof(a.dims[0])) == 0;
}

}  // namespace

tessera_status share_states(tessera_session* session, const tessera_session* owner, tessera_error* error) {
  const ModuleFile &file = session->module->file, &other = owner->module->file;
  const uint32_t count = file.descriptor->num_states;
  if (session == owner || owner->shares || session->shares)
    return fail(error, kErrShare, "'%s': a session shares the states of one other session that has its own", file.name);
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const tsr_state_descr& state = file.states()[i];
    const uint32_t there = state_named(other, file.text(state.tensor.name));
    if (there == UINT32_MAX) continue;
    ++found;
    if (!state.in_place || !have_one_type(state.tensor, other.states()[there].tensor)) {
      return fail(error, kErrShare, "state '%s' of '%s' cannot be that of '%s': %s",
                  clip_name(file.text(state.tensor.name)).text, file.name, other.name,
                  state.in_place ? "their types differ" : "its module does not keep it in one place");
    }
  }
  if (found == 0) return fail(error, kErrShare, "'%s' and '%s' have no state of the same name", file.name, other.name);
  uint32_t* const shared = static_cast<uint32_t*>(malloc(count * sizeof(uint32_t)));
  if (!shared) return fail(error, kErrMemory, "not enough memory to share %u states", count);
  for (uint32_t i = 0; i < count; ++i) shared[i] = state_named(other, file.text(file.states()[i].tensor.name));
  session->shared = shared;
  session->shares = owner;
  if (found == count) {  // none has its own memory any more
    session->states.unmap();
    session->state_bytes = 0;
  }
  session->states_are_void = false;
  for (uint32_t i = 0; i < count; ++i)
    if (shared[i] != UINT32_MAX) before(*session)[i] = after(*session)[i] = state_data(*owner, shared[i]);
  return TESSERA_OK;
}

tessera_status check_states(tessera_session& session, const tessera_tensor* inputs, const tessera_tensor* outputs,
                            tessera_error* error) {
  const ModuleFile& file = session.module->file;
  const tsr_descriptor& descriptor = *file.descriptor;
  if (descriptor.num_states == 0) return TESSERA_OK;
  for (uint32_t i = 0; session.shares && i < descriptor.num_states; ++i)
    if (session.shared[i] != UINT32_MAX)
      before(session)[i] = after(session)[i] = state_data(*session.shares, session.shared[i]);
  if (session.states_are_void || (session.shares && session.shares->states_are_void)) {
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

void* state_data(const tessera_session& session, uint32_t index) {
  if (session.shares && session.shared[index] != UINT32_MAX) return state_data(*session.shares, session.shared[index]);
  return const_cast<void*>(before(session)[index]);
}

}  // namespace tessera
