#include "runtime/opencl/opencl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/device_abi.h"

namespace tessera {

namespace {

pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
OpenClLibrary functions;
bool opened = false;

bool find_functions(void* library, char* message) {
  const auto find = [&](const char* name) {
    void* function = dlsym(library, name);
    if (!function) snprintf(message, TSR_DEVICE_MESSAGE, "its OpenCL library lacks the function '%s'", name);
    return function;
  };
#define TSR_OPENCL_FIND(name)                                               \
  functions.name = reinterpret_cast<decltype(functions.name)>(find(#name)); \
  if (!functions.name) return false;
  TSR_OPENCL_FUNCTIONS(TSR_OPENCL_FIND)
#undef TSR_OPENCL_FIND
  return true;
}

}  // namespace

const OpenClLibrary* open_opencl(char* message) {
  pthread_mutex_lock(&opening);
  if (!opened) {
    const char* named = getenv("TESSERA_OPENCL_LIBRARY");
    void* library = dlopen(named ? named : "libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) snprintf(message, TSR_DEVICE_MESSAGE, "there is no OpenCL: %.100s", dlerror());
    else opened = find_functions(library, message);
  }
  pthread_mutex_unlock(&opening);
  return opened ? &functions : nullptr;
}

const char* opencl_error_name(cl_int error) {
#define TSR_OPENCL_ERROR(name) \
  case name: return #name;
  switch (error) {
    TSR_OPENCL_ERROR(CL_DEVICE_NOT_FOUND)
    TSR_OPENCL_ERROR(CL_DEVICE_NOT_AVAILABLE)
    TSR_OPENCL_ERROR(CL_COMPILER_NOT_AVAILABLE)
    TSR_OPENCL_ERROR(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    TSR_OPENCL_ERROR(CL_OUT_OF_RESOURCES)
    TSR_OPENCL_ERROR(CL_OUT_OF_HOST_MEMORY)
    TSR_OPENCL_ERROR(CL_BUILD_PROGRAM_FAILURE)
    TSR_OPENCL_ERROR(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    TSR_OPENCL_ERROR(CL_INVALID_VALUE)
    TSR_OPENCL_ERROR(CL_INVALID_BUFFER_SIZE)
    TSR_OPENCL_ERROR(CL_INVALID_MEM_OBJECT)
    TSR_OPENCL_ERROR(CL_INVALID_KERNEL_NAME)
    TSR_OPENCL_ERROR(CL_INVALID_KERNEL_ARGS)
    TSR_OPENCL_ERROR(CL_INVALID_WORK_GROUP_SIZE)
    TSR_OPENCL_ERROR(CL_INVALID_WORK_ITEM_SIZE)
    TSR_OPENCL_ERROR(CL_INVALID_ARG_SIZE)
    TSR_OPENCL_ERROR(CL_INVALID_ARG_INDEX)
    TSR_OPENCL_ERROR(CL_INVALID_PROGRAM_EXECUTABLE)
    default: break;
  }
#undef TSR_OPENCL_ERROR
  static thread_local char number[24];
  snprintf(number, sizeof(number), "error %d", error);
  return number;
}

}  // namespace tessera
