// The table of functions by which the runtime uses a GPU of CUDA (abi/device_abi.h): the driver's, no run time of
// CUDA's.
//
// TESSERA_CUDA_DEVICE is the number of the GPU, 0 without it. TESSERA_CUDA_GRAPHS=0: launches one by one.
#include "runtime/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda_graphs.h"

namespace tessera {

namespace {

// ---- the device and its memory ----

bool find_gpu(CudaDevice* device, char* message) {
  const CudaLibrary& cuda = *device->cuda;
  const char* wanted = getenv("TESSERA_CUDA_DEVICE");
  const int number = wanted ? atoi(wanted) : 0;
  int count = 0;
  CudaResult answer = cuda.cuInit(0);
  if (answer == 0) answer = cuda.cuDeviceGetCount(&count);
  if (answer != 0) {
    snprintf(message, TSR_DEVICE_MESSAGE, "the driver of CUDA does not begin: %s", cuda_error_name(device, answer));
  } else if (number < 0 || number >= count) {
    snprintf(message, TSR_DEVICE_MESSAGE, "there is no GPU number %d for CUDA; there are %d", number, count);
  } else {
    answer = cuda.cuDeviceGet(&device->id, number);
    if (answer == 0) answer = cuda.cuDevicePrimaryCtxRetain(&device->context, device->id);
    if (answer == 0) return true;
    snprintf(message, TSR_DEVICE_MESSAGE, "GPU %d cannot be used: %s", number, cuda_error_name(device, answer));
  }
  return false;
}

void describe(CudaDevice* device) {
  const CudaLibrary& cuda = *device->cuda;
  cuda.cuDeviceGetName(device->name, sizeof(device->name) - 1, device->id);
  cuda.cuDeviceGetAttribute(&device->max_threads, kMaxThreadsPerBlock, device->id);
  // More than what kernels may declare, where launches ask for it.
  if (cuda.cuDeviceGetAttribute(&device->shared_bytes, kMaxDynamicSharedBytesPerBlock, device->id) != 0 ||
      device->shared_bytes <= 0)
    cuda.cuDeviceGetAttribute(&device->shared_bytes, kMaxSharedBytesPerBlock, device->id);
  cuda.cuDeviceGetAttribute(&device->major, kMajor, device->id);
  cuda.cuDeviceGetAttribute(&device->minor, kMinor, device->id);
}

int32_t open_device(void** result, char* message) {
  const CudaLibrary* cuda = open_cuda(message);
  if (!cuda) return -1;
  auto* device = static_cast<CudaDevice*>(calloc(1, sizeof(CudaDevice)));
  if (!device) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a device");
    return -1;
  }
  device->cuda = cuda;
  if (!find_gpu(device, message)) {
    free(device);
    return -1;
  }
  describe(device);
  *result = device;
  return 0;
}

void close_device(void* argument) {
  auto* device = static_cast<CudaDevice*>(argument);
  device->cuda->cuDevicePrimaryCtxRelease_v2(device->id);
  free(device);
}

// The driver's memory is aligned to 256 bytes at least.
uint8_t* allocate(void* argument, uint64_t bytes) {
  const auto* device = static_cast<CudaDevice*>(argument);
  CudaAddress address = 0;
  if (use_device(device) != 0 || device->cuda->cuMemAlloc_v2(&address, bytes ? bytes : 1) != 0) return nullptr;
  return reinterpret_cast<uint8_t*>(address);
}

void release(void* argument, uint8_t* memory) {
  const auto* device = static_cast<CudaDevice*>(argument);
  if (use_device(device) == 0) device->cuda->cuMemFree_v2(reinterpret_cast<CudaAddress>(memory));
}

// ---- queues ----

struct Queue {
  CudaDevice* device;
  CudaStream stream;
  uint32_t num_tokens;
  bool failed;
  char message[TSR_DEVICE_MESSAGE];
  tsr_operation_trace_fn trace;
  void* trace_user;
  CudaEvent traced[2];  // begin and end of an operation; null before the first trace
  CudaEvent* marks;     // by token
  CudaGraphs graphs;
};

// What has failed first is told by the next wait; nothing happens until then.
int32_t note(Queue* queue, CudaResult answer, const char* what) {
  if (answer != 0 && !queue->failed) {
    queue->failed = true;
    snprintf(queue->message, sizeof(queue->message), "%.100s: %s", what, cuda_error_name(queue->device, answer));
  }
  return 0;
}

// Gives the driver the launches that wait, in front of whatever else is to happen; none behind a failure.
CudaResult launch_waiting(Queue* queue) {
  if (queue->failed) drop_calls(&queue->graphs);
  const CudaOperation* failed = nullptr;
  CudaResult answer = use_device(queue->device);
  if (answer == 0 && queue->graphs.waiting.count > 0)
    answer = run_calls(&queue->graphs, queue->device, queue->stream, &failed);
  note(queue, answer, failed ? failed->row.entry : "a launch");
  return answer;
}

void close_queue(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  const CudaLibrary& cuda = *queue->device->cuda;
  use_device(queue->device);
  if (queue->stream) cuda.cuStreamSynchronize(queue->stream);
  close_graphs(&queue->graphs, queue->device);
  for (uint32_t i = 0; i < queue->num_tokens; ++i)
    if (queue->marks[i]) cuda.cuEventDestroy_v2(queue->marks[i]);
  for (CudaEvent event : queue->traced)
    if (event) cuda.cuEventDestroy_v2(event);
  if (queue->stream) cuda.cuStreamDestroy_v2(queue->stream);
  free(queue);
}

int32_t open_queue(void* argument, uint32_t num_tokens, uint64_t, void** result, char* message) {
  auto* device = static_cast<CudaDevice*>(argument);
  auto* queue = static_cast<Queue*>(calloc(1, sizeof(Queue) + num_tokens * sizeof(CudaEvent)));
  if (!queue) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a queue");
    return -1;
  }
  queue->device = device;
  queue->num_tokens = num_tokens;
  queue->marks = reinterpret_cast<CudaEvent*>(queue + 1);
  const char* graphs = getenv("TESSERA_CUDA_GRAPHS");
  queue->graphs.are_off = graphs && strcmp(graphs, "0") == 0;
  CudaResult answer = use_device(device);
  if (answer == 0) answer = device->cuda->cuStreamCreate(&queue->stream, kNonBlocking);
  for (uint32_t i = 0; i < num_tokens && answer == 0; ++i)
    answer = device->cuda->cuEventCreate(&queue->marks[i], kNoTiming);
  if (answer == 0) {
    *result = queue;
    return 0;
  }
  snprintf(message, TSR_DEVICE_MESSAGE, "'%s' has no stream: %s", device->name, cuda_error_name(device, answer));
  close_queue(queue);
  return -1;
}

// Waits for an operation whose begin is recorded, and tells how long the device says that it took.
CudaResult tell(Queue* queue, const CudaOperation* operation) {
  const CudaLibrary& cuda = *queue->device->cuda;
  float milliseconds = 0;
  CudaResult answer = cuda.cuEventRecord(queue->traced[1], queue->stream);
  if (answer == 0) answer = cuda.cuEventSynchronize(queue->traced[1]);
  if (answer == 0) answer = cuda.cuEventElapsedTime(&milliseconds, queue->traced[0], queue->traced[1]);
  const int64_t end = tsr_trace_clock();
  if (answer == 0)
    queue->trace(queue->trace_user, operation->row.entry, end - static_cast<int64_t>(milliseconds * 1e6F), end);
  return answer;
}

int32_t start(void* argument, void* of, void* const* args, uint32_t num_args, const int64_t* sizes,
              uint32_t num_sizes) {
  auto* queue = static_cast<Queue*>(argument);
  const auto* operation = static_cast<const CudaOperation*>(of);
  if (queue->failed) return 0;
  constexpr CudaResult kInvalidValue = 1, kOutOfMemory = 2;
  if (num_args != operation->row.num_args || num_sizes != operation->row.num_sizes ||
      uint64_t{num_args} + num_sizes > kMostParameters)
    return note(queue, kInvalidValue, operation->row.entry);
  uint64_t values[kMostParameters];
  for (uint32_t i = 0; i < num_args; ++i) values[i] = reinterpret_cast<uint64_t>(args[i]);
  for (uint32_t i = 0; i < num_sizes; ++i) values[num_args + i] = static_cast<uint64_t>(sizes[i]);
  const CudaLibrary& cuda = *queue->device->cuda;
  CudaResult answer = 0;
  if (queue->trace) {
    if (launch_waiting(queue) != 0) return 0;
    answer = cuda.cuEventRecord(queue->traced[0], queue->stream);
  }
  for (uint32_t i = 0; i < operation->row.num_launches && answer == 0; ++i) {
    const CudaLaunch& launch = operation->image->launches[operation->first_launch + i];
    int64_t count[3];
    if (!tsr_count_grid(launch.blocks, sizes, num_sizes, count) || count[0] > INT32_MAX || count[1] > INT32_MAX ||
        count[2] > INT32_MAX)
      return note(queue, kInvalidValue, operation->row.entry);
    if (count[0] == 0 || count[1] == 0 || count[2] == 0) continue;
    const unsigned blocks[3] = {static_cast<unsigned>(count[0]), static_cast<unsigned>(count[1]),
                                static_cast<unsigned>(count[2])};
    if (!add_call(&queue->graphs, operation, &launch, blocks, values, num_args + num_sizes))
      return note(queue, kOutOfMemory, operation->row.entry);
  }
  if (!queue->trace) return note(queue, answer, operation->row.entry);
  if (answer == 0 && launch_waiting(queue) != 0) return 0;
  if (answer == 0) answer = tell(queue, operation);
  return note(queue, answer, operation->row.entry);
}

int32_t copy(void* argument, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device) {
  auto* queue = static_cast<Queue*>(argument);
  if (queue->failed || bytes == 0) return 0;
  const CudaLibrary& cuda = *queue->device->cuda;
  const auto address = reinterpret_cast<CudaAddress>(device_memory);
  CudaResult answer = launch_waiting(queue);
  if (answer == 0)
    answer = to_device ? cuda.cuMemcpyHtoDAsync_v2(address, host_memory, bytes, queue->stream)
                       : cuda.cuMemcpyDtoHAsync_v2(host_memory, address, bytes, queue->stream);
  return note(queue, answer, to_device ? "a copy to the device" : "a copy to the host");
}

int32_t mark(void* argument, uint32_t token) {
  auto* queue = static_cast<Queue*>(argument);
  CudaResult answer = launch_waiting(queue);
  if (answer == 0) answer = queue->device->cuda->cuEventRecord(queue->marks[token], queue->stream);
  return note(queue, answer, "a mark");
}

int32_t wait(void* argument, uint32_t token, char* message) {
  auto* queue = static_cast<Queue*>(argument);
  CudaResult answer = use_device(queue->device);
  if (answer == 0) answer = queue->device->cuda->cuEventSynchronize(queue->marks[token]);
  note(queue, answer, "a kernel");
  if (!queue->failed) return 0;
  queue->failed = false;
  memcpy(message, queue->message, sizeof(queue->message));
  return -1;
}

void drain(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  if (launch_waiting(queue) == 0) queue->device->cuda->cuStreamSynchronize(queue->stream);
  queue->failed = false;
}

void set_trace(void* argument, tsr_operation_trace_fn trace, void* user) {
  auto* queue = static_cast<Queue*>(argument);
  const CudaLibrary& cuda = *queue->device->cuda;
  CudaResult answer = use_device(queue->device);
  for (CudaEvent& event : queue->traced)
    if (trace && !event && answer == 0) answer = cuda.cuEventCreate(&event, kWithTiming);
  queue->trace = answer == 0 ? trace : nullptr;
  queue->trace_user = user;
}

}  // namespace

CudaResult use_device(const CudaDevice* device) { return device->cuda->cuCtxSetCurrent(device->context); }

const char* cuda_error_name(const CudaDevice* device, CudaResult result) {
  const char* name = nullptr;
  if (device->cuda->cuGetErrorName(result, &name) == 0 && name) return name;
  static thread_local char number[24];
  snprintf(number, sizeof(number), "error %d", result);
  return number;
}

}  // namespace tessera

extern "C" __attribute__((visibility("default"))) const tsr_device_functions tessera_device_cuda;
extern "C" const tsr_device_functions tessera_device_cuda = {sizeof(tsr_device_functions),
                                                             TSR_DEVICE_ABI_VERSION,
                                                             tessera::open_device,
                                                             tessera::close_device,
                                                             tessera::allocate,
                                                             tessera::release,
                                                             tessera::load_image,
                                                             tessera::unload_image,
                                                             tessera::find_operation,
                                                             tessera::open_queue,
                                                             tessera::close_queue,
                                                             tessera::start,
                                                             tessera::copy,
                                                             tessera::mark,
                                                             tessera::wait,
                                                             tessera::drain,
                                                             tessera::set_trace};
