// A GPU of CUDA: its memory, the code of a module for it, queues, which are streams.
#pragma once

#include <stdint.h>

#include "abi/device_abi.h"
#include "abi/launch_table.h"
#include "runtime/cuda/cuda_library.h"

namespace tessera {

struct CudaDevice {
  const CudaLibrary* cuda;
  CudaDeviceId id;
  CudaContext context;  // the primary one, as frameworks use
  char name[80];
  int max_threads, shared_bytes, major, minor;
};

// Makes the device's context that of the calling thread, which every call of the driver needs.
CudaResult use_device(const CudaDevice* device);
const char* cuda_error_name(const CudaDevice* device, CudaResult result);

constexpr uint32_t kMostParameters = 256;  // of a kernel

struct CudaLaunch {
  CudaFunction function;
  char blocks[3][TSR_BLOCKS_TEXT];
  unsigned threads[3];
  unsigned shared_bytes;  // besides those that the kernel declares
};

struct CudaImage;

struct CudaOperation {
  CudaImage* image;
  tsr_operation_row row;
  uint32_t first_launch;
};

// The kernels of a module. Immutable.
struct CudaImage {
  CudaDevice* device;
  CudaModule module;
  uint32_t num_operations, num_launches;
  CudaOperation* operations;
  CudaLaunch* launches;
};

// The functions of the table (abi/device_abi.h) that have to do with images.
int32_t load_image(void* device, const void* image, uint64_t size, void** loaded, char* message);
void unload_image(void* device, void* loaded);
void* find_operation(void* loaded, const char* entry);

}  // namespace tessera
