// The table of functions by which the runtime uses an OpenCL device (abi/device_abi.h).
//
// TESSERA_OPENCL_DEVICE chooses among several: a part of the device's name. The first GPU otherwise, or the first
// device.
#include "runtime/opencl/opencl_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace tessera {

namespace {

constexpr cl_uint kMostPlatforms = 16, kMostDevices = 32;

// ---- the device and its memory ----

struct Search {
  cl_device_id found;
  bool is_gpu;
  char names[100];  // of all, for a message
};

void search_platform(const OpenClLibrary& cl, cl_platform_id platform, const char* wanted, Search* search) {
  cl_device_id devices[kMostDevices];
  cl_uint count = 0;
  if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, kMostDevices, devices, &count) != CL_SUCCESS) return;
  for (cl_uint i = 0; i < count && i < kMostDevices; ++i) {
    char name[256] = {};
    cl_device_type type = 0;
    cl.clGetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof(name) - 1, name, nullptr);
    cl.clGetDeviceInfo(devices[i], CL_DEVICE_TYPE, sizeof(type), &type, nullptr);
    const size_t used = strlen(search->names);
    snprintf(search->names + used, sizeof(search->names) - used, "%s'%s'", used ? ", " : "", name);
    if (wanted && !strstr(name, wanted)) continue;
    const bool is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    if (search->found && (search->is_gpu || !is_gpu)) continue;
    search->found = devices[i];
    search->is_gpu = is_gpu;
  }
}

bool find_device(const OpenClLibrary& cl, cl_device_id* id, char* message) {
  const char* wanted = getenv("TESSERA_OPENCL_DEVICE");
  cl_platform_id platforms[kMostPlatforms];
  cl_uint count = 0;
  Search search = {};
  if (cl.clGetPlatformIDs(kMostPlatforms, platforms, &count) == CL_SUCCESS)
    for (cl_uint i = 0; i < count && i < kMostPlatforms; ++i) search_platform(cl, platforms[i], wanted, &search);
  *id = search.found;
  if (search.found) return true;
  if (search.names[0])
    snprintf(message, TSR_DEVICE_MESSAGE, "no OpenCL device is called '%.30s'; there are %s", wanted, search.names);
  else snprintf(message, TSR_DEVICE_MESSAGE, "OpenCL has no device on this machine; install a driver, or PoCL");
  return false;
}

void describe(OpenClDevice* device) {
  const auto ask = [&](cl_device_info what, auto* answer) {
    device->cl->clGetDeviceInfo(device->id, what, sizeof(*answer), answer, nullptr);
  };
  device->cl->clGetDeviceInfo(device->id, CL_DEVICE_NAME, sizeof(device->name) - 1, device->name, nullptr);
  ask(CL_DEVICE_MAX_MEM_ALLOC_SIZE, &device->max_allocation);
  ask(CL_DEVICE_LOCAL_MEM_SIZE, &device->local_bytes);
  ask(CL_DEVICE_MAX_WORK_GROUP_SIZE, &device->max_threads);
  cl_device_fp_config singles = 0, doubles = 0;
  ask(CL_DEVICE_SINGLE_FP_CONFIG, &singles);
  ask(CL_DEVICE_DOUBLE_FP_CONFIG, &doubles);
  device->divides_exactly = (singles & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  device->has_doubles = doubles != 0;
}

int32_t open_device(void** result, char* message) {
  const OpenClLibrary* cl = open_opencl(message);
  if (!cl) return -1;
  auto* device = static_cast<OpenClDevice*>(calloc(1, sizeof(OpenClDevice)));
  if (!device) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a device");
    return -1;
  }
  device->cl = cl;
  cl_int answer = CL_SUCCESS;
  if (find_device(*cl, &device->id, message)) {
    describe(device);
    device->context = cl->clCreateContext(nullptr, 1, &device->id, nullptr, nullptr, &answer);
    if (!device->context)
      snprintf(message, TSR_DEVICE_MESSAGE, "'%s' has no context: %s", device->name, opencl_error_name(answer));
  }
  if (!device->context) {
    free(device);
    return -1;
  }
  pthread_mutex_init(&device->mutex, nullptr);
  *result = device;
  return 0;
}

void close_device(void* argument) {
  auto* device = static_cast<OpenClDevice*>(argument);
  device->cl->clReleaseContext(device->context);
  pthread_mutex_destroy(&device->mutex);
  free(device);
}

uint8_t* allocate(void* argument, uint64_t bytes) {
  auto* device = static_cast<OpenClDevice*>(argument);
  if (bytes > device->max_allocation || bytes >> kAllocationShift != 0) return nullptr;
  cl_int answer = CL_SUCCESS;
  cl_mem memory = device->cl->clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes ? bytes : 1, nullptr, &answer);
  if (!memory) return nullptr;
  pthread_mutex_lock(&device->mutex);
  uint32_t number = 0;
  while (number < kMostAllocations && device->memory[number]) ++number;
  if (number < kMostAllocations) device->memory[number] = memory;
  pthread_mutex_unlock(&device->mutex);
  if (number < kMostAllocations) return reinterpret_cast<uint8_t*>((uint64_t{number} + 1) << kAllocationShift);
  device->cl->clReleaseMemObject(memory);
  return nullptr;
}

void release(void* argument, uint8_t* address) {
  auto* device = static_cast<OpenClDevice*>(argument);
  const OpenClPlace place = place_of(device, address);
  if (!place.memory) return;
  pthread_mutex_lock(&device->mutex);
  device->memory[(reinterpret_cast<uint64_t>(address) >> kAllocationShift) - 1] = nullptr;
  pthread_mutex_unlock(&device->mutex);
  device->cl->clReleaseMemObject(place.memory);
}

// ---- queues ----

struct Queue {
  OpenClDevice* device;
  cl_command_queue commands;
  uint32_t num_tokens;
  bool failed;
  char message[TSR_DEVICE_MESSAGE];
  tsr_operation_trace_fn trace;
  void* trace_user;
  cl_event* marks;  // by token; null before the first mark
};

// What has failed first is told by the next wait; nothing happens until then.
int32_t note(Queue* queue, cl_int answer, const char* what) {
  if (answer != CL_SUCCESS && !queue->failed) {
    queue->failed = true;
    snprintf(queue->message, sizeof(queue->message), "%.100s: %s", what, opencl_error_name(answer));
  }
  return 0;
}

void close_queue(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  const OpenClLibrary& cl = *queue->device->cl;
  if (queue->commands) {
    cl.clFinish(queue->commands);
    for (uint32_t i = 0; i < queue->num_tokens; ++i)
      if (queue->marks[i]) cl.clReleaseEvent(queue->marks[i]);
    cl.clReleaseCommandQueue(queue->commands);
  }
  free(queue);
}

int32_t open_queue(void* argument, uint32_t num_tokens, uint64_t, void** result, char* message) {
  auto* device = static_cast<OpenClDevice*>(argument);
  auto* queue = static_cast<Queue*>(calloc(1, sizeof(Queue) + num_tokens * sizeof(cl_event)));
  if (!queue) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a queue");
    return -1;
  }
  queue->device = device;
  queue->num_tokens = num_tokens;
  queue->marks = reinterpret_cast<cl_event*>(queue + 1);
  cl_int answer = CL_SUCCESS;
  queue->commands = device->cl->clCreateCommandQueue(device->context, device->id, 0, &answer);
  if (!queue->commands) {
    snprintf(message, TSR_DEVICE_MESSAGE, "'%s' has no queue: %s", device->name, opencl_error_name(answer));
    free(queue);
    return -1;
  }
  *result = queue;
  return 0;
}

cl_int set_arguments(Queue* queue, const OpenClOperation* operation, cl_kernel kernel, void* const* args,
                     const int64_t* sizes) {
  const OpenClLibrary& cl = *queue->device->cl;
  cl_uint next = 0;
  for (uint32_t i = 0; i < operation->row.num_args; ++i) {
    const OpenClPlace place = place_of(queue->device, args[i]);
    const auto offset = static_cast<cl_long>(place.offset);
    if (const cl_int answer = cl.clSetKernelArg(kernel, next++, sizeof(cl_mem), &place.memory); answer != CL_SUCCESS)
      return answer;
    if (const cl_int answer = cl.clSetKernelArg(kernel, next++, sizeof(cl_long), &offset); answer != CL_SUCCESS)
      return answer;
  }
  for (uint32_t i = 0; i < operation->row.num_sizes; ++i)
    if (const cl_int answer = cl.clSetKernelArg(kernel, next++, sizeof(cl_long), &sizes[i]); answer != CL_SUCCESS)
      return answer;
  return CL_SUCCESS;
}

int32_t start(void* argument, void* of, void* const* args, uint32_t num_args, const int64_t* sizes,
              uint32_t num_sizes) {
  auto* queue = static_cast<Queue*>(argument);
  auto* operation = static_cast<OpenClOperation*>(of);
  if (queue->failed) return 0;
  if (num_args != operation->row.num_args || num_sizes != operation->row.num_sizes)
    return note(queue, CL_INVALID_KERNEL_ARGS, operation->row.entry);
  OpenClImage* image = operation->image;
  cl_int answer = CL_SUCCESS;
  if (queue->trace) queue->device->cl->clFinish(queue->commands);
  const int64_t begin = queue->trace ? tsr_trace_clock() : 0;
  pthread_mutex_lock(&image->mutex);
  for (uint32_t i = 0; i < operation->row.num_launches && answer == CL_SUCCESS; ++i) {
    const OpenClLaunch& launch = image->launches[operation->first_launch + i];
    int64_t blocks[3];
    if (!tsr_count_grid(launch.blocks, sizes, num_sizes, blocks)) {
      answer = CL_INVALID_GLOBAL_WORK_SIZE;
      break;
    }
    if (blocks[0] == 0 || blocks[1] == 0 || blocks[2] == 0) continue;
    size_t global[3];
    for (int axis = 0; axis < 3; ++axis) global[axis] = static_cast<size_t>(blocks[axis]) * launch.threads[axis];
    answer = set_arguments(queue, operation, launch.kernel, args, sizes);
    if (answer == CL_SUCCESS)
      answer = queue->device->cl->clEnqueueNDRangeKernel(queue->commands, launch.kernel, 3, nullptr, global,
                                                         launch.threads, 0, nullptr, nullptr);
  }
  pthread_mutex_unlock(&image->mutex);
  if (queue->trace && answer == CL_SUCCESS && (answer = queue->device->cl->clFinish(queue->commands)) == CL_SUCCESS)
    queue->trace(queue->trace_user, operation->row.entry, begin, tsr_trace_clock());
  return note(queue, answer, operation->row.entry);
}

int32_t copy(void* argument, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device) {
  auto* queue = static_cast<Queue*>(argument);
  if (queue->failed || bytes == 0) return 0;
  const OpenClLibrary& cl = *queue->device->cl;
  const OpenClPlace place = place_of(queue->device, device_memory);
  if (!place.memory) return note(queue, CL_INVALID_MEM_OBJECT, "a copy");
  if (to_device)
    return note(queue,
                cl.clEnqueueWriteBuffer(queue->commands, place.memory, CL_FALSE, place.offset, bytes, host_memory, 0,
                                        nullptr, nullptr),
                "a copy to the device");
  return note(queue,
              cl.clEnqueueReadBuffer(queue->commands, place.memory, CL_FALSE, place.offset, bytes, host_memory, 0,
                                     nullptr, nullptr),
              "a copy to the host");
}

int32_t mark(void* argument, uint32_t token) {
  auto* queue = static_cast<Queue*>(argument);
  const OpenClLibrary& cl = *queue->device->cl;
  if (queue->marks[token]) cl.clReleaseEvent(queue->marks[token]);
  queue->marks[token] = nullptr;
  note(queue, cl.clEnqueueMarkerWithWaitList(queue->commands, 0, nullptr, &queue->marks[token]), "a mark");
  return note(queue, cl.clFlush(queue->commands), "a flush");
}

int32_t wait(void* argument, uint32_t token, char* message) {
  auto* queue = static_cast<Queue*>(argument);
  if (queue->marks[token]) note(queue, queue->device->cl->clWaitForEvents(1, &queue->marks[token]), "a kernel");
  if (!queue->failed) return 0;
  queue->failed = false;
  memcpy(message, queue->message, sizeof(queue->message));
  return -1;
}

void drain(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  queue->device->cl->clFinish(queue->commands);
  queue->failed = false;
}

// By the host's clock, from the call to the end of waiting.
void set_trace(void* argument, tsr_operation_trace_fn trace, void* user) {
  auto* queue = static_cast<Queue*>(argument);
  queue->trace = trace;
  queue->trace_user = user;
}

}  // namespace

OpenClPlace place_of(OpenClDevice* device, const void* address) {
  const auto number = reinterpret_cast<uint64_t>(address);
  const uint64_t slot = (number >> kAllocationShift) - 1;
  if (slot >= kMostAllocations) return {nullptr, 0};
  return {device->memory[slot], number & ((uint64_t{1} << kAllocationShift) - 1)};
}

}  // namespace tessera

extern "C" __attribute__((visibility("default"))) const tsr_device_functions tessera_device_opencl;
extern "C" const tsr_device_functions tessera_device_opencl = {sizeof(tsr_device_functions),
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
