// Source with a table of launches in front of it (codegen/gpu/gpu_codegen.h), built by the device's own compiler.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/opencl_device.h"

namespace tessera {

namespace {

constexpr int kMostName = 160;

struct Limits {
  long long threads, shared, doubles;
};

// Whether the next line of the table is there: "//tsr what rest".
bool next_line(const char** text, const char* end, char* line, size_t size) {
  const char* from = *text;
  const auto* stop = static_cast<const char*>(memchr(from, '\n', static_cast<size_t>(end - from)));
  if (!stop || stop - from < 6 || memcmp(from, "//tsr ", 6) != 0) return false;
  const auto length = static_cast<size_t>(stop - from) - 6;
  if (length >= size) return false;
  memcpy(line, from + 6, length);
  line[length] = 0;
  *text = stop + 1;
  return true;
}

void refuse(char* message, const char* what) { snprintf(message, TSR_DEVICE_MESSAGE, "%s", what); }

// Counts the table's rows, for one allocation.
void count(const char* text, const char* end, uint32_t* operations, uint32_t* launches) {
  char line[512];
  while (next_line(&text, end, line, sizeof(line))) {
    *operations += strncmp(line, "operation ", 10) == 0;
    *launches += strncmp(line, "launch ", 7) == 0;
  }
}

bool check_limits(const OpenClDevice* device, const Limits& limits, char* message) {
  if (limits.threads > static_cast<long long>(device->max_threads)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "blocks of %lld threads, and '%s' has at most %zu", limits.threads,
             device->name, device->max_threads);
  } else if (limits.shared > static_cast<long long>(device->local_bytes)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "blocks that share %lld bytes of local memory, and '%s' has %llu",
             limits.shared, device->name, static_cast<unsigned long long>(device->local_bytes));
  } else if (limits.doubles && !device->has_doubles) {
    snprintf(message, TSR_DEVICE_MESSAGE, "the model computes with f64, and '%s' does not", device->name);
  } else {
    return true;
  }
  return false;
}

// The first line of the compiler's words that names an error, or the first line.
void tell_build_failure(const OpenClDevice* device, cl_program program, cl_int answer, char* message) {
  const OpenClLibrary& cl = *device->cl;
  size_t size = 0;
  cl.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  auto* log = static_cast<char*>(calloc(1, size + 1));
  const char* from = "";
  if (log) {
    cl.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, size, log, nullptr);
    const char* error = strstr(log, "error");
    while (error && error > log && error[-1] != '\n') --error;
    from = error ? error : log;
  }
  snprintf(message, TSR_DEVICE_MESSAGE, "its compiler fails (%s): %.*s", opencl_error_name(answer),
           static_cast<int>(strcspn(from, "\n")), from);
  free(log);
}

bool build(OpenClImage* image, const char* source, size_t size, char* message) {
  const OpenClDevice* device = image->device;
  const OpenClLibrary& cl = *device->cl;
  cl_int answer = CL_SUCCESS;
  image->program = cl.clCreateProgramWithSource(device->context, 1, &source, &size, &answer);
  if (!image->program) {
    snprintf(message, TSR_DEVICE_MESSAGE, "it takes no source: %s", opencl_error_name(answer));
    return false;
  }
  // Quotients and roots are rounded as on the host, where the device can.
  const char* options =
      device->divides_exactly ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2";
  answer = cl.clBuildProgram(image->program, 1, &device->id, options, nullptr, nullptr);
  if (answer == CL_SUCCESS) return true;
  tell_build_failure(device, image->program, answer, message);
  return false;
}

bool read_launch(const OpenClImage* image, const char* line, OpenClLaunch* launch, char* message) {
  char name[kMostName];
  unsigned long long blocks[3], threads[3];
  if (sscanf(line, "launch %159s %llu %llu %llu %llu %llu %llu", name, blocks, blocks + 1, blocks + 2, threads,
             threads + 1, threads + 2) != 7) {
    refuse(message, "its table of launches is damaged");
    return false;
  }
  for (int axis = 0; axis < 3; ++axis) {
    launch->local[axis] = threads[axis];
    launch->global[axis] = blocks[axis] * threads[axis];
  }
  cl_int answer = CL_SUCCESS;
  launch->kernel = image->device->cl->clCreateKernel(image->program, name, &answer);
  if (launch->kernel) return true;
  snprintf(message, TSR_DEVICE_MESSAGE, "kernel '%.80s': %s", name, opencl_error_name(answer));
  return false;
}

bool read_table(OpenClImage* image, const char* text, const char* end, char* message) {
  char line[512];
  uint32_t operations = 0, launches = 0;
  while (next_line(&text, end, line, sizeof(line))) {
    if (strncmp(line, "operation ", 10) == 0) {
      OpenClOperation& operation = image->operations[operations++];
      operation.image = image;
      operation.first_launch = launches;
      if (sscanf(line, "operation %47s %u %u %u", operation.entry, &operation.num_args, &operation.num_sizes,
                 &operation.num_launches) != 4 ||
          operation.num_launches > image->num_launches - launches) {
        refuse(message, "its table of operations is damaged");
        return false;
      }
    } else if (strncmp(line, "launch ", 7) == 0) {
      if (!read_launch(image, line, &image->launches[launches++], message)) return false;
    }
  }
  return true;
}

}  // namespace

int32_t load_image(void* argument, const void* bytes, uint64_t size, void** loaded, char* message) {
  auto* device = static_cast<OpenClDevice*>(argument);
  const auto* text = static_cast<const char*>(bytes);
  const char* end = text + size;
  const char* table = text;
  char line[512];
  Limits limits = {};
  if (!next_line(&table, end, line, sizeof(line)) || strcmp(line, "1 OpenCL") != 0 ||
      !next_line(&table, end, line, sizeof(line)) ||
      sscanf(line, "limits %lld %lld %lld", &limits.threads, &limits.shared, &limits.doubles) != 3) {
    refuse(message, "it is no source for OpenCL");
    return -1;
  }
  if (!check_limits(device, limits, message)) return -1;
  uint32_t operations = 0, launches = 0;
  count(table, end, &operations, &launches);
  auto* image = static_cast<OpenClImage*>(
      calloc(1, sizeof(OpenClImage) + operations * sizeof(OpenClOperation) + launches * sizeof(OpenClLaunch)));
  if (!image) {
    refuse(message, "no memory for its kernels");
    return -1;
  }
  image->device = device;
  pthread_mutex_init(&image->mutex, nullptr);
  image->num_operations = operations;
  image->num_launches = launches;
  image->operations = reinterpret_cast<OpenClOperation*>(image + 1);
  image->launches = reinterpret_cast<OpenClLaunch*>(image->operations + operations);
  if (!build(image, text, size, message) || !read_table(image, table, end, message)) {
    unload_image(device, image);
    return -1;
  }
  *loaded = image;
  return 0;
}

void unload_image(void*, void* loaded) {
  auto* image = static_cast<OpenClImage*>(loaded);
  const OpenClLibrary& cl = *image->device->cl;
  for (uint32_t i = 0; i < image->num_launches; ++i)
    if (image->launches[i].kernel) cl.clReleaseKernel(image->launches[i].kernel);
  if (image->program) cl.clReleaseProgram(image->program);
  pthread_mutex_destroy(&image->mutex);
  free(image);
}

void* find_operation(void* loaded, const char* entry) {
  auto* image = static_cast<OpenClImage*>(loaded);
  for (uint32_t i = 0; i < image->num_operations; ++i)
    if (strcmp(image->operations[i].entry, entry) == 0) return &image->operations[i];
  return nullptr;
}

}  // namespace tessera
