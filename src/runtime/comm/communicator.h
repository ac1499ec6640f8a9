// Communicators: devices whose operations are collectives (abi/collective_abi.h). What they share is in
// communicator.cpp: images, memory, and a queue with a thread of its own, so that ranks talk while the host computes.
// How ranks reach each other is a Transport, one for each library.
//
// No exceptions, no RTTI, no C++ library.
#pragma once

#include <stdint.h>

#include "abi/collective_abi.h"
#include "abi/device_abi.h"

namespace tessera {

struct CollectiveImage;

struct CollectiveOperation {
  const CollectiveImage* image;
  const tsr_collective_row* row;
  const char* name;        // of the model
  const char* entry;       // in the image
  const uint32_t* groups;  // [num_ranks], as the row says
  uint32_t number;         // in the image
};

// Checked, and immutable.
struct CollectiveImage {
  const tsr_collective_header* head;
  CollectiveOperation* operations;
  void* shared;  // the transport's own
};

struct Idle {
  void (*function)(void* user);
  void* user;
};

// Functions that answer int32_t answer 0, or a negative number with the reason in `message` (TSR_DEVICE_MESSAGE bytes).
struct Transport {
  int32_t (*open)(char* message);
  // All ranks load the same image; `image->shared` is the transport's to set.
  int32_t (*load)(CollectiveImage* image, char* message);
  void (*unload)(CollectiveImage* image);
  // Makes a queue a rank of the image's, on the thread that opens it. All ranks join in the same order of images.
  int32_t (*join)(const CollectiveImage* image, void** member, char* message);
  void (*leave)(void* member);
  // On the queue's thread, in order. `in` and `out` may be equal. After a failure the member is used no more. While it
  // waits for others, it calls `idle` now and then, where that is not null.
  int32_t (*perform)(void* member, const CollectiveOperation* operation, const void* in, void* out, Idle idle,
                     char* message);
  // Begins to send or to receive a message, whose memory is `memory`; `under_way` is what test() asks about: answers 1
  // once it is done, which ends it, and 0 before.
  int32_t (*post)(void* member, const CollectiveOperation* operation, void* memory, void** under_way, char* message);
  int32_t (*test)(void* member, void* under_way, char* message);
};

// The table of a library with this transport is made of these; `device` is a const Transport*.
namespace communicator {
int32_t open_with(const Transport* transport, void** device, char* message);
void close_device(void* device);
uint8_t* allocate(void* device, uint64_t bytes);
void release(void* device, uint8_t* memory);
int32_t load(void* device, const void* image, uint64_t size, void** loaded, char* message);
void unload(void* device, void* loaded);
void* find(void* loaded, const char* entry);
int32_t open_queue(void* device, uint32_t num_tokens, uint64_t scratch_bytes, void** queue, char* message);
void close_queue(void* queue);
int32_t start(void* queue, void* operation, void* const* args, uint32_t num_args, const int64_t* sizes,
              uint32_t num_sizes);
int32_t copy(void* queue, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device);
int32_t mark(void* queue, uint32_t token);
int32_t wait(void* queue, uint32_t token, char* message);
void drain(void* queue);
void set_trace(void* queue, tsr_operation_trace_fn trace, void* user);

// The table of a communicator: only how it is opened is its own.
constexpr tsr_device_functions functions(int32_t (*open)(void**, char*)) {
  return {sizeof(tsr_device_functions),
          TSR_DEVICE_ABI_VERSION,
          open,
          close_device,
          allocate,
          release,
          load,
          unload,
          find,
          open_queue,
          close_queue,
          start,
          copy,
          mark,
          wait,
          drain,
          set_trace};
}
}  // namespace communicator

bool is_message(const CollectiveOperation* operation);
// "all_reduce".
const char* collective_name(const CollectiveOperation* operation);
// The group of a rank in an operation: row->group_size ranks, in the order in which operands stand.
const uint32_t* own_group(const CollectiveOperation& operation, uint32_t rank);
// The place in its group that is so many behind a rank's own; -1: none.
int64_t shifted_place(const CollectiveOperation& operation, uint32_t rank, int64_t by);
// Which of two groups of a rank comes first: all ranks that are in both answer the same. 0: they are one.
int compare_groups(const CollectiveOperation& a, const CollectiveOperation& b, uint32_t rank);
// What the ranks of an operation's group do together, in the order in which the image has it.
uint64_t digest_of_group(const CollectiveOperation& of, uint32_t rank);
// Bytes of an operation's result.
uint64_t result_bytes(const CollectiveOperation* operation);
// How long a rank waits for others, in seconds: TESSERA_COMM_TIMEOUT, or 120.
double patience();
double seconds_now();
// What a thread does that asks again and again, which has waited so many seconds: first nothing, then it sleeps ever
// longer, because others want the cores.
void pause_a_little(double waited);

}  // namespace tessera
