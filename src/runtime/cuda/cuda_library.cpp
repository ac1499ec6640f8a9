#include "runtime/cuda/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/device_abi.h"

namespace tessera {

namespace {

pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
CudaLibrary functions;
bool opened = false;

void* open_first(const char* variable, const char* const* names, const char* what, char* message) {
  if (const char* named = getenv(variable)) {
    if (void* library = dlopen(named, RTLD_NOW | RTLD_LOCAL)) return library;
  } else {
    for (; *names; ++names)
      if (void* library = dlopen(*names, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  snprintf(message, TSR_DEVICE_MESSAGE, "there is no %s: %.90s", what, dlerror());
  return nullptr;
}

template <typename Function>
bool find(void* library, const char* name, Function* function, char* message) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (!*function) snprintf(message, TSR_DEVICE_MESSAGE, "the driver is too old: it lacks '%s'", name);
  return *function;
}

// What the driver may lack.
bool find_graphs(void* driver) {
  char ignored[TSR_DEVICE_MESSAGE];
  return find(driver, "cuStreamBeginCapture_v2", &functions.cuStreamBeginCapture_v2, ignored) &&
         find(driver, "cuStreamEndCapture", &functions.cuStreamEndCapture, ignored) &&
         find(driver, "cuGraphInstantiateWithFlags", &functions.cuGraphInstantiateWithFlags, ignored) &&
         find(driver, "cuGraphDestroy", &functions.cuGraphDestroy, ignored) &&
         find(driver, "cuGraphExecDestroy", &functions.cuGraphExecDestroy, ignored) &&
         find(driver, "cuGraphLaunch", &functions.cuGraphLaunch, ignored);
}

bool find_all(void* driver, void* compiler, char* message) {
  return find(driver, "cuInit", &functions.cuInit, message) &&
         find(driver, "cuDriverGetVersion", &functions.cuDriverGetVersion, message) &&
         find(driver, "cuGetErrorName", &functions.cuGetErrorName, message) &&
         find(driver, "cuDeviceGetCount", &functions.cuDeviceGetCount, message) &&
         find(driver, "cuDeviceGet", &functions.cuDeviceGet, message) &&
         find(driver, "cuDeviceGetName", &functions.cuDeviceGetName, message) &&
         find(driver, "cuDeviceGetAttribute", &functions.cuDeviceGetAttribute, message) &&
         find(driver, "cuDevicePrimaryCtxRetain", &functions.cuDevicePrimaryCtxRetain, message) &&
         find(driver, "cuDevicePrimaryCtxRelease_v2", &functions.cuDevicePrimaryCtxRelease_v2, message) &&
         find(driver, "cuCtxSetCurrent", &functions.cuCtxSetCurrent, message) &&
         find(driver, "cuMemAlloc_v2", &functions.cuMemAlloc_v2, message) &&
         find(driver, "cuMemFree_v2", &functions.cuMemFree_v2, message) &&
         find(driver, "cuMemcpyHtoDAsync_v2", &functions.cuMemcpyHtoDAsync_v2, message) &&
         find(driver, "cuMemcpyDtoHAsync_v2", &functions.cuMemcpyDtoHAsync_v2, message) &&
         find(driver, "cuModuleLoadData", &functions.cuModuleLoadData, message) &&
         find(driver, "cuModuleUnload", &functions.cuModuleUnload, message) &&
         find(driver, "cuModuleGetFunction", &functions.cuModuleGetFunction, message) &&
         find(driver, "cuFuncSetAttribute", &functions.cuFuncSetAttribute, message) &&
         find(driver, "cuLaunchKernel", &functions.cuLaunchKernel, message) &&
         find(driver, "cuStreamCreate", &functions.cuStreamCreate, message) &&
         find(driver, "cuStreamDestroy_v2", &functions.cuStreamDestroy_v2, message) &&
         find(driver, "cuStreamSynchronize", &functions.cuStreamSynchronize, message) &&
         find(driver, "cuEventCreate", &functions.cuEventCreate, message) &&
         find(driver, "cuEventDestroy_v2", &functions.cuEventDestroy_v2, message) &&
         find(driver, "cuEventRecord", &functions.cuEventRecord, message) &&
         find(driver, "cuEventSynchronize", &functions.cuEventSynchronize, message) &&
         find(driver, "cuEventElapsedTime", &functions.cuEventElapsedTime, message) &&
         find(compiler, "nvrtcCreateProgram", &functions.nvrtcCreateProgram, message) &&
         find(compiler, "nvrtcCompileProgram", &functions.nvrtcCompileProgram, message) &&
         find(compiler, "nvrtcGetProgramLogSize", &functions.nvrtcGetProgramLogSize, message) &&
         find(compiler, "nvrtcGetProgramLog", &functions.nvrtcGetProgramLog, message) &&
         find(compiler, "nvrtcGetPTXSize", &functions.nvrtcGetPTXSize, message) &&
         find(compiler, "nvrtcGetPTX", &functions.nvrtcGetPTX, message) &&
         find(compiler, "nvrtcDestroyProgram", &functions.nvrtcDestroyProgram, message);
}

}  // namespace

const CudaLibrary* open_cuda(char* message) {
  constexpr const char* kDrivers[] = {"libcuda.so.1", nullptr};
  constexpr const char* kCompilers[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", nullptr};
  pthread_mutex_lock(&opening);
  if (!opened) {
    void* driver = open_first("TESSERA_CUDA_LIBRARY", kDrivers, "driver of CUDA", message);
    void* compiler =
        driver ? open_first("TESSERA_NVRTC_LIBRARY", kCompilers, "compiler of CUDA (NVRTC)", message) : nullptr;
    opened = compiler && find_all(driver, compiler, message);
    functions.has_graphs = opened && find_graphs(driver);
  }
  pthread_mutex_unlock(&opening);
  return opened ? &functions : nullptr;
}

}  // namespace tessera
