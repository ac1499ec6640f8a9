// A device that is none: memory of this process under other addresses, and a thread for each queue that runs code of
// the CPU. Everything that a real device does differently shows: the host cannot follow its addresses, what is started
// happens later, and what is copied is copied then. For tests, and to be copied for a new kind of device.
//
// TESSERA_NULL_FAIL=N makes the N-th operation of each queue fail.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/device_abi.h"
#include "abi/module_abi.h"
#include "runtime/process/process_device.h"

namespace tessera {

namespace {

// An image is a shared object, whose entries are functions of this kind.
using Entry = void (*)(void** slots, const tsr_host* host);
struct Operation : ProcessOperation {
  Entry entry;
};

struct Image {
  ProcessCode code;
  ProcessOperation* operations;  // that somebody has asked for
};

int32_t load(void*, const void* image, uint64_t size, void** loaded, char* message) {
  auto* result = static_cast<Image*>(calloc(1, sizeof(Image)));
  if (!result) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for an image");
    return -1;
  }
  if (process_load_code(image, size, &result->code, message) < 0) {
    free(result);
    return -1;
  }
  *loaded = result;
  return 0;
}

void unload(void*, void* loaded) {
  auto* image = static_cast<Image*>(loaded);
  process_unload_code(image->code);
  while (ProcessOperation* operation = image->operations) {
    image->operations = operation->next;
    free(operation->name);
    free(operation);
  }
  free(image);
}

void* find(void* loaded, const char* name) {
  auto* image = static_cast<Image*>(loaded);
  void* entry = dlsym(image->code.handle, name);
  auto* operation = entry ? static_cast<Operation*>(calloc(1, sizeof(Operation))) : nullptr;
  char* own_name = operation ? strdup(name) : nullptr;
  if (!own_name) {
    free(operation);
    return nullptr;
  }
  operation->entry = reinterpret_cast<Entry>(entry);
  operation->name = own_name;
  operation->next = image->operations;
  return image->operations = operation;
}

void serial_for(void*, tsr_task_fn fn, const void* arg, int64_t n, int64_t) {
  if (n > 0) fn(arg, 0, n, 0);
}

int32_t run(const ProcessOperation* operation, void** slots, void*) {
  tsr_host host = {};
  host.size = sizeof(host);
  host.abi_version = TSR_ABI_VERSION;
  host.num_workers = 1;
  host.parallel_for = serial_for;
  static_cast<const Operation*>(operation)->entry(slots, &host);
  return 0;
}

constexpr ProcessKind kNull = {run, "TESSERA_NULL_FAIL"};

int32_t open_queue(void*, uint32_t num_tokens, uint64_t scratch_bytes, void** queue, char* message) {
  return process_open_queue(&kNull, num_tokens, scratch_bytes, queue, message);
}

}  // namespace

}  // namespace tessera

extern "C" __attribute__((visibility("default"))) const tsr_device_functions tessera_device_null;
extern "C" const tsr_device_functions tessera_device_null =
    tessera::process_functions(tessera::load, tessera::unload, tessera::find, tessera::open_queue);
