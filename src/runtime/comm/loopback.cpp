// Ranks that are sessions of one process: the n sessions of a module for n ranks, numbered in the order in which they
// first come to an operation... what tests of collectives need, without a network. Each session runs on a thread of
// its own.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/module_abi.h"
#include "runtime/comm/combine.h"
#include "runtime/comm/communicator.h"

namespace tessera {
namespace {

// The ranks of one image. They go from round to round together; there are two in each operation: when all operands are
// there, and when nobody reads them any more.
struct Ring {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint32_t num_ranks, joined;
  uint64_t round;
  uint32_t arrived;        // in this round
  bool* here;              // by rank: in this round
  bool* gone;              // by rank: its session has ended
  const void** operands;   // by rank
  uint32_t* operation;     // by rank: at which it is
  struct Letter* letters;  // in the order in which they were sent
};

// One that was sent and not yet received. They are copies, so that a send is done at once.
struct Letter {
  Letter* next;
  uint32_t from, to, message;
  uint64_t bytes;
};

struct Member {
  Ring* ring;
  uint32_t rank;
  void* result;  // until everybody has read the operands
  uint64_t result_bytes;
};

int32_t open(char*) { return 0; }

void unload(CollectiveImage* image) {
  auto* ring = static_cast<Ring*>(image->shared);
  if (!ring) return;
  while (Letter* letter = ring->letters) {
    ring->letters = letter->next;
    free(letter);
  }
  free(ring->here);
  free(ring->gone);
  free(ring->operands);
  free(ring->operation);
  free(ring);
  image->shared = nullptr;
}

int32_t load(CollectiveImage* image, char* message) {
  auto* ring = static_cast<Ring*>(calloc(1, sizeof(Ring)));
  image->shared = ring;
  const uint32_t n = image->head->num_ranks;
  if (ring) {
    pthread_mutex_init(&ring->mutex, nullptr);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&ring->changed, &monotonic);
    ring->num_ranks = n;
    ring->here = static_cast<bool*>(calloc(n, sizeof(bool)));
    ring->gone = static_cast<bool*>(calloc(n, sizeof(bool)));
    ring->operands = static_cast<const void**>(calloc(n, sizeof(void*)));
    ring->operation = static_cast<uint32_t*>(calloc(n, sizeof(uint32_t)));
  }
  if (ring && ring->here && ring->gone && ring->operands && ring->operation) return 0;
  snprintf(message, TSR_DEVICE_MESSAGE, "no memory for %u ranks", n);
  unload(image);
  return -1;
}

int32_t join(const CollectiveImage* image, void** result, char* message) {
  auto* ring = static_cast<Ring*>(image->shared);
  auto* member = static_cast<Member*>(calloc(1, sizeof(Member)));
  pthread_mutex_lock(&ring->mutex);
  const bool has_room = member && ring->joined < ring->num_ranks;
  if (has_room) *member = {ring, ring->joined++, nullptr, 0};
  pthread_mutex_unlock(&ring->mutex);
  if (!has_room) {
    snprintf(message, TSR_DEVICE_MESSAGE, "the module is made for %u ranks, and this session is one more",
             ring->num_ranks);
    free(member);
    return -1;
  }
  *result = member;
  return 0;
}

void leave(void* argument) {
  auto* member = static_cast<Member*>(argument);
  pthread_mutex_lock(&member->ring->mutex);
  member->ring->gone[member->rank] = true;
  pthread_cond_broadcast(&member->ring->changed);
  pthread_mutex_unlock(&member->ring->mutex);
  free(member->result);
  free(member);
}

// Until all ranks are there. Answers the rank that does not come, or -1.
int64_t meet(Member* member, const timespec& deadline) {
  Ring* ring = member->ring;
  pthread_mutex_lock(&ring->mutex);
  const uint64_t round = ring->round;
  ring->here[member->rank] = true;
  if (++ring->arrived == ring->num_ranks) {
    ring->arrived = 0;
    ++ring->round;
    memset(ring->here, 0, ring->num_ranks * sizeof(bool));
    pthread_cond_broadcast(&ring->changed);
  }
  int64_t missing = -1;
  while (ring->round == round && missing < 0) {
    for (uint32_t r = 0; r < ring->num_ranks; ++r)
      if (ring->gone[r] && missing < 0) missing = r;
    if (missing >= 0) break;
    if (pthread_cond_timedwait(&ring->changed, &ring->mutex, &deadline) != ETIMEDOUT || ring->round != round) continue;
    for (uint32_t r = 0; r < ring->num_ranks; ++r)
      if (!ring->here[r] && missing < 0) missing = r;
  }
  pthread_mutex_unlock(&ring->mutex);
  return missing;
}

void compute(const Ring* ring, const CollectiveOperation* operation, uint32_t rank, void* result) {
  const tsr_collective_row& row = *operation->row;
  uint32_t place = 0;
  while (operation->groups[place] != rank) ++place;
  const uint32_t own = place % row.group_size;
  const uint32_t* group = operation->groups + (place - own);
  const auto operand = [&](uint32_t i) { return static_cast<const uint8_t*>(ring->operands[group[i]]); };
  auto* out = static_cast<uint8_t*>(result);
  const uint64_t part = row.bytes / row.group_size;
  switch (row.kind) {
    case TSR_ALL_GATHER:
      for (uint32_t i = 0; i < row.group_size; ++i) memcpy(out + i * row.bytes, operand(i), row.bytes);
      break;
    case TSR_ALL_TO_ALL:
      for (uint32_t i = 0; i < row.group_size; ++i) memcpy(out + i * part, operand(i) + own * part, part);
      break;
    case TSR_RANK_SHIFT: {
      const int64_t from = shifted_place(*operation, rank, -int64_t{row.shift});
      if (from < 0) memset(out, 0, row.bytes);
      else memcpy(out, operand(static_cast<uint32_t>(from)), row.bytes);
      break;
    }
    default: {
      const bool scatters = row.kind == TSR_REDUCE_SCATTER;
      const uint64_t offset = scatters ? own * part : 0, count = scatters ? row.count / row.group_size : row.count;
      memcpy(out, operand(0) + offset, scatters ? part : row.bytes);
      for (uint32_t i = 1; i < row.group_size; ++i) combine(row.combiner, row.dtype, out, operand(i) + offset, count);
    }
  }
}

int32_t perform(void* argument, const CollectiveOperation* operation, const void* in, void* out, Idle, char* message) {
  auto* member = static_cast<Member*>(argument);
  Ring* ring = member->ring;
  const uint64_t bytes = result_bytes(operation);
  if (!can_combine(*operation->row)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "%s '%s' of an element type that this communicator does not combine",
             collective_name(operation), operation->name);
    return -1;
  }
  if (bytes > member->result_bytes) {
    free(member->result);
    member->result = malloc(bytes);
    member->result_bytes = member->result ? bytes : 0;
    if (!member->result) {
      snprintf(message, TSR_DEVICE_MESSAGE, "no memory for %s '%s'", collective_name(operation), operation->name);
      return -1;
    }
  }
  timespec deadline;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  const double seconds = patience();
  deadline.tv_sec += static_cast<time_t>(seconds);
  deadline.tv_nsec += static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9);
  if (deadline.tv_nsec >= 1000000000) {
    deadline.tv_nsec -= 1000000000;
    ++deadline.tv_sec;
  }
  ring->operands[member->rank] = in;
  ring->operation[member->rank] = operation->number;
  int64_t missing = meet(member, deadline);
  if (missing < 0) {
    for (uint32_t r = 0; r < ring->num_ranks; ++r) {
      if (ring->operation[r] == operation->number) continue;
      snprintf(message, TSR_DEVICE_MESSAGE, "rank %u is at %s '%s', and rank %u at another operation", member->rank,
               collective_name(operation), operation->name, r);
      return -1;
    }
    compute(ring, operation, member->rank, member->result);
    missing = meet(member, deadline);
  }
  if (missing >= 0) {
    snprintf(message, TSR_DEVICE_MESSAGE, "rank %u waits for rank %u of %u in %s '%s'", member->rank,
             static_cast<uint32_t>(missing), ring->num_ranks, collective_name(operation), operation->name);
    return -1;
  }
  memcpy(out, member->result, bytes);
  return 0;
}

// What is received, until it is there.
struct Expected {
  const CollectiveOperation* operation;
  void* memory;
  double begin;
};

int32_t post(void* argument, const CollectiveOperation* operation, void* memory, void** under_way, char* message) {
  auto* member = static_cast<Member*>(argument);
  const tsr_collective_row& row = *operation->row;
  auto* expected = static_cast<Expected*>(malloc(sizeof(Expected)));
  auto* letter = row.kind == TSR_SEND ? static_cast<Letter*>(malloc(sizeof(Letter) + row.bytes)) : nullptr;
  if (!expected || (row.kind == TSR_SEND && !letter)) {
    free(expected);
    free(letter);
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for %s '%s'", collective_name(operation), operation->name);
    return -1;
  }
  *expected = {operation, memory, seconds_now()};
  *under_way = expected;
  if (!letter) return 0;
  *letter = {nullptr, member->rank, row.peer, row.message, row.bytes};
  memcpy(letter + 1, memory, row.bytes);
  pthread_mutex_lock(&member->ring->mutex);
  Letter** end = &member->ring->letters;
  while (*end) end = &(*end)->next;
  *end = letter;
  pthread_mutex_unlock(&member->ring->mutex);
  return 0;
}

int32_t test(void* argument, void* under_way, char* message) {
  auto* member = static_cast<Member*>(argument);
  auto* expected = static_cast<Expected*>(under_way);
  const tsr_collective_row& row = *expected->operation->row;
  int32_t answer = row.kind == TSR_SEND ? 1 : 0;
  pthread_mutex_lock(&member->ring->mutex);
  for (Letter** at = &member->ring->letters; answer == 0 && *at; at = &(*at)->next) {
    Letter* letter = *at;
    if (letter->from != row.peer || letter->to != member->rank || letter->message != row.message) continue;
    answer = letter->bytes == row.bytes ? 1 : -1;
    if (answer > 0) memcpy(expected->memory, letter + 1, row.bytes);
    else
      snprintf(message, TSR_DEVICE_MESSAGE, "receive '%s': rank %u has sent another size", expected->operation->name,
               row.peer);
    *at = letter->next;
    free(letter);
    break;
  }
  const bool lost = member->ring->gone[row.peer];
  pthread_mutex_unlock(&member->ring->mutex);
  if (answer == 0 && (lost || seconds_now() - expected->begin > patience())) {
    snprintf(message, TSR_DEVICE_MESSAGE, "rank %u waits for rank %u of %u in receive '%s'", member->rank, row.peer,
             member->ring->num_ranks, expected->operation->name);
    answer = -1;
  }
  if (answer != 0) free(expected);
  return answer;
}

const Transport kTransport = {open, load, unload, join, leave, perform, post, test};

int32_t open_device(void** device, char* message) { return communicator::open_with(&kTransport, device, message); }

}  // namespace
}  // namespace tessera

extern "C" __attribute__((visibility("default"))) const tsr_device_functions tessera_device_loopback;
extern "C" const tsr_device_functions tessera_device_loopback = tessera::communicator::functions(tessera::open_device);
