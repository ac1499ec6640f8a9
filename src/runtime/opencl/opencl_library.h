// The functions of OpenCL that the device library calls, found in the loader of the machine (libOpenCL.so.1) when a
// module asks for a device. TESSERA_OPENCL_LIBRARY names another library.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

namespace tessera {

// Each is of the type that the header declares.
#define TSR_OPENCL_FUNCTIONS(X)                                                                                       \
  X(clGetPlatformIDs)                                                                                                 \
  X(clGetPlatformInfo) X(clGetDeviceIDs) X(clGetDeviceInfo) X(clCreateContext) X(clReleaseContext)                    \
      X(clCreateCommandQueue) X(clReleaseCommandQueue) X(clCreateBuffer) X(clReleaseMemObject)                        \
          X(clCreateProgramWithSource) X(clBuildProgram) X(clGetProgramBuildInfo) X(clReleaseProgram)                 \
              X(clCreateKernel) X(clReleaseKernel) X(clSetKernelArg) X(clEnqueueNDRangeKernel) X(clEnqueueReadBuffer) \
                  X(clEnqueueWriteBuffer) X(clEnqueueMarkerWithWaitList) X(clWaitForEvents) X(clReleaseEvent)         \
                      X(clFlush) X(clFinish)

struct OpenClLibrary {
#define TSR_OPENCL_MEMBER(name) decltype(&::name) name;
  TSR_OPENCL_FUNCTIONS(TSR_OPENCL_MEMBER)
#undef TSR_OPENCL_MEMBER
};

// Null when there is no library, or it lacks a function: `message` (TSR_DEVICE_MESSAGE bytes) says which. The library
// stays open, as a driver's threads may outlive a module.
const OpenClLibrary* open_opencl(char* message);

// "CL_OUT_OF_RESOURCES"; "error -9999" for others.
const char* opencl_error_name(cl_int error);

}  // namespace tessera
