// Ranks that are processes, by MPI: started by mpirun, one rank each. Collectives are MPI's own, on the thread of the
// queue, which asks again and again whether they are done, so that a rank whose peers do not come says so instead of
// waiting forever.
//
// A process that ends with an error leaves MPI without a goodbye: mpirun ends the others then.
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/module_abi.h"
#include "runtime/comm/communicator.h"

namespace tessera {
namespace {

constexpr int kQuestion = 1, kAnswer = 2;  // tags of a roll call: who are you waiting for, and at what
constexpr uint32_t kMostNamed = 4;         // ranks in a message

struct Member {
  const CollectiveImage* image;
  MPI_Comm all, calls;      // for operations, and for roll calls
  MPI_Comm* communicators;  // by operation
  int rank, ranks;
  uint32_t at;  // the operation that it waits in
  void* copy;   // of an operand whose place the result takes
};

int32_t failed(int code, const char* what, char* message) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  snprintf(message, TSR_DEVICE_MESSAGE, "MPI, %s: %s", what, text);
  return -1;
}

void finalize(int status, void*) {
  int done = 0;
  MPI_Finalized(&done);
  if (status == 0 && !done) MPI_Finalize();
}

int32_t open(char* message) {
  int started = 0, level = 0;
  MPI_Initialized(&started);
  if (!started) {
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) return failed(code, "starting", message);
    on_exit(finalize, nullptr);
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_MULTIPLE) {
    snprintf(message, TSR_DEVICE_MESSAGE, "this MPI does not let several threads call it");
    return -1;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return 0;
}

int32_t load(CollectiveImage* image, char* message) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (static_cast<uint32_t>(ranks) != image->head->num_ranks) {
    snprintf(message, TSR_DEVICE_MESSAGE,
             "the module is made for %u ranks, and this run has %d: mpirun -n %u starts them", image->head->num_ranks,
             ranks, image->head->num_ranks);
    return -1;
  }
  uint64_t own = image->head->digest;  // of stages: 0, and groups compare what they do
  auto* digests = static_cast<uint64_t*>(calloc(static_cast<size_t>(ranks), sizeof(uint64_t)));
  if (!digests) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for %d ranks", ranks);
    return -1;
  }
  const int code = MPI_Allgather(&own, 1, MPI_UINT64_T, digests, 1, MPI_UINT64_T, MPI_COMM_WORLD);
  int other = -1;
  for (int r = 0; code == MPI_SUCCESS && r < ranks; ++r)
    if (digests[r] != own && other < 0) other = r;
  free(digests);
  if (code != MPI_SUCCESS) return failed(code, "comparing programs", message);
  if (other < 0) return 0;
  snprintf(message, TSR_DEVICE_MESSAGE, "rank %d runs another program than rank %d: collectives differ", rank, other);
  return -1;
}

void unload(CollectiveImage*) {}

bool same_groups(const CollectiveOperation& a, const CollectiveOperation& b) {
  return a.row->group_size == b.row->group_size &&
         memcmp(a.groups, b.groups, a.image->head->num_ranks * sizeof(uint32_t)) == 0;
}

// The communicator of an operation's group, in which ranks stand as the operands do; those of all ranks of it agree in
// what they do with it.
int32_t make_group(Member* member, uint32_t number, char* message) {
  const CollectiveOperation& operation = member->image->operations[number];
  const uint32_t size = operation.row->group_size, *ranks = own_group(operation, static_cast<uint32_t>(member->rank));
  auto* ints = static_cast<int*>(malloc(size * sizeof(int)));
  auto* digests = static_cast<uint64_t*>(malloc(size * sizeof(uint64_t)));
  if (!ints || !digests) {
    free(ints);
    free(digests);
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a group of %u ranks", size);
    return -1;
  }
  for (uint32_t i = 0; i < size; ++i) ints[i] = static_cast<int>(ranks[i]);
  MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  int code = MPI_Comm_group(member->all, &all);
  if (code == MPI_SUCCESS) code = MPI_Group_incl(all, static_cast<int>(size), ints, &group);
  if (code == MPI_SUCCESS) code = MPI_Comm_create_group(member->all, group, 0, &made);
  if (code == MPI_SUCCESS) {
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    const uint64_t own = digest_of_group(operation, static_cast<uint32_t>(member->rank));
    code = MPI_Allgather(&own, 1, MPI_UINT64_T, digests, 1, MPI_UINT64_T, made);
    for (uint32_t i = 0; code == MPI_SUCCESS && i < size; ++i) {
      if (digests[i] == own) continue;
      snprintf(message, TSR_DEVICE_MESSAGE, "rank %d runs another program than rank %d: collectives differ",
               member->rank, ints[i]);
      code = MPI_ERR_OTHER;
    }
  }
  if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
  if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
  free(ints);
  free(digests);
  if (code != MPI_SUCCESS) return message[0] ? -1 : failed(code, "making groups", message);
  for (uint32_t i = 0; i < member->image->head->num_operations; ++i) {
    const CollectiveOperation& other = member->image->operations[i];
    if (!is_message(&other) && compare_groups(other, operation, static_cast<uint32_t>(member->rank)) == 0)
      member->communicators[i] = made;
  }
  return 0;
}

// In an order in which no two ranks wait for each other.
int32_t make_groups(Member* member, char* message) {
  message[0] = 0;
  while (true) {
    const CollectiveOperation* next = nullptr;
    for (uint32_t i = 0; i < member->image->head->num_operations; ++i) {
      const CollectiveOperation& operation = member->image->operations[i];
      if (is_message(&operation) || member->communicators[i] != MPI_COMM_NULL) continue;
      if (!next || compare_groups(operation, *next, static_cast<uint32_t>(member->rank)) < 0) next = &operation;
    }
    if (!next) return 0;
    if (const int32_t answer = make_group(member, next->number, message); answer < 0) return answer;
  }
}

int32_t join(const CollectiveImage* image, void** result, char* message) {
  auto* member = static_cast<Member*>(calloc(1, sizeof(Member)));
  auto* communicators = static_cast<MPI_Comm*>(calloc(image->head->num_operations + size_t{1}, sizeof(MPI_Comm)));
  if (!member || !communicators) {
    free(member);
    free(communicators);
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for a rank");
    return -1;
  }
  *member = {image, MPI_COMM_NULL, MPI_COMM_NULL, communicators, 0, 0, 0, nullptr};
  for (uint32_t i = 0; i < image->head->num_operations; ++i) communicators[i] = MPI_COMM_NULL;
  *result = member;
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &member->all);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &member->calls);
  if (code != MPI_SUCCESS) return failed(code, "joining", message);
  MPI_Comm_set_errhandler(member->all, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(member->calls, MPI_ERRORS_RETURN);
  MPI_Comm_rank(member->all, &member->rank);
  MPI_Comm_size(member->all, &member->ranks);
  return make_groups(member, message);
}

// Communicators stay: freeing one waits for all ranks, which may be gone.
void leave(void* argument) {
  auto* member = static_cast<Member*>(argument);
  free(member->communicators);
  free(member->copy);
  free(member);
}

MPI_Datatype type_of(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return MPI_DOUBLE;
    case TSR_F32: return MPI_FLOAT;
    case TSR_I64: return MPI_INT64_T;
    case TSR_I32: return MPI_INT32_T;
    case TSR_I16: return MPI_INT16_T;
    case TSR_I8: return MPI_INT8_T;
    case TSR_U64: return MPI_UINT64_T;
    case TSR_U32: return MPI_UINT32_T;
    case TSR_U16: return MPI_UINT16_T;
    case TSR_U8: return MPI_UINT8_T;
    default: return MPI_DATATYPE_NULL;
  }
}

MPI_Op function_of(uint32_t combiner) {
  switch (combiner) {
    case TSR_COMBINE_SUM: return MPI_SUM;
    case TSR_COMBINE_PROD: return MPI_PROD;
    case TSR_COMBINE_MIN: return MPI_MIN;
    default: return MPI_MAX;
  }
}

// Two requests: what is sent, and what comes.
int begin_shift(Member* member, const CollectiveOperation* operation, const void* in, void* out,
                MPI_Request* requests) {
  const tsr_collective_row& row = *operation->row;
  const MPI_Comm group = member->communicators[operation->number];
  const auto rank = static_cast<uint32_t>(member->rank);
  const int64_t to = shifted_place(*operation, rank, row.shift),
                from = shifted_place(*operation, rank, -int64_t{row.shift});
  const auto bytes = static_cast<int>(row.bytes);
  if (in == out && to >= 0) {
    free(member->copy);
    member->copy = malloc(row.bytes + 1);
    if (!member->copy) return MPI_ERR_NO_MEM;
    in = memcpy(member->copy, in, row.bytes);
  }
  int code = MPI_SUCCESS;
  if (to >= 0) code = MPI_Isend(in, bytes, MPI_BYTE, static_cast<int>(to), 0, group, &requests[0]);
  if (from < 0) memset(out, 0, row.bytes);
  else if (code == MPI_SUCCESS) code = MPI_Irecv(out, bytes, MPI_BYTE, static_cast<int>(from), 0, group, &requests[1]);
  return code;
}

int begin(Member* member, const CollectiveOperation* operation, const void* in, void* out, MPI_Request* request) {
  const tsr_collective_row& row = *operation->row;
  const MPI_Comm group = member->communicators[operation->number];
  const void* from = in == out ? MPI_IN_PLACE : in;
  switch (row.kind) {
    case TSR_ALL_REDUCE:
      return MPI_Iallreduce(from, out, static_cast<int>(row.count), type_of(row.dtype), function_of(row.combiner),
                            group, request);
    case TSR_REDUCE_SCATTER:
      return MPI_Ireduce_scatter_block(from, out, static_cast<int>(row.count / row.group_size), type_of(row.dtype),
                                       function_of(row.combiner), group, request);
    case TSR_RANK_SHIFT: return begin_shift(member, operation, in, out, request);
    case TSR_ALL_GATHER:
      return MPI_Iallgather(from, static_cast<int>(row.bytes), MPI_BYTE, out, static_cast<int>(row.bytes), MPI_BYTE,
                            group, request);
    default: {
      const int part = static_cast<int>(row.bytes / row.group_size);
      return MPI_Ialltoall(from, part, MPI_BYTE, out, part, MPI_BYTE, group, request);
    }
  }
}

// Answers the roll calls of others.
void answer_calls(Member* member) {
  int asked = 0;
  MPI_Status status;
  while (MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, member->calls, &asked, &status) == MPI_SUCCESS && asked) {
    uint32_t question = 0;
    MPI_Recv(&question, 1, MPI_UINT32_T, status.MPI_SOURCE, kQuestion, member->calls, MPI_STATUS_IGNORE);
    MPI_Send(&member->at, 1, MPI_UINT32_T, status.MPI_SOURCE, kAnswer, member->calls);
  }
}

// Asks all ranks what they are waiting in, and says who does not answer.
void call_the_roll(Member* member, const CollectiveOperation* operation, double waited, char* message) {
  constexpr double kSeconds = 1;
  auto* answers = static_cast<int64_t*>(malloc(static_cast<size_t>(member->ranks) * sizeof(int64_t)));
  if (!answers) return;
  for (int r = 0; r < member->ranks; ++r) {
    answers[r] = r == member->rank ? int64_t{operation->number} : int64_t{-1};
    if (r == member->rank) continue;
    MPI_Request request;
    if (MPI_Isend(&member->at, 1, MPI_UINT32_T, r, kQuestion, member->calls, &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }
  for (const double begin = seconds_now(); seconds_now() - begin < kSeconds;) {
    answer_calls(member);
    int answered = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kAnswer, member->calls, &answered, &status) == MPI_SUCCESS && answered) {
      uint32_t at = 0;
      MPI_Recv(&at, 1, MPI_UINT32_T, status.MPI_SOURCE, kAnswer, member->calls, MPI_STATUS_IGNORE);
      answers[status.MPI_SOURCE] = at;
    }
    pause_a_little(1);
  }
  int length = snprintf(message, TSR_DEVICE_MESSAGE, "rank %d has waited %.0f s in %s '%s': ", member->rank, waited,
                        collective_name(operation), operation->name);
  uint32_t named = 0;
  for (int r = 0; r < member->ranks && length < TSR_DEVICE_MESSAGE; ++r) {
    if (answers[r] == operation->number || named++ == kMostNamed) continue;
    const char* comma = named > 1 ? ", " : "";
    const auto room = static_cast<size_t>(TSR_DEVICE_MESSAGE - length);
    length += answers[r] < 0 ? snprintf(message + length, room, "%srank %d does not answer", comma, r)
                             : snprintf(message + length, room, "%srank %d is at '%s'", comma, r,
                                        member->image->operations[answers[r]].name);
  }
  if (named == 0 && length < TSR_DEVICE_MESSAGE)
    snprintf(message + length, static_cast<size_t>(TSR_DEVICE_MESSAGE - length), "all ranks wait, the network is slow");
  free(answers);
}

bool too_large(const CollectiveOperation* operation, char* message) {
  if (operation->row->bytes <= INT32_MAX) return false;
  snprintf(message, TSR_DEVICE_MESSAGE, "%s '%s' of more than 2 GiB", collective_name(operation), operation->name);
  return true;
}

int32_t perform(void* argument, const CollectiveOperation* operation, const void* in, void* out, Idle idle,
                char* message) {
  auto* member = static_cast<Member*>(argument);
  const tsr_collective_row& row = *operation->row;
  if (row.combiner != TSR_COMBINE_NONE && type_of(row.dtype) == MPI_DATATYPE_NULL) {
    snprintf(message, TSR_DEVICE_MESSAGE, "%s '%s' of an element type that MPI does not combine",
             collective_name(operation), operation->name);
    return -1;
  }
  if (too_large(operation, message)) return -1;
  member->at = operation->number;
  MPI_Request requests[] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int code = begin(member, operation, in, out, requests);
  const double started = seconds_now(), limit = patience();
  for (int done = 0; code == MPI_SUCCESS;) {
    code = MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS || done) break;
    const double waited = seconds_now() - started;
    if (waited > limit) {
      call_the_roll(member, operation, waited, message);
      return -1;
    }
    if (waited > 0.1) answer_calls(member);
    if (idle.function) idle.function(idle.user);
    pause_a_little(waited);
  }
  if (code != MPI_SUCCESS) return failed(code, operation->name, message);
  return 0;
}

struct Message {
  const CollectiveOperation* operation;
  MPI_Request request;
  double begin, limit;
};

int32_t post(void* argument, const CollectiveOperation* operation, void* memory, void** under_way, char* message) {
  const auto* member = static_cast<Member*>(argument);
  if (too_large(operation, message)) return -1;
  auto* result = static_cast<Message*>(malloc(sizeof(Message)));
  if (!result) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for %s '%s'", collective_name(operation), operation->name);
    return -1;
  }
  *result = {operation, MPI_REQUEST_NULL, seconds_now(), patience()};
  const tsr_collective_row& row = *operation->row;
  const auto bytes = static_cast<int>(row.bytes), peer = static_cast<int>(row.peer),
             tag = static_cast<int>(row.message);
  const int code = row.kind == TSR_SEND ? MPI_Isend(memory, bytes, MPI_BYTE, peer, tag, member->all, &result->request)
                                        : MPI_Irecv(memory, bytes, MPI_BYTE, peer, tag, member->all, &result->request);
  if (code != MPI_SUCCESS) {
    free(result);
    return failed(code, operation->name, message);
  }
  *under_way = result;
  return 0;
}

int32_t test(void* argument, void* under_way, char* message) {
  auto* member = static_cast<Member*>(argument);
  auto* own = static_cast<Message*>(under_way);
  const CollectiveOperation* operation = own->operation;
  int done = 0;
  MPI_Status status;
  const int code = MPI_Test(&own->request, &done, &status);
  int32_t answer = done ? 1 : 0;
  int count = 0;
  if (code != MPI_SUCCESS) {
    answer = failed(code, operation->name, message);
  } else if (done && operation->row->kind == TSR_RECEIVE) {
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (static_cast<uint64_t>(count) != operation->row->bytes) {
      snprintf(message, TSR_DEVICE_MESSAGE, "receive '%s': rank %u has sent %d bytes, and %llu are wanted",
               operation->name, operation->row->peer, count, static_cast<unsigned long long>(operation->row->bytes));
      answer = -1;
    }
  } else if (!done) {
    const double waited = seconds_now() - own->begin;
    if (waited > 0.1) answer_calls(member);
    if (waited > own->limit) {
      member->at = operation->number;
      call_the_roll(member, operation, waited, message);
      answer = -1;
    }
  }
  if (answer != 0) free(own);
  return answer;
}

const Transport kTransport = {open, load, unload, join, leave, perform, post, test};

int32_t open_device(void** device, char* message) { return communicator::open_with(&kTransport, device, message); }

}  // namespace
}  // namespace tessera

extern "C" __attribute__((visibility("default"))) const tsr_device_functions tessera_device_mpi;
extern "C" const tsr_device_functions tessera_device_mpi = tessera::communicator::functions(tessera::open_device);
