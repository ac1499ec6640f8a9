// Ranks that are processes which torchrun, or anybody who sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, has
// started: by gloo, over TCP. Collectives are gloo's own; parts of sums, of which it has none that fits, are exchanged
// and added here, in the order of ranks.
//
// A rank that has gone is noticed when its connection closes. gloo tells of errors by exceptions, which end in this
// file.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/combine.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/tcp_store.h"

namespace tessera {
namespace {

using ContextPtr = std::shared_ptr<gloo::rendezvous::Context>;

// Of the process.
struct World {
  int rank = 0, ranks = 1;
  std::shared_ptr<gloo::rendezvous::Store> store;
  std::shared_ptr<gloo::transport::Device> device;
  int members = 0;  // so far: all ranks count alike
};
World& world() {
  static auto* one = new World();  // threads use it to the end
  return *one;
}

struct Message {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  bool is_send = false;
  std::atomic<int> answer = 0;  // 1: done; -1: failed
  std::string reason;
};

struct Member {
  const CollectiveImage* image = nullptr;
  ContextPtr all;                    // for messages
  std::vector<ContextPtr> contexts;  // by operation
  std::vector<uint8_t> parts;        // of a sum
  // Messages are waited for in their order, on a thread: gloo's wait cannot be asked without being broken.
  std::thread waiter;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Message>> messages;
  bool ends = false;
};

std::chrono::milliseconds time_limit() { return std::chrono::milliseconds(static_cast<int64_t>(patience() * 1000)); }

int32_t failed(const std::string& reason, char* message) {
  snprintf(message, TSR_DEVICE_MESSAGE, "%s", reason.c_str());
  return -1;
}

const char* variable(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

uint16_t store_port() {
  if (const char* own = getenv("TESSERA_STORE_PORT")) return static_cast<uint16_t>(strtol(own, nullptr, 10));
  const long port = strtol(variable("MASTER_PORT"), nullptr, 10);
  // torchrun's agent listens there itself.
  const bool taken = strcmp(variable("TORCHELASTIC_USE_AGENT_STORE"), "True") == 0;
  return static_cast<uint16_t>(port + (taken ? 1 : 0));
}

int32_t open(char* message) {
  World& own = world();
  if (own.store) return 0;
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    if (!getenv(name)) return failed(std::string("the environment has no ") + name + ", which torchrun sets", message);
  own.rank = static_cast<int>(strtol(variable("RANK"), nullptr, 10));
  own.ranks = static_cast<int>(strtol(variable("WORLD_SIZE"), nullptr, 10));
  try {
    const std::string host = variable("MASTER_ADDR");
    const std::string token =
        std::string(variable("TORCHELASTIC_RUN_ID")) + "/" + variable("TORCHELASTIC_RESTART_COUNT");
    auto store = tcp_store(host, store_port(), own.rank == 0, token, patience());
    gloo::transport::tcp::attr at;
    const bool is_here = host == "localhost" || host.rfind("127.", 0) == 0;
    at.iface = variable("GLOO_SOCKET_IFNAME");
    char name[256] = "127.0.0.1";
    if (!is_here) gethostname(name, sizeof(name) - 1);
    if (at.iface.empty()) at.hostname = name;
    own.device = gloo::transport::tcp::CreateDevice(at);
    own.store = std::move(store);
  } catch (const std::exception& error) {
    return failed(error.what(), message);
  }
  return 0;
}

int32_t load(CollectiveImage* image, char* message) {
  if (static_cast<uint32_t>(world().ranks) == image->head->num_ranks) return 0;
  snprintf(message, TSR_DEVICE_MESSAGE,
           "the module is made for %u ranks, and this run has %d: torchrun --nproc-per-node %u starts them",
           image->head->num_ranks, world().ranks, image->head->num_ranks);
  return -1;
}

void unload(CollectiveImage*) {}

ContextPtr connected(const std::string& name, int rank, int ranks) {
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(time_limit());
  gloo::rendezvous::PrefixStore store(name, *world().store);
  context->connectFullMesh(store, world().device);
  return context;
}

// The context of an operation's group, and of all others of this group.
void connect_group(Member& member, const CollectiveOperation& operation, const std::string& name) {
  const auto rank = static_cast<uint32_t>(world().rank);
  const uint32_t size = operation.row->group_size, *ranks = own_group(operation, rank);
  std::string key = name;
  int place = 0;
  for (uint32_t i = 0; i < size; ++i) {
    key += "." + std::to_string(ranks[i]);
    if (ranks[i] == rank) place = static_cast<int>(i);
  }
  const ContextPtr context = connected(key, place, static_cast<int>(size));
  uint64_t own = digest_of_group(operation, rank);
  std::vector<uint64_t> digests(size);
  gloo::AllgatherOptions options(context);
  options.setInput(&own, 1);
  options.setOutput(digests.data(), digests.size());
  gloo::allgather(options);
  for (uint32_t i = 0; i < size; ++i)
    if (digests[i] != own)
      throw std::runtime_error("rank " + std::to_string(rank) + " runs another program than rank " +
                               std::to_string(ranks[i]) + ": collectives differ");
  for (uint32_t i = 0; i < member.image->head->num_operations; ++i) {
    const CollectiveOperation& other = member.image->operations[i];
    if (!is_message(&other) && compare_groups(other, operation, rank) == 0) member.contexts[i] = context;
  }
}

void wait_for_messages(Member* member) {
  std::unique_lock lock(member->mutex);
  while (true) {
    member->changed.wait(lock, [&] { return member->ends || !member->messages.empty(); });
    if (member->messages.empty()) return;
    const std::shared_ptr<Message> message = member->messages.front();
    member->messages.pop_front();
    lock.unlock();
    int answer = 1;
    try {
      const bool done =
          message->is_send ? message->buffer->waitSend(time_limit()) : message->buffer->waitRecv(time_limit());
      if (!done) answer = -1;
    } catch (const std::exception& error) {
      message->reason = error.what();
      answer = -1;
    }
    message->answer.store(answer, std::memory_order_release);
    lock.lock();
  }
}

int32_t join(const CollectiveImage* image, void** result, char* message) {
  auto member = std::make_unique<Member>();
  member->image = image;
  member->contexts.resize(image->head->num_operations);
  try {
    const std::string name = std::to_string(world().members++);
    member->all = connected(name + ".all", world().rank, world().ranks);
    while (true) {  // in an order in which no two ranks wait for each other
      const CollectiveOperation* next = nullptr;
      for (uint32_t i = 0; i < image->head->num_operations; ++i) {
        const CollectiveOperation& operation = image->operations[i];
        if (is_message(&operation) || member->contexts[i]) continue;
        if (!next || compare_groups(operation, *next, static_cast<uint32_t>(world().rank)) < 0) next = &operation;
      }
      if (!next) break;
      connect_group(*member, *next, name);
    }
  } catch (const std::exception& error) {
    return failed(error.what(), message);
  }
  member->waiter = std::thread(wait_for_messages, member.get());
  *result = member.release();
  return 0;
}

void leave(void* argument) {
  std::unique_ptr<Member> member(static_cast<Member*>(argument));
  {
    const std::lock_guard lock(member->mutex);
    member->ends = true;
  }
  member->changed.notify_all();
  member->waiter.join();
}

void add_up(Member& member, const CollectiveOperation* operation, const void* in, void* out) {
  const tsr_collective_row& row = *operation->row;
  const uint64_t part = row.bytes / row.group_size;
  member.parts.resize(row.bytes);
  gloo::AlltoallOptions options(member.contexts[operation->number]);
  options.setInput(static_cast<uint8_t*>(const_cast<void*>(in)), row.bytes);
  options.setOutput(member.parts.data(), row.bytes);
  options.setTimeout(time_limit());
  gloo::alltoall(options);
  memcpy(out, member.parts.data(), part);
  for (uint32_t i = 1; i < row.group_size; ++i)
    combine(row.combiner, row.dtype, out, member.parts.data() + i * part, row.count / row.group_size);
}

// Operands are sent from a copy, which the result may not write over.
void shift(Member& member, const CollectiveOperation* operation, const uint8_t* in, uint8_t* out) {
  const tsr_collective_row& row = *operation->row;
  const ContextPtr& context = member.contexts[operation->number];
  const auto rank = static_cast<uint32_t>(world().rank);
  const int64_t to = shifted_place(*operation, rank, row.shift),
                from = shifted_place(*operation, rank, -int64_t{row.shift});
  const uint64_t slot = context->nextSlot();
  member.parts.assign(in, in + row.bytes);
  const auto sent = context->createUnboundBuffer(member.parts.data(), row.bytes),
             received = context->createUnboundBuffer(out, row.bytes);
  if (from < 0) memset(out, 0, row.bytes);
  else received->recv(static_cast<int>(from), slot);
  if (to >= 0) sent->send(static_cast<int>(to), slot);
  if ((to >= 0 && !sent->waitSend(time_limit())) || (from >= 0 && !received->waitRecv(time_limit())))
    throw std::runtime_error("it has been ended");
}

template <typename Element>
void reduce_all(const ContextPtr& context, const tsr_collective_row& row, const void* in, void* out) {
  if (in != out) memcpy(out, in, row.bytes);
  gloo::AllreduceOptions options(context);
  options.setOutput(static_cast<Element*>(out), row.count);
  options.setTimeout(time_limit());
  options.setReduceFunction([&row](void* to, const void* a, const void* b, size_t count) {
    if (to == b) {
      combine(row.combiner, row.dtype, to, a, count);
      return;
    }
    if (to != a) memcpy(to, a, count * sizeof(Element));
    combine(row.combiner, row.dtype, to, b, count);
  });
  gloo::allreduce(options);
}

int32_t perform(void* argument, const CollectiveOperation* operation, const void* in, void* out, Idle, char* message) {
  auto& member = *static_cast<Member*>(argument);
  const tsr_collective_row& row = *operation->row;
  const ContextPtr& context = member.contexts[operation->number];
  auto* from = static_cast<uint8_t*>(const_cast<void*>(in));
  auto* to = static_cast<uint8_t*>(out);
  if (!can_combine(row)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "%s '%s' of an element type that this communicator does not combine",
             collective_name(operation), operation->name);
    return -1;
  }
  if (row.bytes == 0) return 0;
  try {
    if (row.kind == TSR_ALL_REDUCE) {
      switch (row.bytes / row.count) {
        case 1: reduce_all<uint8_t>(context, row, in, out); break;
        case 2: reduce_all<uint16_t>(context, row, in, out); break;
        case 4: reduce_all<uint32_t>(context, row, in, out); break;
        default: reduce_all<uint64_t>(context, row, in, out);
      }
    } else if (row.kind == TSR_REDUCE_SCATTER) {
      add_up(member, operation, in, out);
    } else if (row.kind == TSR_RANK_SHIFT) {
      shift(member, operation, from, to);
    } else if (row.kind == TSR_ALL_GATHER) {
      gloo::AllgatherOptions options(context);
      options.setInput(from, row.bytes);
      options.setOutput(to, row.bytes * row.group_size);
      options.setTimeout(time_limit());
      gloo::allgather(options);
    } else {
      member.parts.resize(row.bytes);
      gloo::AlltoallOptions options(context);
      options.setInput(from, row.bytes);
      options.setOutput(member.parts.data(), row.bytes);
      options.setTimeout(time_limit());
      gloo::alltoall(options);
      memcpy(out, member.parts.data(), row.bytes);
    }
  } catch (const std::exception& error) {
    return failed("rank " + std::to_string(world().rank) + " in " + collective_name(operation) + " '" +
                      operation->name + "': " + error.what(),
                  message);
  }
  return 0;
}

int32_t post(void* argument, const CollectiveOperation* operation, void* memory, void** under_way, char* message) {
  auto& member = *static_cast<Member*>(argument);
  const tsr_collective_row& row = *operation->row;
  try {
    auto own = std::make_shared<Message>();
    own->buffer = member.all->createUnboundBuffer(memory, row.bytes);
    own->is_send = row.kind == TSR_SEND;
    const uint64_t slot = row.message;
    if (own->is_send) own->buffer->send(static_cast<int>(row.peer), slot);
    else own->buffer->recv(static_cast<int>(row.peer), slot);
    *under_way = new std::shared_ptr<Message>(own);
    const std::lock_guard lock(member.mutex);
    member.messages.push_back(std::move(own));
  } catch (const std::exception& error) {
    return failed(std::string(collective_name(operation)) + " '" + operation->name + "': " + error.what(), message);
  }
  member.changed.notify_all();
  return 0;
}

int32_t test(void*, void* under_way, char* message) {
  auto* own = static_cast<std::shared_ptr<Message>*>(under_way);
  const int answer = (*own)->answer.load(std::memory_order_acquire);
  if (answer == 0) return 0;
  if (answer < 0) failed("rank " + std::to_string(world().rank) + ": " + (*own)->reason, message);
  delete own;
  return answer;
}

const Transport kTransport = {open, load, unload, join, leave, perform, post, test};

int32_t open_device(void** device, char* message) { return communicator::open_with(&kTransport, device, message); }

}  // namespace
}  // namespace tessera

extern "C" __attribute__((visibility("default"))) const tsr_device_functions tessera_device_gloo;
extern "C" const tsr_device_functions tessera_device_gloo = tessera::communicator::functions(tessera::open_device);
