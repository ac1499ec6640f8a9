#include "runtime/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace tessera {
namespace {

// Records every range of one loop and whether the rules were kept.
struct Recorder {
  Recorder(int64_t count, int64_t grain_, int threads_)
      : n(count), grain(grain_ < 1 ? 1 : grain_), threads(threads_), hits(new std::atomic<int>[size_t(count) + 1]()) {}

  static void task(const void* arg, int64_t begin, int64_t end, int32_t worker) {
    Recorder& self = *static_cast<Recorder*>(const_cast<void*>(arg));
    if (worker < 0 || worker >= self.threads) {
      self.faults += 1;
      return;
    }
    if (self.busy[worker].exchange(true)) self.faults += 1;  // two calls with one worker at once
    if (begin < 0 || begin >= end || end > self.n) self.faults += 1;
    if (begin % self.grain != 0) self.faults += 1;
    if (end - begin < self.grain && self.n >= self.grain) self.faults += 1;
    for (int64_t i = begin; i < end && i < self.n; ++i) self.hits[size_t(i)] += 1;
    self.plain_sum[worker] += end - begin;  // not atomic: a race would show under ThreadSanitizer
    self.ranges += 1;
    self.busy[worker] = false;
  }

  void check() const {
    EXPECT_EQ(faults, 0);
    int64_t sum = 0;
    for (const int64_t part : plain_sum) sum += part;
    EXPECT_EQ(sum, n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(hits[size_t(i)], 1) << "iteration " << i << " of " << n;
  }

  int64_t n, grain;
  int threads;
  std::unique_ptr<std::atomic<int>[]> hits;
  std::atomic<int> faults{0}, ranges{0};
  std::atomic<bool> busy[64] = {};
  int64_t plain_sum[64] = {};
};

void sleep_us(int64_t us) {
  const timespec time = {us / 1000000, (us % 1000000) * 1000};
  nanosleep(&time, nullptr);
}

TEST(ThreadPool, CoversEachIterationOnce) {
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(8), 0);
  for (const int threads : {2, 3, 8, 4, 2}) {
    ASSERT_TRUE(pool.begin_run(threads));
    for (const int64_t n : {0, 1, 2, 3, 5, 7, 64, 1000, 4099, 100003}) {
      for (const int64_t grain : {1, 2, 7, 64, 5000, 1000000, 0, -3}) {
        Recorder recorder(n, grain, threads);
        pool.parallel_for(Recorder::task, &recorder, n, grain);
        SCOPED_TRACE(testing::Message() << threads << " threads, n " << n << ", grain " << grain);
        recorder.check();
      }
    }
    pool.end_run();
  }
}

TEST(ThreadPool, RangesGetSmallerAndAreFew) {
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(2), 0);
  ASSERT_TRUE(pool.begin_run(2));
  Recorder recorder(1 << 16, 16, 2);
  pool.parallel_for(Recorder::task, &recorder, 1 << 16, 16);
  recorder.check();
  EXPECT_GT(recorder.ranges, 4);
  EXPECT_LT(recorder.ranges, 64);  // 4096 grains; a share of a quarter each time leaves few ranges
  pool.end_run();
}

TEST(ThreadPool, CountsToTheEndOfInt64) {
  static std::atomic<int64_t> iterations;
  iterations = 0;
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(3), 0);
  ASSERT_TRUE(pool.begin_run(3));
  const auto count = [](const void*, int64_t begin, int64_t end, int32_t) { iterations += end - begin; };
  pool.parallel_for(count, nullptr, INT64_MAX, INT64_MAX / 5);
  EXPECT_EQ(iterations, INT64_MAX);
  iterations = 0;
  pool.parallel_for(count, nullptr, INT64_MAX, 1000000000000000);
  EXPECT_EQ(iterations, INT64_MAX);
  pool.end_run();
}

TEST(ThreadPool, WorkersTakePart) {
  // Worker 0 holds its range until another worker has shown up, so this hangs if none ever does.
  static std::atomic<bool> other_came;
  other_came = false;
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(2), 0);
  ASSERT_TRUE(pool.begin_run(2));
  const auto wait_for_other = [](const void*, int64_t, int64_t, int32_t worker) {
    if (worker != 0) other_came = true;
    while (!other_came) sleep_us(10);
  };
  pool.parallel_for(wait_for_other, nullptr, 2, 1);
  pool.end_run();
  EXPECT_TRUE(other_came);
}

TEST(ThreadPool, SleepingWorkersComeBack) {
  static std::atomic<bool> other_came;
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(4), 0);
  const auto wait_for_other = [](const void*, int64_t, int64_t, int32_t worker) {
    if (worker != 0) other_came = true;
    while (!other_came) sleep_us(10);
  };
  for (int i = 0; i < 60; ++i) {
    sleep_us(i % 3 == 0 ? 3000 : i * 10);  // around and far beyond the time that idle workers poll
    ASSERT_TRUE(pool.begin_run(2 + i % 3));
    sleep_us(i % 4 == 0 ? 2000 : i * 20);  // the same inside the run
    other_came = false;
    pool.parallel_for(wait_for_other, nullptr, 16, 1);
    pool.end_run();
  }
}

TEST(ThreadPool, OwnerSleepsWhileAWorkerIsSlow) {
  static std::atomic<int> slow_ranges;
  slow_ranges = 0;
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(2), 0);
  ASSERT_TRUE(pool.begin_run(2));
  // On a busy machine the worker may get no processor for a while: go on until it took part.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < 20 || (slow_ranges == 0 && std::chrono::steady_clock::now() < deadline); ++i) {
    const auto slow_worker = [](const void*, int64_t, int64_t, int32_t worker) {
      if (worker == 0) {
        sleep_us(200);
      } else {
        sleep_us(5000);
        slow_ranges += 1;
      }
    };
    pool.parallel_for(slow_worker, nullptr, 2, 1);
  }
  pool.end_run();
  if (slow_ranges == 0) GTEST_SKIP() << "no processor for a second thread within 20 s";
}

TEST(ThreadPool, OneRunAtATime) {
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(2), 0);
  ASSERT_TRUE(pool.begin_run(2));
  EXPECT_FALSE(pool.begin_run(2));
  bool taken = true;
  std::thread([&] { taken = pool.begin_run(2); }).join();
  EXPECT_FALSE(taken);
  pool.end_run();
  EXPECT_TRUE(pool.begin_run(2));
  pool.end_run();
  EXPECT_FALSE(pool.begin_run(1)) << "one thread needs no pool";
}

TEST(ThreadPool, StressFromManyThreads) {
  ThreadPool& pool = ThreadPool::process();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      std::mt19937 random(static_cast<unsigned>(caller));
      const int threads = 2 + caller;
      EXPECT_EQ(pool.reserve(threads), 0);
      for (int run = 0; run < 60;) {
        if (!pool.begin_run(threads)) {
          sleep_us(random() % 50);
          continue;
        }
        ++run;
        for (int loop = 0; loop < 12; ++loop) {
          const int64_t n = random() % 500, grain = 1 + random() % 9;
          Recorder recorder(n, grain, threads);
          pool.parallel_for(Recorder::task, &recorder, n, grain);
          recorder.check();
        }
        pool.end_run();
        if (random() % 8 == 0) sleep_us(random() % 400);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, ManyLoopsWrapTheEpoch) {
  // The gate counts loops in 20 bits; more loops than that go by here.
  static std::atomic<int64_t> iterations;
  iterations = 0;
  ThreadPool& pool = ThreadPool::process();
  ASSERT_EQ(pool.reserve(2), 0);
  ASSERT_TRUE(pool.begin_run(2));
  const auto count = [](const void*, int64_t begin, int64_t end, int32_t) {
    iterations.fetch_add(end - begin, std::memory_order_relaxed);
  };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kLoops = 20000;
#else
  constexpr int kLoops = (1 << 20) + 1000;
#endif
  for (int i = 0; i < kLoops; ++i) pool.parallel_for(count, nullptr, 2, 1);
  pool.end_run();
  EXPECT_EQ(iterations, 2 * int64_t{kLoops});
}

}  // namespace
}  // namespace tessera
