// A device in this process: memory under other addresses, which the host cannot follow, and a thread for each queue.
// What an operation is, the kind of device says.
#pragma once

#include <stdint.h>

#include "abi/device_abi.h"

namespace tessera {

struct ProcessQueue;

// An entry of an image that somebody has asked for.
struct ProcessOperation {
  ProcessOperation* next = nullptr;
  char* name = nullptr;  // its own
};

// What a kind of device does. Functions may use `memory` of the queue, which `open_queue` has made with them.
struct ProcessKind {
  // Runs on the queue's thread; negative when it fails, with nothing said.
  int32_t (*run)(const ProcessOperation* operation, void** slots, void* scratch);
  const char* failing;  // the variable that says which operation is to fail
};

int32_t process_open(void** device, char* message);
void process_close(void* device);
uint8_t* process_allocate(void* device, uint64_t bytes);
void process_release(void* device, uint8_t* memory);

// A shared object in memory, mapped as long as it is not closed: the number of the file stays taken, as the dynamic
// loader knows libraries by their path.
struct ProcessCode {
  void* handle = nullptr;
  int fd = -1;
};
int32_t process_load_code(const void* image, uint64_t size, ProcessCode* code, char* message);
void process_unload_code(const ProcessCode& code);

int32_t process_open_queue(const ProcessKind* kind, uint32_t num_tokens, uint64_t scratch_bytes, void** queue,
                           char* message);
void process_close_queue(void* queue);
int32_t process_start(void* queue, void* operation, void* const* args, uint32_t num_args, const int64_t* sizes,
                      uint32_t num_sizes);
int32_t process_copy(void* queue, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device);
int32_t process_mark(void* queue, uint32_t token);
int32_t process_wait(void* queue, uint32_t token, char* message);
void process_drain(void* queue);
void process_set_trace(void* queue, tsr_operation_trace_fn trace, void* user);

// The functions of a kind of device, of which its images and the making of its queues are its own.
constexpr tsr_device_functions process_functions(decltype(tsr_device_functions::load) load,
                                                 decltype(tsr_device_functions::unload) unload,
                                                 decltype(tsr_device_functions::find) find,
                                                 decltype(tsr_device_functions::open_queue) open_queue) {
  return {sizeof(tsr_device_functions),
          TSR_DEVICE_ABI_VERSION,
          process_open,
          process_close,
          process_allocate,
          process_release,
          load,
          unload,
          find,
          open_queue,
          process_close_queue,
          process_start,
          process_copy,
          process_mark,
          process_wait,
          process_drain,
          process_set_trace};
}

}  // namespace tessera
