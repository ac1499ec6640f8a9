#include "runtime/cuda/cuda_graphs.h"

#include <stdlib.h>
#include <string.h>

namespace tessera {

namespace {

// Without holes, because lists are compared byte by byte.
struct CudaCall {
  const CudaOperation* operation;
  const CudaLaunch* launch;
  uint32_t blocks[3], num_values;
};
static_assert(sizeof(CudaCall) == 32);

constexpr uint32_t kLeastCalls = 2;  // that are worth a graph
constexpr int kOfThisThread = 1;     // a capture that other threads may go on beside

bool grow(CudaCalls* calls, uint64_t size) {
  if (size <= calls->capacity) return true;
  const uint64_t capacity = size * 2;
  auto* bytes = static_cast<uint8_t*>(realloc(calls->bytes, capacity));
  if (!bytes) return false;
  calls->bytes = bytes;
  calls->capacity = capacity;
  return true;
}

CudaResult launch_each(const CudaCalls& calls, const CudaDevice* device, CudaStream stream,
                       const CudaOperation** failed) {
  void* parameters[kMostParameters];
  for (uint64_t at = 0; at < calls.size;) {
    CudaCall call;
    memcpy(&call, calls.bytes + at, sizeof(call));
    auto* values = reinterpret_cast<uint64_t*>(calls.bytes + at + sizeof(call));
    for (uint32_t i = 0; i < call.num_values; ++i) parameters[i] = values + i;
    const unsigned* threads = call.launch->threads;
    const CudaResult answer =
        device->cuda->cuLaunchKernel(call.launch->function, call.blocks[0], call.blocks[1], call.blocks[2], threads[0],
                                     threads[1], threads[2], call.launch->shared_bytes, stream, parameters, nullptr);
    if (answer != 0) {
      *failed = call.operation;
      return answer;
    }
    at += sizeof(call) + call.num_values * sizeof(uint64_t);
  }
  return 0;
}

// A graph of the list; null where the driver makes none, which changes nothing.
CudaGraphExec capture(const CudaCalls& calls, const CudaDevice* device, CudaStream stream) {
  const CudaLibrary& cuda = *device->cuda;
  if (cuda.cuStreamBeginCapture_v2(stream, kOfThisThread) != 0) return nullptr;
  const CudaOperation* failed = nullptr;
  const bool launched = launch_each(calls, device, stream, &failed) == 0;
  CudaGraph graph = nullptr;
  CudaGraphExec result = nullptr;
  const bool ended = cuda.cuStreamEndCapture(stream, &graph) == 0;
  if (launched && ended && graph && cuda.cuGraphInstantiateWithFlags(&result, graph, 0) != 0) result = nullptr;
  if (graph) cuda.cuGraphDestroy(graph);
  return result;
}

void forget(CudaGraphs::Kept* kept, const CudaDevice* device) {
  if (kept->graph) device->cuda->cuGraphExecDestroy(kept->graph);
  kept->graph = nullptr;
  kept->is_refused = false;
  kept->calls.size = 0;
}

bool is_same(const CudaCalls& a, const CudaCalls& b) {
  return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

}  // namespace

bool add_call(CudaGraphs* graphs, const CudaOperation* operation, const CudaLaunch* launch, const unsigned blocks[3],
              const uint64_t* values, uint32_t num_values) {
  CudaCalls* calls = &graphs->waiting;
  const uint64_t bytes = num_values * sizeof(uint64_t);
  if (!grow(calls, calls->size + sizeof(CudaCall) + bytes)) return false;
  const CudaCall call = {operation, launch, {blocks[0], blocks[1], blocks[2]}, num_values};
  memcpy(calls->bytes + calls->size, &call, sizeof(call));
  memcpy(calls->bytes + calls->size + sizeof(call), values, bytes);
  calls->size += sizeof(call) + bytes;
  ++calls->count;
  return true;
}

CudaResult run_calls(CudaGraphs* graphs, const CudaDevice* device, CudaStream stream, const CudaOperation** failed) {
  CudaCalls* waiting = &graphs->waiting;
  CudaResult answer = 0;
  if (waiting->count >= kLeastCalls && !graphs->are_off && device->cuda->has_graphs) {
    CudaGraphs::Kept* found = nullptr;
    CudaGraphs::Kept* oldest = graphs->kept;
    for (CudaGraphs::Kept& kept : graphs->kept) {
      if (kept.calls.size != 0 && is_same(kept.calls, *waiting)) found = &kept;
      if (kept.last_use < oldest->last_use) oldest = &kept;
    }
    if (found) {
      found->last_use = ++graphs->uses;
      if (!found->graph && !found->is_refused) {
        found->graph = capture(*waiting, device, stream);
        found->is_refused = !found->graph;
      }
    } else {
      // A graph that still runs may be destroyed: the driver keeps it until it has ended.
      forget(oldest, device);
      if (grow(&oldest->calls, waiting->size)) {
        memcpy(oldest->calls.bytes, waiting->bytes, waiting->size);
        oldest->calls.size = waiting->size;
        oldest->last_use = ++graphs->uses;
      }
    }
    if (found && found->graph) {
      CudaCall first;
      memcpy(&first, waiting->bytes, sizeof(first));
      *failed = first.operation;
      answer = device->cuda->cuGraphLaunch(found->graph, stream);
      drop_calls(graphs);
      return answer;
    }
  }
  answer = launch_each(*waiting, device, stream, failed);
  drop_calls(graphs);
  return answer;
}

void drop_calls(CudaGraphs* graphs) { graphs->waiting.size = graphs->waiting.count = 0; }

void close_graphs(CudaGraphs* graphs, const CudaDevice* device) {
  for (CudaGraphs::Kept& kept : graphs->kept) {
    forget(&kept, device);
    free(kept.calls.bytes);
  }
  free(graphs->waiting.bytes);
}

}  // namespace tessera
