#include "runtime/cpu/thread_pool.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "runtime/cpu/affinity.h"
#include "runtime/cpu/float_state.h"
#include "runtime/cpu/futex.h"

namespace tessera {

namespace {

// How long a thread polls before it sleeps. Waking a sleeping thread takes about 66 us on a virtual machine, so less
// polling than that saves nothing. Inside a run the next loop is near, and a late worker costs more.
constexpr int64_t kPollIdleNs = 80'000;
constexpr int64_t kPollInRunNs = 400'000;
constexpr int64_t kPollOwnerNs = 200'000;
constexpr int kPollsPerClock = 32;  // reading the clock costs a few polls

int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Worker w sleeps with bit w (workers from 31 on share the last bit), so a wake reaches exactly those wanted.
uint32_t sleeper_bit(int worker) { return 1u << (worker < 31 ? worker : 31); }
uint32_t sleepers_below(int threads) { return threads >= 32 ? kAllSleepers : (1u << threads) - 1; }

}  // namespace

ThreadPool& ThreadPool::process() {
  static constinit ThreadPool pool;
  return pool;
}

// ---- threads ----------------------------------------------------------------------------------------------------

int ThreadPool::reserve(int threads) {
  pthread_mutex_lock(&mutex_);
  int failure = 0;
  if (!fork_handled_) {
    failure = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    fork_handled_ = failure == 0;
  }
  // Workers inherit the creator's signal mask: with everything blocked, handlers run on the program's own threads. What
  // an instruction raises goes to the thread that ran it: blocked, it would pass by the program's handler.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGILL, SIGFPE, SIGBUS, SIGSEGV, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int worker = workers_.load(std::memory_order_relaxed) + 1; failure == 0 && worker < threads; ++worker) {
    pthread_t thread;
    failure = pthread_create(&thread, nullptr, thread_main, reinterpret_cast<void*>(intptr_t{worker}));
    if (failure != 0) break;
    pthread_detach(thread);
    workers_.store(worker, std::memory_order_release);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_mutex_unlock(&mutex_);
  return failure;
}

void* ThreadPool::thread_main(void* argument) {
  const int worker = static_cast<int>(reinterpret_cast<intptr_t>(argument));
  char name[16];
  snprintf(name, sizeof(name), "tessera-%d", worker);
  pthread_setname_np(pthread_self(), name);
  if (binding_wanted()) bind_this_thread(worker);
  const DefaultFloatState float_state;
  process().work_as(worker);
  return nullptr;
}

void ThreadPool::before_fork() { pthread_mutex_lock(&process().mutex_); }

void ThreadPool::after_fork_in_parent() { pthread_mutex_unlock(&process().mutex_); }

void ThreadPool::after_fork_in_child() {
  // The workers did not come along. A run that the forking thread is inside of goes on serially.
  ThreadPool& pool = process();
  pool.workers_.store(0, std::memory_order_relaxed);
  pool.gate_.store(0, std::memory_order_relaxed);
  pool.left_.store(0, std::memory_order_relaxed);
  pool.owner_sleeps_.store(false, std::memory_order_relaxed);
  pool.sleepers_.store(0, std::memory_order_relaxed);
  pool.taken_.store(false, std::memory_order_relaxed);
  pthread_mutex_unlock(&pool.mutex_);
}

// ---- the side of the run ----------------------------------------------------------------------------------------

bool ThreadPool::begin_run(int threads) {
  const int available = workers_.load(std::memory_order_acquire) + 1;
  if (threads > available) threads = available;
  if (threads < 2) return false;
  if (taken_.exchange(true, std::memory_order_acquire)) return false;
  owner_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
  const int before = run_threads_.load(std::memory_order_relaxed);
  if (before != threads) {
    run_threads_.store(threads, std::memory_order_seq_cst);
    wake(kAllSleepers);  // those who went to sleep while they were not wanted did not say so in sleepers_
  } else if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    wake(sleepers_below(threads));
  }
  return true;
}

void ThreadPool::end_run() { taken_.store(false, std::memory_order_release); }

void ThreadPool::wake(uint32_t worker_mask) {
  sleepers_.store(0, std::memory_order_seq_cst);
  wake_counter_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(wake_counter_, worker_mask);
}

void ThreadPool::parallel_for(tsr_task_fn fn, const void* arg, int64_t n, int64_t grain) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  const int64_t units = n / grain;
  // workers_ is asked again because a fork may have taken them away within the run.
  const bool alone = units < 2 || workers_.load(std::memory_order_relaxed) == 0;
  if (alone) {
    fn(arg, 0, n, 0);
    return;
  }
  loop_ = {fn, arg, n, grain, units, run_threads_.load(std::memory_order_relaxed)};
  next_unit_.store(0, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  const uint32_t epoch = (gate_.load(std::memory_order_relaxed) >> kEpochShift) + 1;
  gate_.store(epoch << kEpochShift | kOpen, std::memory_order_seq_cst);
  // A worker marks sleepers_ before its last look at the gate, we open the gate before looking at sleepers_: one of
  // the two sees the other.
  if (sleepers_.load(std::memory_order_seq_cst) != 0) wake(sleepers_below(loop_.threads));
  take_ranges(0);
  const uint32_t closed = gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  wait_for_members(static_cast<int32_t>(closed & kJoinedMask));
}

void ThreadPool::wait_for_members(int32_t joined) {
  int64_t start = 0;
  for (int polls = 1;; ++polls) {
    if (left_.load(std::memory_order_acquire) == joined) return;
    cpu_pause();
    if (polls % kPollsPerClock != 0) continue;
    const int64_t now = now_ns();
    if (start == 0) start = now;
    if (now - start > kPollOwnerNs) break;
  }
  // A worker is far from done, or not being scheduled at all: give it the CPU.
  owner_sleeps_.store(true, std::memory_order_seq_cst);
  for (;;) {
    const int32_t left = left_.load(std::memory_order_seq_cst);
    if (left == joined) break;
    futex_wait(left_, left, kAllSleepers);
  }
  owner_sleeps_.store(false, std::memory_order_relaxed);
}

// ---- the side of the workers ------------------------------------------------------------------------------------

void ThreadPool::work_as(int worker) {
  uint32_t seen_epoch = 0;
  for (;;) {
    const uint32_t gate = wait_for_loop(worker, seen_epoch);
    seen_epoch = gate >> kEpochShift;
    if (!try_join(gate)) continue;
    // The run may have changed since wait_for_loop looked: only now is loop_ stable.
    if (worker < loop_.threads) take_ranges(worker);
    leave();
  }
}

// Returns the gate's value when it is open for a loop other than `seen_epoch`, which this worker has been in.
uint32_t ThreadPool::wait_for_loop(int worker, uint32_t seen_epoch) {
  int64_t start = now_ns();
  for (int polls = 1;; ++polls) {
    const uint32_t gate = gate_.load(std::memory_order_acquire);
    const bool wanted = worker < run_threads_.load(std::memory_order_relaxed);
    if ((gate & kOpen) && gate >> kEpochShift != seen_epoch && wanted) return gate;
    cpu_pause();
    if (polls % kPollsPerClock != 0) continue;
    const bool in_run = wanted && taken_.load(std::memory_order_relaxed);
    if (in_run) keep_off_the_owners_cpu();
    if (now_ns() - start < (in_run ? kPollInRunNs : kPollIdleNs)) continue;

    const uint32_t before = wake_counter_.load(std::memory_order_acquire);
    if (worker < run_threads_.load(std::memory_order_seq_cst)) sleepers_.store(1, std::memory_order_seq_cst);
    const uint32_t last_look = gate_.load(std::memory_order_seq_cst);
    const bool open = (last_look & kOpen) && last_look >> kEpochShift != seen_epoch &&
                      worker < run_threads_.load(std::memory_order_seq_cst);
    if (!open) {
      futex_wait(wake_counter_, before, sleeper_bit(worker));
      if (taken_.load(std::memory_order_relaxed)) keep_off_the_owners_cpu();
    }
    start = now_ns();
  }
}

// When all CPUs are busy, the kernel may wake a worker on the CPU of the thread that woke it, where the two take turns
// for milliseconds, one of them only polling. Any other CPU is better.
void ThreadPool::keep_off_the_owners_cpu() {
  const int cpu = sched_getcpu();
  if (cpu >= 0 && cpu == owner_cpu_.load(std::memory_order_relaxed)) leave_cpu(cpu);
}

bool ThreadPool::try_join(uint32_t gate) {
  const uint32_t epoch = gate >> kEpochShift;
  while ((gate & kOpen) && gate >> kEpochShift == epoch) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::leave() {
  left_.fetch_add(1, std::memory_order_seq_cst);
  // From here on the owner may start the next loop; left_ and owner_sleeps_ are then of that loop, which is harmless:
  // a wake for no reason is allowed.
  if (owner_sleeps_.load(std::memory_order_seq_cst)) futex_wake(left_, kAllSleepers);
}

// ---- both -------------------------------------------------------------------------------------------------------

// Guided self-scheduling: each range is a share of what is left, so few ranges are needed when all goes well, and the
// last ones are small enough to even out workers that were late or slow.
void ThreadPool::take_ranges(int worker) {
  const Loop loop = loop_;
  int64_t begin = next_unit_.load(std::memory_order_relaxed);
  while (begin < loop.units) {
    const int64_t rest = loop.units - begin;
    const int64_t share = rest / (2 * loop.threads);
    const int64_t end = begin + (share > 1 ? share : 1);
    if (!next_unit_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
    loop.fn(loop.arg, begin * loop.grain, end == loop.units ? loop.n : end * loop.grain, worker);
    begin = next_unit_.load(std::memory_order_relaxed);
  }
}

}  // namespace tessera
