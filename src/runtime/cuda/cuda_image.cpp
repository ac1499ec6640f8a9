// Source with a table of launches in front of it (abi/launch_table.h), compiled by NVRTC for the GPU that is there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda_device.h"

namespace tessera {

namespace {

void refuse(char* message, const char* what) { snprintf(message, TSR_DEVICE_MESSAGE, "%s", what); }

bool check_limits(const CudaDevice* device, const tsr_launch_limits& limits, char* message) {
  if (limits.threads > device->max_threads) {
    snprintf(message, TSR_DEVICE_MESSAGE, "blocks of %lld threads, and '%s' has at most %d", limits.threads,
             device->name, device->max_threads);
  } else if (limits.shared_bytes > device->shared_bytes) {
    snprintf(message, TSR_DEVICE_MESSAGE, "blocks that share %lld bytes, and '%s' has %d", limits.shared_bytes,
             device->name, device->shared_bytes);
  } else {
    return true;
  }
  return false;
}

void tell_compile_failure(const CudaLibrary& cuda, NvrtcProgram program, char* message) {
  size_t size = 0;
  cuda.nvrtcGetProgramLogSize(program, &size);
  auto* log = static_cast<char*>(calloc(1, size + 1));
  const char* from = "";
  if (log) {
    cuda.nvrtcGetProgramLog(program, log);
    from = tsr_first_error(log);
  }
  snprintf(message, TSR_DEVICE_MESSAGE, "NVRTC fails: %.*s", static_cast<int>(strcspn(from, "\n")), from);
  free(log);
}

// PTX for the device, which the caller frees; null when that fails. `text` ends with a NUL.
char* compile(const CudaDevice* device, const char* text, char* message) {
  const CudaLibrary& cuda = *device->cuda;
  char architecture[48];
  snprintf(architecture, sizeof(architecture), "--gpu-architecture=compute_%d%d", device->major, device->minor);
  // Multiply-adds where the source says so, and nowhere else.
  const char* options[] = {architecture, "--fmad=false"};
  NvrtcProgram program = nullptr;
  if (cuda.nvrtcCreateProgram(&program, text, "tessera.cu", 0, nullptr, nullptr) != 0) {
    refuse(message, "NVRTC takes no source");
    return nullptr;
  }
  char* ptx = nullptr;
  size_t size = 0;
  if (cuda.nvrtcCompileProgram(program, 2, options) != 0) {
    tell_compile_failure(cuda, program, message);
  } else if (cuda.nvrtcGetPTXSize(program, &size) != 0 || !(ptx = static_cast<char*>(calloc(1, size + 1))) ||
             cuda.nvrtcGetPTX(program, ptx) != 0) {
    refuse(message, "NVRTC gives no code");
    free(ptx);
    ptx = nullptr;
  }
  cuda.nvrtcDestroyProgram(&program);
  return ptx;
}

bool build(CudaImage* image, const char* source, size_t size, char* message) {
  const CudaDevice* device = image->device;
  auto* text = static_cast<char*>(malloc(size + 1));
  if (!text) {
    refuse(message, "no memory for its source");
    return false;
  }
  memcpy(text, source, size);
  text[size] = 0;
  char* ptx = compile(device, text, message);
  free(text);
  if (!ptx) return false;
  const CudaResult answer = device->cuda->cuModuleLoadData(&image->module, ptx);
  free(ptx);
  if (answer == 0) return true;
  image->module = nullptr;
  snprintf(message, TSR_DEVICE_MESSAGE, "'%s' does not take it: %s", device->name, cuda_error_name(device, answer));
  return false;
}

bool read_launch(const CudaImage* image, const tsr_launch_row& row, CudaLaunch* launch, char* message) {
  memcpy(launch->blocks, row.blocks, sizeof(launch->blocks));
  for (int axis = 0; axis < 3; ++axis) launch->threads[axis] = static_cast<unsigned>(row.threads[axis]);
  launch->shared_bytes = static_cast<unsigned>(row.shared_bytes);
  const CudaLibrary& cuda = *image->device->cuda;
  CudaResult answer = cuda.cuModuleGetFunction(&launch->function, image->module, row.kernel);
  if (answer == 0 && launch->shared_bytes > 0)
    answer = cuda.cuFuncSetAttribute(launch->function, kFunctionDynamicSharedBytes, static_cast<int>(row.shared_bytes));
  if (answer == 0) return true;
  snprintf(message, TSR_DEVICE_MESSAGE, "kernel '%.80s': %s", row.kernel, cuda_error_name(image->device, answer));
  return false;
}

bool read_table(CudaImage* image, const char* table, const char* end, char* message) {
  char line[TSR_TABLE_LINE];
  uint32_t operations = 0, launches = 0;
  tsr_launch_row launch;
  while ((table = tsr_next_row(table, end, line))) {
    CudaOperation& operation = image->operations[operations];
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
  auto* device = static_cast<CudaDevice*>(argument);
  const auto* text = static_cast<const char*>(bytes);
  tsr_launch_limits limits = {};
  uint32_t operations = 0, launches = 0;
  const char* table = tsr_open_table(text, text + size, "CUDA", &limits, &operations, &launches);
  if (!table) {
    refuse(message, "it is no source for CUDA");
    return -1;
  }
  if (!check_limits(device, limits, message)) return -1;
  // One operation more: rows are read where the next one will stand.
  auto* image = static_cast<CudaImage*>(
      calloc(1, sizeof(CudaImage) + (operations + size_t{1}) * sizeof(CudaOperation) + launches * sizeof(CudaLaunch)));
  if (!image) {
    refuse(message, "no memory for its kernels");
    return -1;
  }
  image->device = device;
  image->num_operations = operations;
  image->num_launches = launches;
  image->operations = reinterpret_cast<CudaOperation*>(image + 1);
  image->launches = reinterpret_cast<CudaLaunch*>(image->operations + operations + 1);
  use_device(device);
  if (!build(image, text, size, message) || !read_table(image, table, text + size, message)) {
    unload_image(device, image);
    return -1;
  }
  *loaded = image;
  return 0;
}

void unload_image(void*, void* loaded) {
  auto* image = static_cast<CudaImage*>(loaded);
  use_device(image->device);
  if (image->module) image->device->cuda->cuModuleUnload(image->module);
  free(image);
}

void* find_operation(void* loaded, const char* entry) {
  auto* image = static_cast<CudaImage*>(loaded);
  for (uint32_t i = 0; i < image->num_operations; ++i)
    if (strcmp(image->operations[i].row.entry, entry) == 0) return &image->operations[i];
  return nullptr;
}

}  // namespace tessera
