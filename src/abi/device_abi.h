// What a library for a kind of device offers to the runtime: libtessera_KIND exports `tessera_device_KIND`, a table of
// functions. Plain C, like abi/module_abi.h. src/runtime/null is the example to copy.
//
// A device has memory of its own, whose addresses the host computes with and never follows; images, code that was made
// for it; and queues, each of which does what it is given in order. A session has a queue of its own.
//
// Functions that answer int32_t answer 0, or a negative number when they could not do it; then `message`, where there
// is one, holds why: "no memory for 4096 bytes". A queue whose work fails tells it at the next wait, and does nothing
// that it is given until then.
//
// Thread safety: a device may be used by several threads at once, a queue by one at a time.
#ifndef TESSERA_ABI_DEVICE_ABI_H_
#define TESSERA_ABI_DEVICE_ABI_H_

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_DEVICE_ABI_VERSION 2u
#define TSR_DEVICE_MESSAGE 160 /* bytes, with the NUL */

typedef void (*tsr_operation_trace_fn)(void* user, const char* operation, int64_t begin_ns, int64_t end_ns);

typedef struct tsr_device_functions {
  uint32_t size; /* sizeof(tsr_device_functions) */
  uint32_t abi_version;
  int32_t (*open)(void** device, char* message);
  void (*close)(void* device);
  /* Memory of the device, aligned to 256 bytes. Null when there is none. */
  uint8_t* (*allocate)(void* device, uint64_t bytes);
  void (*release)(void* device, uint8_t* memory);
  /* Copies the image. */
  int32_t (*load)(void* device, const void* image, uint64_t size, void** loaded, char* message);
  void (*unload)(void* device, void* loaded);
  /* Null when the image has no entry of this name. */
  void* (*find)(void* loaded, const char* entry);

  /* `scratch_bytes`: that each of its operations may use besides its arguments. */
  int32_t (*open_queue)(void* device, uint32_t num_tokens, uint64_t scratch_bytes, void** queue, char* message);
  void (*close_queue)(void* queue); /* when all is done */
  int32_t (*start)(void* queue, void* operation, void* const* args, uint32_t num_args, const int64_t* sizes,
                   uint32_t num_sizes);
  /* To the device, of kinds whose devices read one another's memory, from another one's as well as from the host's. */
  int32_t (*copy)(void* queue, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device);
  int32_t (*mark)(void* queue, uint32_t token);
  int32_t (*wait)(void* queue, uint32_t token, char* message);
  /* Until everything is done; forgets a failure. */
  void (*drain)(void* queue);
  /* From now on, `trace` is called after each operation with its begin and end on the clock CLOCK_MONOTONIC, in
   * nanoseconds, on any thread; null turns it off. What runs beside the host is measured by its own clock, and may wait
   * after each operation for that. The function may be missing: then nobody hears of operations. */
  void (*set_trace)(void* queue, tsr_operation_trace_fn trace, void* user);
} tsr_device_functions;

/* What traces count by. */
static inline int64_t tsr_trace_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_ABI_DEVICE_ABI_H_ */
