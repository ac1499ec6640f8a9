#include "runtime/process/process_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/process/command_queue.h"

namespace tessera {

namespace {

// No address of a process begins with these bits: who follows one of the device's stops there.
constexpr uint64_t kDeviceBit = uint64_t{1} << 62;
constexpr uint64_t kMemoryAlign = 256;

uint8_t* to_device_address(uint8_t* memory) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(memory) | kDeviceBit);
}
uint8_t* from_device_address(void* address) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(address) & ~kDeviceBit);
}

// ---- the device and its memory ----

}  // namespace

int32_t process_open(void** device, char*) {
  static int nothing;  // to remember
  *device = &nothing;
  return 0;
}

void process_close(void*) {}

uint8_t* process_allocate(void*, uint64_t bytes) {
  if (bytes > UINT64_MAX - kMemoryAlign) return nullptr;
  const uint64_t rounded = (bytes + kMemoryAlign) / kMemoryAlign * kMemoryAlign;
  auto* memory = static_cast<uint8_t*>(aligned_alloc(kMemoryAlign, rounded));
  return memory ? to_device_address(memory) : nullptr;
}

void process_release(void*, uint8_t* memory) { free(from_device_address(memory)); }

// ---- code ----

int32_t process_load_code(const void* image, uint64_t size, ProcessCode* code, char* message) {
  const int fd = memfd_create("tessera-device", MFD_CLOEXEC);
  const auto* bytes = static_cast<const uint8_t*>(image);
  bool written = fd >= 0;
  for (uint64_t done = 0; written && done < size;) {
    const ssize_t count = write(fd, bytes + done, size - done);
    written = count > 0;
    if (written) done += static_cast<uint64_t>(count);
  }
  if (written) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
      *code = {handle, fd};
      return 0;
    }
  }
  if (!written) snprintf(message, TSR_DEVICE_MESSAGE, "the image cannot be written to a file in memory");
  else snprintf(message, TSR_DEVICE_MESSAGE, "%s", dlerror());
  if (fd >= 0) close(fd);
  return -1;
}

void process_unload_code(const ProcessCode& code) {
  dlclose(code.handle);
  close(code.fd);
}

// ---- queues ----

namespace {

constexpr uint32_t kSlots = 48;  // of an operation's arguments and sizes; one with more waits until it may run

struct Command {
  enum Kind : uint8_t { kStart, kCopy, kEnd } kind;
  bool to_device;
  const ProcessOperation* operation;
  uint8_t *device_memory, *host_memory;
  uint64_t bytes;
  void* slots[kSlots + 1];
};

}  // namespace

struct ProcessQueue : CommandQueue<Command> {
  const ProcessKind* kind = nullptr;
  uint64_t operations = 0, failing = 0;  // that were run; the one that is to fail, from 1
  void* scratch = nullptr;
};

namespace {

using Queue = ProcessQueue;

int32_t run(Queue* queue, const ProcessOperation* operation, void** slots) {
  if (++queue->operations == queue->failing) return -1;
  const int64_t begin = queue->trace ? tsr_trace_clock() : 0;
  if (const int32_t answer = queue->kind->run(operation, slots, queue->scratch); answer < 0) return answer;
  if (queue->trace) queue->trace(queue->trace_user, operation->name, begin, tsr_trace_clock());
  return 0;
}

int32_t execute(Queue* queue, Command& command) {
  if (command.kind == Command::kStart) return run(queue, command.operation, command.slots);
  memcpy(command.to_device ? command.device_memory : command.host_memory,
         command.to_device ? command.host_memory : command.device_memory, command.bytes);
  return 0;
}

void* work(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  pthread_mutex_lock(&queue->mutex);
  while (true) {
    while (queue->done == queue->given) pthread_cond_wait(&queue->changed, &queue->mutex);
    Command& command = queue->ring[queue->done % Queue::kRoom];
    if (command.kind == Command::kEnd) break;
    const bool runs = queue->failed == 0;  // after a failure nothing happens until somebody has heard of it
    pthread_mutex_unlock(&queue->mutex);
    const int32_t answer = runs ? execute(queue, command) : 0;
    pthread_mutex_lock(&queue->mutex);
    if (answer < 0) queue->failed = answer;
    ++queue->done;
    pthread_cond_broadcast(&queue->changed);
  }
  pthread_mutex_unlock(&queue->mutex);
  return nullptr;
}

void free_all(Queue* queue) {
  free(queue->scratch);
  free_queue(queue);
}

}  // namespace

int32_t process_open_queue(const ProcessKind* kind, uint32_t num_tokens, uint64_t scratch_bytes, void** result,
                           char* message) {
  auto* queue = new_queue<Queue>(num_tokens);
  if (queue) {
    queue->kind = kind;
    const uint64_t rounded =
        scratch_bytes > INT64_MAX ? UINT64_MAX : (scratch_bytes + kMemoryAlign) & ~(kMemoryAlign - 1);
    queue->scratch = rounded == UINT64_MAX ? nullptr : aligned_alloc(kMemoryAlign, rounded);
    const char* failing = getenv(kind->failing);
    queue->failing = failing ? strtoull(failing, nullptr, 10) : 0;
  }
  if (!queue || !queue->scratch) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a queue with %llu bytes of scratch",
             static_cast<unsigned long long>(scratch_bytes));
    if (queue) free_all(queue);
    return -1;
  }
  if (start_thread(queue, work, message) < 0) {
    free_all(queue);
    return -1;
  }
  *result = queue;
  return 0;
}

void process_close_queue(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  queue->next_command().kind = Command::kEnd;
  queue->end_command();
  pthread_join(queue->thread, nullptr);
  free_all(queue);
}

int32_t process_start(void* argument, void* operation, void* const* args, uint32_t num_args, const int64_t* sizes,
                      uint32_t num_sizes) {
  auto* queue = static_cast<Queue*>(argument);
  const auto fill = [&](void** slots) {
    for (uint32_t i = 0; i < num_args; ++i) slots[i] = from_device_address(args[i]);
    slots[num_args] = queue->scratch;
    memcpy(slots + num_args + 1, sizes, num_sizes * sizeof(int64_t));
  };
  const auto* wanted = static_cast<const ProcessOperation*>(operation);
  if (uint64_t{num_args} + num_sizes > kSlots) {
    auto* slots = static_cast<void**>(malloc((uint64_t{num_args} + num_sizes + 1) * sizeof(void*)));
    if (!slots) return -1;
    fill(slots);
    queue->wait_until(queue->given);
    if (queue->failed == 0 && run(queue, wanted, slots) < 0) queue->failed = -1;
    pthread_mutex_unlock(&queue->mutex);
    free(slots);
    return 0;
  }
  Command& command = queue->next_command();
  command.kind = Command::kStart;
  command.operation = wanted;
  fill(command.slots);
  queue->end_command();
  return 0;
}

int32_t process_copy(void* argument, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device) {
  auto* queue = static_cast<Queue*>(argument);
  Command& command = queue->next_command();
  command.kind = Command::kCopy;
  command.to_device = to_device != 0;
  command.device_memory = from_device_address(device_memory);
  command.host_memory = from_device_address(host_memory);  // or that of another device
  command.bytes = bytes;
  queue->end_command();
  return 0;
}

int32_t process_mark(void* argument, uint32_t token) {
  static_cast<Queue*>(argument)->mark(token);
  return 0;
}

int32_t process_wait(void* argument, uint32_t token, char* message) {
  auto* queue = static_cast<Queue*>(argument);
  queue->wait_until(queue->marks[token]);
  const int32_t failed = queue->failed;
  const uint64_t operation = queue->operations;
  queue->failed = 0;
  pthread_mutex_unlock(&queue->mutex);
  if (failed < 0)
    snprintf(message, TSR_DEVICE_MESSAGE, "operation %llu of its queue failed%s%s%s",
             static_cast<unsigned long long>(operation), operation == queue->failing ? ", as " : "",
             operation == queue->failing ? queue->kind->failing : "", operation == queue->failing ? " says" : "");
  return failed;
}

void process_drain(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  queue->wait_until(queue->given);
  queue->failed = 0;
  pthread_mutex_unlock(&queue->mutex);
}

void process_set_trace(void* argument, tsr_operation_trace_fn trace, void* user) {
  static_cast<Queue*>(argument)->set_trace(trace, user);
}

}  // namespace tessera
