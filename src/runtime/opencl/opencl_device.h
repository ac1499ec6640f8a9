// A device of OpenCL: its memory, the code of a module for it, queues.
//
// OpenCL 1.2 has no addresses that a host could compute with, so the device deals ranges of a made-up space of 64 bits:
// allocation n begins at (n + 1) << 40. Kernels take memory and an offset.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "abi/device_abi.h"
#include "abi/launch_table.h"
#include "runtime/opencl/opencl_library.h"

namespace tessera {

constexpr int kAllocationShift = 40;
constexpr uint32_t kMostAllocations = 1u << 12;

struct OpenClDevice {
  const OpenClLibrary* cl;
  cl_device_id id;
  cl_context context;
  char name[80];
  cl_ulong max_allocation, local_bytes;
  size_t max_threads;
  bool has_doubles, divides_exactly;
  pthread_mutex_t mutex;  // of the table
  cl_mem memory[kMostAllocations];
};

// Where an address lies; null memory for one that the device has not dealt.
struct OpenClPlace {
  cl_mem memory;
  uint64_t offset;
};
OpenClPlace place_of(OpenClDevice* device, const void* address);

struct OpenClLaunch {
  cl_kernel kernel;
  char blocks[3][TSR_BLOCKS_TEXT];
  size_t threads[3];
};

struct OpenClImage;

struct OpenClOperation {
  OpenClImage* image;
  tsr_operation_row row;
  uint32_t first_launch;
};

// The kernels of a module. An object of a kernel keeps its arguments, so sessions take turns at starting them.
struct OpenClImage {
  OpenClDevice* device;
  cl_program program;
  pthread_mutex_t mutex;
  uint32_t num_operations, num_launches;
  OpenClOperation* operations;
  OpenClLaunch* launches;
};

// The functions of the table (abi/device_abi.h) that have to do with images.
int32_t load_image(void* device, const void* image, uint64_t size, void** loaded, char* message);
void unload_image(void* device, void* loaded);
void* find_operation(void* loaded, const char* entry);

}  // namespace tessera
