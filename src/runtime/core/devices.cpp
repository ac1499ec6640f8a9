#include "runtime/core/devices.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/errors.h"
#include "runtime/core/libraries.h"
#include "runtime/core/session.h"

namespace tessera {

namespace {

struct Message {
  char text[TSR_DEVICE_MESSAGE] = {};
};

tessera_status no_device(const ModuleFile& file, const tsr_device_descr& row, const char* what, const char* why,
                         tessera_error* error) {
  return fail(error, kErrDevice, "'%s' needs a device of the kind '%s', and %s: %s", file.name, file.text(row.kind),
              what, clip_name(why).text);
}

tessera_status no_memory(const ModuleFile& file, const tsr_device_descr& row, const char* what, uint64_t bytes,
                         tessera_error* error) {
  char size[64];
  snprintf(size, sizeof(size), "%s take %llu bytes", what, static_cast<unsigned long long>(bytes));
  return no_device(file, row, "it has not that much memory free", size, error);
}

// A library that was opened stays open, as its worker threads may outlive a module.
tessera_status find_functions(const ModuleFile& file, const tsr_device_descr& row, LoadedDevice* device,
                              tessera_error* error) {
  const char* kind = file.text(row.kind);
  char name[64], symbol[64];
  snprintf(name, sizeof(name), "tessera_%s", kind);
  snprintf(symbol, sizeof(symbol), "tessera_device_%s", kind);
  device->library = open_library(name);
  if (!device->library) {
    const char* reason = dlerror();
    return no_device(file, row, "its library cannot be loaded", reason ? reason : "there is none", error);
  }
  device->functions = static_cast<const tsr_device_functions*>(dlsym(device->library, symbol));
  if (!device->functions) return no_device(file, row, "its library has no table of functions", symbol, error);
  if (device->functions->abi_version != TSR_DEVICE_ABI_VERSION ||
      device->functions->size < sizeof(tsr_device_functions)) {
    return no_device(file, row, "its library is of another version", "install both from one build", error);
  }
  return TESSERA_OK;
}

// Weights go to the device once, for all sessions.
tessera_status send_weights(const ModuleFile& file, const tsr_device_descr& row, LoadedDevice* device,
                            tessera_error* error) {
  if (row.weights_size == 0) return TESSERA_OK;
  device->weights = device->functions->allocate(device->device, row.weights_size);
  Message message;
  void* queue = nullptr;
  if (!device->weights) return no_memory(file, row, "weights", row.weights_size, error);
  if (device->functions->open_queue(device->device, 1, 0, &queue, message.text) < 0) {
    return no_device(file, row, "it has no queue", message.text, error);
  }
  auto* from = const_cast<uint8_t*>(file.images() + row.weights_offset);
  const bool sent = device->functions->copy(queue, device->weights, from, row.weights_size, 1) >= 0 &&
                    device->functions->mark(queue, 0) >= 0 && device->functions->wait(queue, 0, message.text) >= 0;
  device->functions->close_queue(queue);
  return sent ? TESSERA_OK : no_device(file, row, "the weights cannot be sent", message.text, error);
}

tessera_status open_one(const ModuleFile& file, const tsr_device_descr& row, LoadedDevice* device,
                        tessera_error* error) {
  tessera_status status = find_functions(file, row, device, error);
  if (status != TESSERA_OK) return status;
  Message message;
  if (device->functions->open(&device->device, message.text) < 0) {
    device->device = nullptr;
    return no_device(file, row, "it cannot be opened", message.text, error);
  }
  if (device->functions->load(device->device, file.images() + row.image_offset, row.image_size, &device->image,
                              message.text) < 0) {
    device->image = nullptr;
    return no_device(file, row, "it does not take the module's code", message.text, error);
  }
  return send_weights(file, row, device, error);
}

SessionDevices& devices_of(void* self) { return *static_cast<tessera_session*>(self)->devices; }

const tsr_device_functions& functions_of(const SessionDevices& devices, uint32_t row) {
  return *devices.module->devices[row].functions;
}

int32_t failed_at(SessionDevices& devices, uint32_t row, int32_t answer) {
  if (answer < 0 && devices.failed < 0) devices.failed = static_cast<int32_t>(row);
  return answer;
}

int32_t host_start(void* self, uint32_t operation, void* const* args, const int64_t* sizes) {
  SessionDevices& devices = devices_of(self);
  const tsr_operation_descr& row = static_cast<tessera_session*>(self)->module->file.operations()[operation];
  return failed_at(devices, row.device,
                   functions_of(devices, row.device)
                       .start(devices.queues[row.device], devices.module->operations[operation], args, row.num_args,
                              sizes, row.num_sizes));
}

int32_t host_copy(void* self, uint32_t device, void* device_memory, void* host_memory, uint64_t bytes,
                  int32_t to_device) {
  SessionDevices& devices = devices_of(self);
  return failed_at(
      devices, device,
      functions_of(devices, device).copy(devices.queues[device], device_memory, host_memory, bytes, to_device));
}

int32_t host_mark(void* self, uint32_t device, uint32_t token) {
  SessionDevices& devices = devices_of(self);
  return failed_at(devices, device, functions_of(devices, device).mark(devices.queues[device], token));
}

int32_t host_wait(void* self, uint32_t device, uint32_t token) {
  SessionDevices& devices = devices_of(self);
  return failed_at(devices, device, functions_of(devices, device).wait(devices.queues[device], token, devices.message));
}

}  // namespace

tessera_status open_devices(const ModuleFile& file, ModuleDevices** result, tessera_error* error) {
  const tsr_descriptor& descriptor = *file.descriptor;
  *result = nullptr;
  if (descriptor.num_devices == 0) return TESSERA_OK;
  const size_t bytes =
      sizeof(ModuleDevices) + descriptor.num_devices * sizeof(LoadedDevice) + descriptor.num_operations * sizeof(void*);
  auto* devices = static_cast<ModuleDevices*>(calloc(1, bytes));
  if (!devices) return fail(error, kErrMemory, "not enough memory to load a module: %zu bytes were refused", bytes);
  devices->num_devices = descriptor.num_devices;
  devices->devices = reinterpret_cast<LoadedDevice*>(devices + 1);
  devices->operations = reinterpret_cast<void**>(devices->devices + descriptor.num_devices);
  for (uint32_t i = 0; i < descriptor.num_devices; ++i) {
    const tessera_status status = open_one(file, file.devices()[i], &devices->devices[i], error);
    if (status == TESSERA_OK) continue;
    close_devices(devices);
    return status;
  }
  for (uint32_t i = 0; i < descriptor.num_operations; ++i) {
    const tsr_operation_descr& row = file.operations()[i];
    const LoadedDevice& device = devices->devices[row.device];
    devices->operations[i] = device.functions->find(device.image, file.text(row.entry));
    if (devices->operations[i]) continue;
    close_devices(devices);
    return no_device(file, file.devices()[row.device], "the module's code for it lacks an operation",
                     file.text(row.entry), error);
  }
  *result = devices;
  return TESSERA_OK;
}

void close_devices(ModuleDevices* devices) {
  if (!devices) return;
  for (uint32_t i = 0; i < devices->num_devices; ++i) {
    const LoadedDevice& device = devices->devices[i];
    if (device.weights) device.functions->release(device.device, device.weights);
    if (device.image) device.functions->unload(device.device, device.image);
    if (device.device) device.functions->close(device.device);
  }
  free(devices);
}

tessera_status create_session_devices(tessera_session* session, tessera_error* error) {
  const ModuleDevices* module = session->module->devices;
  if (!module) return TESSERA_OK;
  const size_t bytes =
      sizeof(SessionDevices) + module->num_devices * (sizeof(void*) + sizeof(tsr_device_memory) + sizeof(DeviceTrace));
  auto* devices = static_cast<SessionDevices*>(calloc(1, bytes));
  if (!devices) return fail(error, kErrMemory, "not enough memory for a session: %zu bytes were refused", bytes);
  devices->module = module;
  devices->failed = -1;
  devices->memory = reinterpret_cast<tsr_device_memory*>(devices + 1);
  devices->traces = reinterpret_cast<DeviceTrace*>(devices->memory + module->num_devices);
  devices->queues = reinterpret_cast<void**>(devices->traces + module->num_devices);
  session->devices = devices;  // which is freed with the session, whatever happens below
  const ModuleFile& file = session->module->file;
  for (uint32_t i = 0; i < module->num_devices; ++i) {
    const LoadedDevice& device = module->devices[i];
    const tsr_device_descr& row = file.devices()[i];
    Message message;
    devices->memory[i].weights = device.weights;
    devices->memory[i].arena = device.functions->allocate(device.device, row.arena_bytes);
    if (!devices->memory[i].arena) return no_memory(file, row, "values of a run", row.arena_bytes, error);
    if (device.functions->open_queue(device.device, row.num_tokens, row.scratch_bytes, &devices->queues[i],
                                     message.text) < 0) {
      devices->queues[i] = nullptr;
      return no_device(file, row, "it has no queue", message.text, error);
    }
  }
  session->call.devices = devices->memory;
  session->host.start = host_start;
  session->host.copy = host_copy;
  session->host.mark = host_mark;
  session->host.wait = host_wait;
  return TESSERA_OK;
}

void free_session_devices(tessera_session* session) {
  SessionDevices* devices = session->devices;
  if (!devices) return;
  for (uint32_t i = 0; i < devices->module->num_devices; ++i) {
    const LoadedDevice& device = devices->module->devices[i];
    if (devices->queues[i]) device.functions->close_queue(devices->queues[i]);
    if (devices->memory[i].arena) device.functions->release(device.device, devices->memory[i].arena);
  }
  free(devices);
  session->devices = nullptr;
}

void set_device_trace(tessera_session* session, tessera_device_trace_fn trace, void* user) {
  SessionDevices* devices = session->devices;
  if (!devices) return;
  const auto tell = [](void* argument, const char* operation, int64_t begin_ns, int64_t end_ns) {
    const auto* of = static_cast<const DeviceTrace*>(argument);
    of->trace(of->user, of->device, operation, begin_ns, end_ns);
  };
  for (uint32_t i = 0; i < devices->module->num_devices; ++i) {
    const tsr_device_functions& functions = *devices->module->devices[i].functions;
    if (!functions.set_trace) continue;
    functions.set_trace(devices->queues[i], nullptr, nullptr);  // nobody reads the row now
    devices->traces[i] = {trace, user, static_cast<int32_t>(i)};
    if (trace) functions.set_trace(devices->queues[i], tell, &devices->traces[i]);
  }
}

tessera_status device_failure(tessera_session* session, tessera_error* error) {
  SessionDevices* devices = session->devices;
  if (!devices) return TESSERA_OK;
  for (uint32_t i = 0; i < devices->module->num_devices; ++i)
    devices->module->devices[i].functions->drain(devices->queues[i]);
  if (devices->failed < 0) return TESSERA_OK;
  const ModuleFile& file = session->module->file;
  const tsr_device_descr& row = file.devices()[devices->failed];
  devices->failed = -1;
  return fail(error, kErrDeviceRun, "device '%s' of '%s' (kind '%s') has failed: %s; the outputs are not valid",
              clip_name(file.text(row.name)).text, file.name, file.text(row.kind), clip_name(devices->message).text);
}

}  // namespace tessera
