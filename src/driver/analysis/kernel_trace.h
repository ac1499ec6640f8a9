// What each thread does during a traced run: filled by the runtime's callbacks, read afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::inline driver {

// One thread's part in one call of one kernel. Worker 0 is the thread that called run(); its span covers the whole call
// of the kernel, those of others reach from their first piece of a parallel loop to the end of their last.
struct KernelSpan {
  int32_t kernel = 0;  // -1: an operation of a device that is no kernel of the model's list
  int32_t call = 0;    // number of the kernel call within the run
  int32_t worker = 0;
  int64_t begin_ns = 0;  // since the begin of the run
  int64_t end_ns = 0;
  int64_t busy_ns = 0;  // in pieces of parallel loops; for worker 0 the whole span where there was no such loop
  int64_t pieces = 0;   // of parallel loops
  // An operation of a device's queue, by its name, while the host goes on: call is -1, and worker is the device's
  // number, from 0.
  std::string operation = {};

  bool is_of_device() const { return !operation.empty(); }
};

// Thread safety: on_kernel on the thread that runs; on_piece on the worker's own thread, between two calls of
// on_kernel; on_operation on any thread.
class KernelTrace {
 public:
  explicit KernelTrace(int num_workers) : workers_(static_cast<size_t>(num_workers)) {}

  // Forgets what was recorded; times count from here.
  void start();
  void on_kernel(int32_t kernel, int32_t phase);
  void on_piece(int32_t kernel, int32_t worker, int32_t phase);
  void on_operation(int32_t device, const char* operation, int64_t begin_ns, int64_t end_ns);
  // Of the run since start(), by call, then by worker; behind them those of devices, in the order of their begins.
  std::vector<KernelSpan> spans() const;

 private:
  // Apart from each other in memory: threads write their own without disturbing others.
  struct alignas(64) Worker {
    std::vector<KernelSpan> spans;
    int64_t piece_begin = 0;
  };
  int64_t now() const;

  int64_t zero_ = 0;
  int32_t call_ = -1;  // written between kernels, when no worker is in a piece
  std::vector<Worker> workers_;
  std::mutex mutex_;
  std::vector<KernelSpan> operations_;  // guarded by mutex_
};

}  // namespace tessera::inline driver
