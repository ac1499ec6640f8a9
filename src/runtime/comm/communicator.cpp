#include "runtime/comm/communicator.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <initializer_list>

#include "runtime/process/command_queue.h"
#include "runtime/core/dtypes.h"

namespace tessera {

const char* collective_name(const CollectiveOperation* operation) {
  switch (operation->row->kind) {
    case TSR_ALL_REDUCE: return "all_reduce";
    case TSR_ALL_GATHER: return "all_gather";
    case TSR_REDUCE_SCATTER: return "reduce_scatter";
    case TSR_ALL_TO_ALL: return "all_to_all";
    case TSR_SEND: return "send";
    case TSR_RANK_SHIFT: return "rank_shift";
    default: return "receive";
  }
}

bool is_message(const CollectiveOperation* operation) {
  return operation->row->kind == TSR_SEND || operation->row->kind == TSR_RECEIVE;
}

const uint32_t* own_group(const CollectiveOperation& operation, uint32_t rank) {
  uint32_t place = 0;
  while (operation.groups[place] != rank) ++place;
  return operation.groups + place / operation.row->group_size * operation.row->group_size;
}

int compare_groups(const CollectiveOperation& a, const CollectiveOperation& b, uint32_t rank) {
  if (a.row->group_size != b.row->group_size) return a.row->group_size < b.row->group_size ? -1 : 1;
  const uint32_t *of_a = own_group(a, rank), *of_b = own_group(b, rank);
  for (uint32_t i = 0; i < a.row->group_size; ++i)
    if (of_a[i] != of_b[i]) return of_a[i] < of_b[i] ? -1 : 1;
  return 0;
}

uint64_t digest_of_group(const CollectiveOperation& of, uint32_t rank) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (uint32_t i = 0; i < of.image->head->num_operations; ++i) {
    const CollectiveOperation& operation = of.image->operations[i];
    if (is_message(&operation) || compare_groups(operation, of, rank) != 0) continue;
    const tsr_collective_row& row = *operation.row;
    for (const uint64_t number : {uint64_t{row.kind}, uint64_t{row.combiner}, uint64_t{row.dtype}, row.count,
                                  static_cast<uint64_t>(int64_t{row.shift})})
      hash = (hash ^ number) * 0x100000001b3u;
  }
  return hash;
}

int64_t shifted_place(const CollectiveOperation& operation, uint32_t rank, int64_t by) {
  const uint32_t* group = own_group(operation, rank);
  int64_t place = 0;
  while (group[place] != rank) ++place;
  place += by;
  return place >= 0 && place < int64_t{operation.row->group_size} ? place : -1;
}

uint64_t result_bytes(const CollectiveOperation* operation) {
  const tsr_collective_row& row = *operation->row;
  if (row.kind == TSR_ALL_GATHER) return row.bytes * row.group_size;
  return row.kind == TSR_REDUCE_SCATTER ? row.bytes / row.group_size : row.bytes;
}

double patience() {
  constexpr double kDefault = 120;
  const char* text = getenv("TESSERA_COMM_TIMEOUT");
  const double given = text ? strtod(text, nullptr) : 0;
  return given > 0 ? given : kDefault;
}

double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void pause_a_little(double waited) {
  if (waited < 20e-6) return;
  if (waited < 200e-6) {
    sched_yield();
    return;
  }
  const timespec time = {0, waited < 0.01 ? 20000 : 200000};
  nanosleep(&time, nullptr);
}

namespace communicator {
namespace {

constexpr uint64_t kMemoryAlign = 256;

// ---- images ----

struct Loaded {
  const Transport* transport;
  CollectiveImage image;
  bool is_loaded;
};

// The text at an offset, null where it does not end inside of the image.
const char* text_at(const tsr_collective_header* head, uint32_t offset) {
  const auto* bytes = reinterpret_cast<const char*>(head);
  if (offset >= head->size || !memchr(bytes + offset, 0, head->size - offset)) return nullptr;
  return bytes + offset;
}

bool is_permutation(const uint32_t* ranks, uint32_t count) {
  auto* seen = static_cast<uint8_t*>(calloc(count, 1));
  bool fits = seen != nullptr;
  for (uint32_t i = 0; fits && i < count; ++i) fits = ranks[i] < count && !seen[ranks[i]]++;
  free(seen);
  return fits;
}

bool fits(const tsr_collective_header* head, const tsr_collective_row& row) {
  const int32_t bits = module_dtype_bits(row.dtype);
  const bool combines = row.kind == TSR_ALL_REDUCE || row.kind == TSR_REDUCE_SCATTER;
  const bool parts = row.kind == TSR_REDUCE_SCATTER || row.kind == TSR_ALL_TO_ALL;
  return text_at(head, row.entry) && text_at(head, row.name) && row.kind >= TSR_ALL_REDUCE &&
         row.kind <= TSR_RANK_SHIFT && (row.shift != 0) == (row.kind == TSR_RANK_SHIFT) && row.peer < head->num_ranks &&
         (row.combiner >= TSR_COMBINE_SUM) == combines && row.combiner <= TSR_COMBINE_MAX && bits > 0 &&
         row.count < (uint64_t{1} << 40) && row.bytes == (row.count * static_cast<uint64_t>(bits) + 7) / 8 &&
         row.group_size > 0 && head->num_ranks % row.group_size == 0 && (!parts || row.bytes % row.group_size == 0) &&
         row.groups % 4 == 0 && row.groups <= head->size && head->size - row.groups >= uint64_t{4} * head->num_ranks &&
         is_permutation(reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(head) + row.groups),
                        head->num_ranks);
}

const char* check_image(const tsr_collective_header* head, uint64_t size) {
  if (size < sizeof(*head) || memcmp(head->magic, TSR_COLLECTIVE_MAGIC, sizeof(TSR_COLLECTIVE_MAGIC)) != 0 ||
      head->size != size)
    return "it is none of collectives";
  if (head->num_ranks < 1 || head->num_ranks > TSR_MAX_RANKS ||
      head->num_operations > (size - sizeof(*head)) / sizeof(tsr_collective_row))
    return "its tables do not fit into it";
  const auto* rows = reinterpret_cast<const tsr_collective_row*>(head + 1);
  for (uint32_t i = 0; i < head->num_operations; ++i)
    if (!fits(head, rows[i])) return "an operation is inconsistent";
  return nullptr;
}

// ---- queues ----

struct Command {
  enum Kind : uint8_t { kStart, kCopy, kEnd } kind;
  const CollectiveOperation* operation;
  void *to, *from;
  uint64_t bytes;
};

// A message that was begun and is not done.
struct UnderWay {
  const CollectiveOperation* operation;
  void* request;  // the transport's
  uint8_t* memory;
  uint64_t number;  // of its command
  int64_t begin;    // of the trace
};
constexpr uint32_t kMostUnderWay = 64;

struct Queue : CommandQueue<Command> {
  const Transport* transport = nullptr;
  void* member = nullptr;             // of the image's ranks; null before the first operation
  uint64_t taken = 0;                 // commands that were begun: messages in order, which may be done in another one
  UnderWay under_way[kMostUnderWay];  // of the thread alone
  uint32_t num_under_way = 0;
  char message[TSR_DEVICE_MESSAGE] = {};
};

int32_t join(Queue* queue, const CollectiveOperation* operation) {
  return queue->member ? 0 : queue->transport->join(operation->image, &queue->member, queue->message);
}

// With the mutex: what is done is told to those who wait.
void tell(Queue* queue) {
  uint64_t done = queue->taken;
  for (uint32_t i = 0; i < queue->num_under_way; ++i)
    if (queue->under_way[i].number < done) done = queue->under_way[i].number;
  if (done == queue->done) return;
  queue->done = done;
  pthread_cond_broadcast(&queue->changed);
}

// Asks after all messages under way. False where none has ended.
bool progress(Queue* queue) {
  bool ended = false;
  for (uint32_t i = 0; i < queue->num_under_way;) {
    const UnderWay message = queue->under_way[i];
    const int32_t answer =
        queue->failed < 0 ? -1 : queue->transport->test(queue->member, message.request, queue->message);
    if (answer == 0) {
      ++i;
      continue;
    }
    ended = true;
    if (const auto trace = queue->trace; trace && answer > 0)
      trace(queue->trace_user, message.operation->name, message.begin, tsr_trace_clock());
    pthread_mutex_lock(&queue->mutex);
    if (answer < 0) queue->failed = -1;
    queue->under_way[i] = queue->under_way[--queue->num_under_way];
    tell(queue);
    pthread_mutex_unlock(&queue->mutex);
  }
  return ended;
}

void progress_of(void* queue) { progress(static_cast<Queue*>(queue)); }

bool overlap(const UnderWay& message, const void* memory, uint64_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(memory);
  return begin < message.memory + message.operation->row->bytes && message.memory < begin + bytes;
}

// Until no message is under way whose memory the command would use; null: until none is.
void wait_for_memory(Queue* queue, const void* memory, uint64_t bytes) {
  for (const double begin = seconds_now();;) {
    bool busy = queue->num_under_way == kMostUnderWay;
    for (uint32_t i = 0; i < queue->num_under_way; ++i)
      busy = busy || !memory || overlap(queue->under_way[i], memory, bytes);
    if (!busy) return;
    progress(queue);
    pause_a_little(seconds_now() - begin);
  }
}

int32_t post(Queue* queue, const Command& command, uint64_t number) {
  auto* memory = static_cast<uint8_t*>(command.operation->row->kind == TSR_SEND ? command.from : command.to);
  wait_for_memory(queue, memory, command.operation->row->bytes);
  if (queue->failed < 0) return queue->failed;
  if (const int32_t answer = join(queue, command.operation); answer < 0) return answer;
  UnderWay& message = queue->under_way[queue->num_under_way];
  message = {command.operation, nullptr, memory, number, queue->trace ? tsr_trace_clock() : 0};
  const int32_t answer =
      queue->transport->post(queue->member, command.operation, memory, &message.request, queue->message);
  if (answer == 0) ++queue->num_under_way;
  return answer;
}

int32_t execute(Queue* queue, const Command& command, uint64_t number) {
  if (command.kind == Command::kStart && is_message(command.operation)) return post(queue, command, number);
  const uint64_t in = command.kind == Command::kCopy ? command.bytes : command.operation->row->bytes;
  const uint64_t out = command.kind == Command::kCopy ? command.bytes : result_bytes(command.operation);
  wait_for_memory(queue, command.from, in);
  wait_for_memory(queue, command.to, out);
  if (command.kind == Command::kCopy) {
    memcpy(command.to, command.from, command.bytes);
    return 0;
  }
  if (const int32_t answer = join(queue, command.operation); answer < 0) return answer;
  const auto trace = queue->trace;
  const int64_t begin = trace ? tsr_trace_clock() : 0;
  const int32_t answer = queue->transport->perform(queue->member, command.operation, command.from, command.to,
                                                   {progress_of, queue}, queue->message);
  if (trace) trace(queue->trace_user, command.operation->name, begin, tsr_trace_clock());
  return answer;
}

void* work(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  double idle_since = seconds_now();
  pthread_mutex_lock(&queue->mutex);
  while (true) {
    if (queue->taken == queue->given) {
      if (queue->num_under_way == 0) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
      } else {
        pthread_mutex_unlock(&queue->mutex);
        if (progress(queue)) idle_since = seconds_now();
        else pause_a_little(seconds_now() - idle_since);
        pthread_mutex_lock(&queue->mutex);
      }
      continue;
    }
    const Command command = queue->ring[queue->taken % Queue::kRoom];
    if (command.kind == Command::kEnd) break;
    const uint64_t number = queue->taken;
    const bool runs = queue->failed == 0;  // ranks that have lost each other do not find together again
    pthread_mutex_unlock(&queue->mutex);
    const int32_t answer = runs ? execute(queue, command, number) : 0;
    idle_since = seconds_now();
    pthread_mutex_lock(&queue->mutex);
    if (answer < 0) queue->failed = answer;
    ++queue->taken;
    tell(queue);
  }
  pthread_mutex_unlock(&queue->mutex);
  wait_for_memory(queue, nullptr, 0);
  if (queue->member) queue->transport->leave(queue->member);
  return nullptr;
}

void give(Queue* queue, const Command& command) {
  queue->next_command() = command;
  queue->end_command();
}

}  // namespace

int32_t open_with(const Transport* transport, void** device, char* message) {
  *device = const_cast<Transport*>(transport);
  return transport->open(message);
}

void close_device(void*) {}

uint8_t* allocate(void*, uint64_t bytes) {
  if (bytes > INT64_MAX) return nullptr;
  return static_cast<uint8_t*>(aligned_alloc(kMemoryAlign, (bytes + kMemoryAlign) / kMemoryAlign * kMemoryAlign));
}

void release(void*, uint8_t* memory) { free(memory); }

int32_t load(void* device, const void* image, uint64_t size, void** result, char* message) {
  auto* loaded = static_cast<Loaded*>(calloc(1, sizeof(Loaded)));
  auto* copy = static_cast<tsr_collective_header*>(malloc(size > 0 ? size : 1));
  if (!loaded || !copy) {
    free(loaded);
    free(copy);
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for its image");
    return -1;
  }
  memcpy(copy, image, size);
  loaded->transport = static_cast<const Transport*>(device);
  loaded->image.head = copy;
  const char* wrong = check_image(copy, size);
  if (!wrong) {
    loaded->image.operations =
        static_cast<CollectiveOperation*>(calloc(copy->num_operations + size_t{1}, sizeof(CollectiveOperation)));
    if (!loaded->image.operations) wrong = "there is no memory for it";
  }
  if (wrong) {
    snprintf(message, TSR_DEVICE_MESSAGE, "the image is damaged: %s", wrong);
    unload(device, loaded);
    return -1;
  }
  const auto* rows = reinterpret_cast<const tsr_collective_row*>(copy + 1);
  for (uint32_t i = 0; i < copy->num_operations; ++i) {
    const auto* groups = reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(copy) + rows[i].groups);
    loaded->image.operations[i] = {&loaded->image, &rows[i], text_at(copy, rows[i].name), text_at(copy, rows[i].entry),
                                   groups,         i};
  }
  if (const int32_t answer = loaded->transport->load(&loaded->image, message); answer < 0) {
    unload(device, loaded);
    return answer;
  }
  loaded->is_loaded = true;
  *result = loaded;
  return 0;
}

void unload(void*, void* argument) {
  auto* loaded = static_cast<Loaded*>(argument);
  if (loaded->is_loaded) loaded->transport->unload(&loaded->image);
  free(loaded->image.operations);
  free(const_cast<tsr_collective_header*>(loaded->image.head));
  free(loaded);
}

void* find(void* argument, const char* entry) {
  const CollectiveImage& image = static_cast<Loaded*>(argument)->image;
  for (uint32_t i = 0; i < image.head->num_operations; ++i)
    if (strcmp(image.operations[i].entry, entry) == 0) return &image.operations[i];
  return nullptr;
}

int32_t open_queue(void* device, uint32_t num_tokens, uint64_t, void** result, char* message) {
  auto* queue = new_queue<Queue>(num_tokens);
  if (!queue) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a queue");
    return -1;
  }
  queue->transport = static_cast<const Transport*>(device);
  if (start_thread(queue, work, message) < 0) {
    free_queue(queue);
    return -1;
  }
  *result = queue;
  return 0;
}

void close_queue(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  give(queue, {Command::kEnd, nullptr, nullptr, nullptr, 0});
  pthread_join(queue->thread, nullptr);
  free_queue(queue);
}

int32_t start(void* argument, void* operation, void* const* args, uint32_t, const int64_t*, uint32_t) {
  give(static_cast<Queue*>(argument),
       {Command::kStart, static_cast<const CollectiveOperation*>(operation), args[1], args[0], 0});
  return 0;
}

int32_t copy(void* argument, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device) {
  give(static_cast<Queue*>(argument), {Command::kCopy, nullptr, to_device ? device_memory : host_memory,
                                       to_device ? host_memory : device_memory, bytes});
  return 0;
}

int32_t mark(void* argument, uint32_t token) {
  static_cast<Queue*>(argument)->mark(token);
  return 0;
}

int32_t wait(void* argument, uint32_t token, char* message) {
  auto* queue = static_cast<Queue*>(argument);
  queue->wait_until(queue->marks[token]);
  const int32_t failed = queue->failed;
  if (failed < 0) memcpy(message, queue->message, TSR_DEVICE_MESSAGE);
  pthread_mutex_unlock(&queue->mutex);
  return failed;
}

void drain(void* argument) {
  auto* queue = static_cast<Queue*>(argument);
  queue->wait_until(queue->given);
  pthread_mutex_unlock(&queue->mutex);
}

void set_trace(void* argument, tsr_operation_trace_fn trace, void* user) {
  static_cast<Queue*>(argument)->set_trace(trace, user);
}

}  // namespace communicator
}  // namespace tessera
