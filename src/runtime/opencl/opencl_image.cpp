// Source with a table of launches in front of it (codegen/gpu/gpu_codegen.h), built by the device's own compiler.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/opencl_device.h"

namespace tessera {

namespace {

void refuse(char* message, const char* what) { snprintf(message, TSR_DEVICE_MESSAGE, "%s", what); }

bool check_limits(const OpenClDevice* device, const tsr_launch_limits& limits, char* message) {
  if (limits.threads > static_cast<long long>(device->max_threads)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "blocks of %lld threads, and '%s' has at most %zu", limits.threads,
             device->name, device->max_threads);
  } else if (limits.shared_bytes > static_cast<long long>(device->local_bytes)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "blocks that share %lld bytes of local memory, and '%s' has %llu",
             limits.shared_bytes, device->name, static_cast<unsigned long long>(device->local_bytes));
  } else if (limits.doubles && !device->has_doubles) {
    snprintf(message, TSR_DEVICE_MESSAGE, "the model computes with f64, and '%s' does not", device->name);
  } else {
    return true;
  }
  return false;
}

void tell_build_failure(const OpenClDevice* device, cl_program program, cl_int answer, char* message) {
  const OpenClLibrary& cl = *device->cl;
  size_t size = 0;
  cl.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  auto* log = static_cast<char*>(calloc(1, size + 1));
  const char* from = "";
  if (log) {
    cl.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, size, log, nullptr);
    from = tsr_first_error(log);
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

bool read_launch(const OpenClImage* image, const tsr_launch_row& row, OpenClLaunch* launch, char* message) {
  memcpy(launch->blocks, row.blocks, sizeof(launch->blocks));
  for (int axis = 0; axis < 3; ++axis) launch->threads[axis] = row.threads[axis];
  cl_int answer = CL_SUCCESS;
  launch->kernel = image->device->cl->clCreateKernel(image->program, row.kernel, &answer);
  if (launch->kernel) return true;
  snprintf(message, TSR_DEVICE_MESSAGE, "kernel '%.80s': %s", row.kernel, opencl_error_name(answer));
  return false;
}

bool read_table(OpenClImage* image, const char* table, const char* end, char* message) {
  char line[TSR_TABLE_LINE];
  uint32_t operations = 0, launches = 0;
  tsr_launch_row launch;
  while ((table = tsr_next_row(table, end, line))) {
    OpenClOperation& operation = image->operations[operations];
    if (tsr_is_operation(line, &operation.row)) {
      operation.image = image;
      operation.first_launch = launches;
      ++operations;
    } else if (tsr_is_launch(line, &launch)) {
      if (!read_launch(image, launch, &image->launches[launches++], message)) return false;
    }
  }
  return true;
}

}  // namespace

int32_t load_image(void* argument, const void* bytes, uint64_t size, void** loaded, char* message) {
  auto* device = static_cast<OpenClDevice*>(argument);
  const auto* text = static_cast<const char*>(bytes);
  const char* end = text + size;
  tsr_launch_limits limits = {};
  uint32_t operations = 0, launches = 0;
  const char* table = tsr_open_table(text, end, "OpenCL", &limits, &operations, &launches);
  if (!table) {
    refuse(message, "it is no source for OpenCL");
    return -1;
  }
  if (!check_limits(device, limits, message)) return -1;
  // One operation more: rows are read where the next one will stand.
  auto* image = static_cast<OpenClImage*>(calloc(
      1, sizeof(OpenClImage) + (operations + size_t{1}) * sizeof(OpenClOperation) + launches * sizeof(OpenClLaunch)));
  if (!image) {
    refuse(message, "no memory for its kernels");
    return -1;
  }
  image->device = device;
  pthread_mutex_init(&image->mutex, nullptr);
  image->num_operations = operations;
  image->num_launches = launches;
  image->operations = reinterpret_cast<OpenClOperation*>(image + 1);
  image->launches = reinterpret_cast<OpenClLaunch*>(image->operations + operations + 1);
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
    if (strcmp(image->operations[i].row.entry, entry) == 0) return &image->operations[i];
  return nullptr;
}

}  // namespace tessera
