// The functions of CUDA's driver and of its run-time compiler (NVRTC) that the device library calls, found by name when
// a module asks for a device: no header of NVIDIA's is needed to build, nothing of theirs ships. TESSERA_CUDA_LIBRARY
// and TESSERA_NVRTC_LIBRARY name other libraries than libcuda.so.1 and the newest libnvrtc.so that is there.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera {

using CudaResult = int;  // 0: success
using CudaDeviceId = int;
using CudaAddress = unsigned long long;
using CudaContext = struct CudaContextObject*;
using CudaModule = struct CudaModuleObject*;
using CudaFunction = struct CudaFunctionObject*;
using CudaStream = struct CudaStreamObject*;
using CudaEvent = struct CudaEventObject*;
using CudaGraph = struct CudaGraphObject*;
using CudaGraphExec = struct CudaGraphExecObject*;
using NvrtcProgram = struct NvrtcProgramObject*;

constexpr int kMaxThreadsPerBlock = 1, kMaxSharedBytesPerBlock = 8, kMajor = 75, kMinor = 76,
              kMaxDynamicSharedBytesPerBlock = 97;                    // attributes
constexpr int kFunctionDynamicSharedBytes = 8;                        // of a function
constexpr unsigned kNoTiming = 2, kWithTiming = 0, kNonBlocking = 1;  // flags

struct CudaLibrary {
  CudaResult (*cuInit)(unsigned);
  CudaResult (*cuDriverGetVersion)(int*);
  CudaResult (*cuGetErrorName)(CudaResult, const char**);
  CudaResult (*cuDeviceGetCount)(int*);
  CudaResult (*cuDeviceGet)(CudaDeviceId*, int);
  CudaResult (*cuDeviceGetName)(char*, int, CudaDeviceId);
  CudaResult (*cuDeviceGetAttribute)(int*, int, CudaDeviceId);
  CudaResult (*cuDevicePrimaryCtxRetain)(CudaContext*, CudaDeviceId);
  CudaResult (*cuDevicePrimaryCtxRelease_v2)(CudaDeviceId);
  CudaResult (*cuCtxSetCurrent)(CudaContext);
  CudaResult (*cuMemAlloc_v2)(CudaAddress*, size_t);
  CudaResult (*cuMemFree_v2)(CudaAddress);
  CudaResult (*cuMemcpyHtoDAsync_v2)(CudaAddress, const void*, size_t, CudaStream);
  CudaResult (*cuMemcpyDtoHAsync_v2)(void*, CudaAddress, size_t, CudaStream);
  CudaResult (*cuModuleLoadData)(CudaModule*, const void*);
  CudaResult (*cuModuleUnload)(CudaModule);
  CudaResult (*cuModuleGetFunction)(CudaFunction*, CudaModule, const char*);
  CudaResult (*cuFuncSetAttribute)(CudaFunction, int, int);
  CudaResult (*cuLaunchKernel)(CudaFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CudaStream, void**, void**);
  CudaResult (*cuStreamCreate)(CudaStream*, unsigned);
  CudaResult (*cuStreamDestroy_v2)(CudaStream);
  CudaResult (*cuStreamSynchronize)(CudaStream);
  CudaResult (*cuEventCreate)(CudaEvent*, unsigned);
  CudaResult (*cuEventDestroy_v2)(CudaEvent);
  CudaResult (*cuEventRecord)(CudaEvent, CudaStream);
  CudaResult (*cuEventSynchronize)(CudaEvent);
  CudaResult (*cuEventElapsedTime)(float*, CudaEvent, CudaEvent);  // milliseconds

  // Graphs, of drivers from 11.4 on.
  bool has_graphs;
  CudaResult (*cuStreamBeginCapture_v2)(CudaStream, int);
  CudaResult (*cuStreamEndCapture)(CudaStream, CudaGraph*);
  CudaResult (*cuGraphInstantiateWithFlags)(CudaGraphExec*, CudaGraph, unsigned long long);
  CudaResult (*cuGraphDestroy)(CudaGraph);
  CudaResult (*cuGraphExecDestroy)(CudaGraphExec);
  CudaResult (*cuGraphLaunch)(CudaGraphExec, CudaStream);

  int (*nvrtcCreateProgram)(NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*);
  int (*nvrtcCompileProgram)(NvrtcProgram, int, const char* const*);
  int (*nvrtcGetProgramLogSize)(NvrtcProgram, size_t*);
  int (*nvrtcGetProgramLog)(NvrtcProgram, char*);
  int (*nvrtcGetPTXSize)(NvrtcProgram, size_t*);
  int (*nvrtcGetPTX)(NvrtcProgram, char*);
  int (*nvrtcDestroyProgram)(NvrtcProgram*);
};

// Null when a library is missing or lacks a function: `message` (TSR_DEVICE_MESSAGE bytes) says which. They stay open.
const CudaLibrary* open_cuda(char* message);

}  // namespace tessera
