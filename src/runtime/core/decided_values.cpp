#include "runtime/core/decided_values.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/core/errors.h"

namespace tessera {

namespace {

constexpr size_t kAlign = 64;

constexpr size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

void* take(const tessera_allocator* allocator, size_t bytes) {
  return allocator ? allocator->allocate(allocator->user, bytes) : malloc(bytes);
}

void give(const tessera_allocator* allocator, void* memory) {
  if (!memory) return;
  if (allocator) allocator->release(allocator->user, memory);
  else free(memory);
}

tessera_status no_memory(tessera_error* error) {
  return fail(error, kErrMemory, "not enough memory for a run: the allocator refused it");
}

// One output in one piece of memory, with room for all that data may decide.
tessera_status make_output(const tessera_session& session, int32_t index, const tessera_allocator* allocator,
                           tessera_tensor* tensor, tessera_value** value, tessera_error* error) {
  tessera_tensor_info info;
  tessera_session_output(&session, index, &info);
  uint64_t bits = static_cast<uint64_t>(module_dtype_bits(static_cast<uint32_t>(info.dtype)));
  bool overflows = false;
  for (int32_t axis = 0; axis < info.rank; ++axis)
    overflows |= __builtin_mul_overflow(bits, static_cast<uint64_t>(info.dims[axis]), &bits);
  uint8_t* memory = overflows ? nullptr
                              : static_cast<uint8_t*>(take(allocator, aligned(sizeof(tessera_value)) + kAlign +
                                                                          static_cast<size_t>((bits + 7) / 8)));
  if (!memory) return no_memory(error);
  *value = reinterpret_cast<tessera_value*>(memory);
  **value = {};
  (*value)->kind = TESSERA_TENSOR;
  (*value)->dtype = info.dtype;
  (*value)->rank = info.rank;
  const uintptr_t elements = aligned(reinterpret_cast<uintptr_t>(memory) + sizeof(tessera_value));
  tensor->data = reinterpret_cast<void*>(elements);
  (*value)->data = tensor->data;
  tensor->dtype = info.dtype;
  tensor->rank = info.rank;
  memcpy(tensor->dims, info.dims, sizeof(tensor->dims));
  return TESSERA_OK;
}

tessera_status take_in(const ModuleFile& file, const tessera_value* const* inputs, tessera_tensor* tensors,
                       tessera_error* error) {
  for (uint32_t i = 0; i < file.descriptor->num_inputs; ++i) {
    uint32_t kind = TESSERA_TENSOR;
    if (inputs[i]) memcpy(&kind, &inputs[i]->kind, sizeof(kind));
    if (!inputs[i] || kind != TESSERA_TENSOR) {
      return fail(error, kErrValueKind, "input '%s' is %s; legal: a tensor",
                  clip_name(file.text(file.inputs()[i].name)).text, inputs[i] ? "no tensor" : "a null pointer");
    }
    tensors[i].data = const_cast<void*>(inputs[i]->data);
    tensors[i].dtype = inputs[i]->dtype;
    tensors[i].rank = inputs[i]->rank;
    memcpy(tensors[i].dims, inputs[i]->dims, sizeof(tensors[i].dims));
  }
  return TESSERA_OK;
}

}  // namespace

tessera_status run_decided_values(tessera_session* session, const tessera_value* const* inputs, tessera_value** outputs,
                                  const tessera_allocator* allocator, tessera_error* error) {
  const ModuleFile& file = session->module->file;
  const uint32_t num_inputs = file.descriptor->num_inputs, num_outputs = file.descriptor->num_outputs;
  for (uint32_t i = 0; i < num_outputs; ++i) outputs[i] = nullptr;
  tessera_tensor* tensors =
      static_cast<tessera_tensor*>(take(allocator, (size_t{num_inputs} + num_outputs) * sizeof(tessera_tensor)));
  if (!tensors) return no_memory(error);
  tessera_tensor* results = tensors + num_inputs;
  tessera_status status = take_in(file, inputs, tensors, error);
  if (status == TESSERA_OK) status = prepare_session(session, tensors, static_cast<int32_t>(num_inputs), error);
  for (uint32_t i = 0; status == TESSERA_OK && i < num_outputs; ++i)
    status = make_output(*session, static_cast<int32_t>(i), allocator, &results[i], &outputs[i], error);
  if (status == TESSERA_OK)
    status = run_session(session, tensors, static_cast<int32_t>(num_inputs), results, static_cast<int32_t>(num_outputs),
                         error);
  for (uint32_t i = 0; i < num_outputs; ++i) {
    if (status == TESSERA_OK) {
      tessera_tensor_info info;
      tessera_session_output(session, static_cast<int32_t>(i), &info);
      memcpy(outputs[i]->dims, info.dims, sizeof(info.dims));
    } else {
      give(allocator, outputs[i]);
      outputs[i] = nullptr;
    }
  }
  give(allocator, tensors);
  return status;
}

}  // namespace tessera
