// The process's worker threads, shared by all sessions.
//
// One run at a time owns the pool (begin_run .. end_run) and splits its loops over it; the calling thread takes part
// as worker 0. A run that finds the pool taken does its loops alone on its own thread, so nothing ever waits for
// another run. Workers poll for the next loop for a while (long inside a run, briefly after it) and then sleep, so a
// kernel costs no system call and an idle process costs no CPU time.
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <atomic>

#include "abi/module_abi.h"

namespace tessera {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 512;  // worker 0 included; bounded by the bits of gate_

  // The one pool of the process. Its threads live as long as the process. Use no other instance.
  static ThreadPool& process();

  constexpr ThreadPool() = default;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Starts threads until runs of `threads` (2 .. kMaxThreads) can be served. Returns 0 or the errno of the thread
  // that could not be started. Takes a lock and allocates stacks: for creating sessions, not for running them.
  // After fork() a child has no workers until it calls this; its runs are serial until then.
  int reserve(int threads);

  // Takes the pool for one run and wakes `threads - 1` workers. False, with nothing taken, when another run has it,
  // or there is no worker.
  bool begin_run(int threads);
  void end_run();

  // Covers [0, n) by calls fn(arg, begin, end, worker) on disjoint ranges, each of at least `grain` iterations when
  // n >= grain and starting at a multiple of it, and returns when all are done. Ranges get smaller towards the end.
  // Only between begin_run and end_run, on the thread that called begin_run, and not from inside fn. Never allocates.
  void parallel_for(tsr_task_fn fn, const void* arg, int64_t n, int64_t grain);

 private:
  struct Loop {
    tsr_task_fn fn = nullptr;
    const void* arg = nullptr;
    int64_t n = 0, grain = 1;
    int64_t units = 0;  // whole grains in n; the last range takes the rest
    int threads = 0;    // workers with a greater index leave at once
  };

  static void* thread_main(void* worker);
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  void work_as(int worker);  // the life of a worker thread
  uint32_t wait_for_loop(int worker, uint32_t seen_epoch);
  void keep_off_the_owners_cpu();
  bool try_join(uint32_t gate);
  void leave();
  void take_ranges(int worker);
  void wait_for_members(int32_t joined);
  void wake(uint32_t worker_mask);

  // gate_ says whether the current loop may be joined, and counts who did:
  //   [epoch:20][open:1][joined:11]
  // Invariant: loop_ and the counters below change only while the gate is closed and left_ equals the joined count,
  // so a worker that joined through an open gate may read them until it leaves.
  static constexpr uint32_t kJoinedMask = (1u << 11) - 1;
  static constexpr uint32_t kOpen = 1u << 11;
  static constexpr int kEpochShift = 12;
  static_assert(kMaxThreads <= kJoinedMask);

  // Polled by everybody; written twice a loop and once per worker that joins.
  alignas(64) std::atomic<uint32_t> gate_{0};
  std::atomic<int> run_threads_{0};    // of the run that has (or last had) the pool
  std::atomic<bool> taken_{false};     // a run has the pool
  std::atomic<int> owner_cpu_{-1};     // where that run began
  std::atomic<uint32_t> sleepers_{0};  // nonzero: a worker below run_threads_ may be asleep
  Loop loop_;

  alignas(64) std::atomic<int64_t> next_unit_{0};      // of loop_, the next one nobody has taken
  alignas(64) std::atomic<int32_t> left_{0};           // workers that have joined loop_ and are done with it; a futex
  std::atomic<bool> owner_sleeps_{false};              // the owner waits on left_
  alignas(64) std::atomic<uint32_t> wake_counter_{0};  // the futex idle workers sleep on

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // guards starting threads, and fork
  std::atomic<int> workers_{0};                        // threads alive
  bool fork_handled_ = false;
};

}  // namespace tessera
