// Devices beside the host: what a module has of them, and what a session has. The library of each kind is loaded when
// a module asks for it (abi/device_abi.h).
#pragma once

#include <stdint.h>

#include "abi/device_abi.h"
#include "abi/module_abi.h"
#include "runtime/core/module_file.h"
#include "tessera/tessera.h"

namespace tessera {

// One of a module's devices, open, with its code and its weights.
struct LoadedDevice {
  void* library;
  const tsr_device_functions* functions;
  void* device;
  void* image;
  uint8_t* weights;  // null when there are none
};

// In one allocation; null when the module has no devices. Immutable.
struct ModuleDevices {
  uint32_t num_devices;
  LoadedDevice* devices;
  void** operations;  // by row of the descriptor
};

tessera_status open_devices(const ModuleFile& file, ModuleDevices** devices, tessera_error* error);
void close_devices(ModuleDevices* devices);

// Whom a device's queue tells of its operations.
struct DeviceTrace {
  tessera_device_trace_fn trace;
  void* user;
  int32_t device;
};

// What a session has of each device. In one allocation.
struct SessionDevices {
  const ModuleDevices* module;
  void** queues;
  tsr_device_memory* memory;
  DeviceTrace* traces;
  int32_t failed;  // the row of the device that has failed in this run; -1
  char message[TSR_DEVICE_MESSAGE];
};

// Sets what the session's host and call have for its devices, if the module has some.
tessera_status create_session_devices(tessera_session* session, tessera_error* error);
void free_session_devices(tessera_session* session);
void set_device_trace(tessera_session* session, tessera_device_trace_fn trace, void* user);
// After a run that has ended early: waits for what is still in the queues, and says which device has failed. Returns
// TESSERA_OK when none has.
tessera_status device_failure(tessera_session* session, tessera_error* error);

}  // namespace tessera
