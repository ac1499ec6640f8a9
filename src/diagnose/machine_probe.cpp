#include "diagnose/machine_probe.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "diagnose/probe_loops.h"

namespace tessera::inline diagnose {

namespace {

using Clock = std::chrono::steady_clock;

// Runs `work(thread)`, which answers how much it did, on `threads` threads at once, again and again for `seconds`;
// what all of them did in a second. All start together; each counts its own time.
double rate(int threads, double seconds, const std::function<double(int)>& work) {
  std::atomic<int> waiting{threads};
  std::vector<double> rates(static_cast<size_t>(threads), 0);
  const auto body = [&](int thread) {
    work(thread);  // warm up: caches, pages, frequency
    --waiting;
    while (waiting.load() > 0) std::this_thread::yield();
    const Clock::time_point begin = Clock::now();
    double done = 0, taken = 0;
    do {
      done += work(thread);
      taken = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (taken < seconds);
    rates[static_cast<size_t>(thread)] = done / taken;
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double one : rates) sum += one;
  return sum;
}

double best_rate(const ProbeOptions& options, int threads, const std::function<double(int)>& work) {
  double best = 0;
  for (int round = 0; round < options.rounds; ++round) best = std::max(best, rate(threads, options.seconds, work));
  return best;
}

ArithmeticPeak measure(const ProbeOptions& options, std::string name, const ArithmeticLoop& loop) {
  constexpr int64_t kIterations = 20000;
  const auto work = [&](int) { return loop.run(kIterations) * static_cast<double>(kIterations); };
  ArithmeticPeak peak{std::move(name), loop.instructions, best_rate(options, 1, work), 0};
  peak.all_threads = options.threads > 1 ? best_rate(options, options.threads, work) : peak.one_thread;
  return peak;
}

struct Unmap {
  size_t bytes = 0;
  void operator()(void* memory) const { munmap(memory, bytes); }
};

// `bytes` to read for each thread; large ones in huge pages where the system has them, as the runtime's memory is.
std::unique_ptr<void, Unmap> make_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {nullptr, Unmap{0}};
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::fill_n(static_cast<float*>(memory), bytes / sizeof(float), 1.0F);  // every page gets memory of its own
  return {memory, Unmap{bytes}};
}

// A working set in memory, for each thread. Empty when the machine has not that much.
std::vector<std::unique_ptr<void, Unmap>> working_sets(int threads, int64_t bytes) {
  std::vector<std::unique_ptr<void, Unmap>> memory;
  for (int thread = 0; thread < threads; ++thread) {
    memory.push_back(make_memory(static_cast<size_t>(bytes)));
    if (!memory.back()) return {};
  }
  return memory;
}

void measure_level(MachinePeaks& peaks, const ProbeOptions& options, const char* name, int64_t capacity,
                   int64_t working_set) {
  working_set = std::max<int64_t>(working_set / 4096 * 4096, 4096);
  const auto memory = working_sets(options.threads, working_set);
  if (memory.empty()) return;  // then there is no such figure
  const ReadLoop loop = widest_read_loop();
  // Clocks are read only now and then.
  const int64_t repeats = std::max<int64_t>(1, (1 << 20) / working_set);
  const auto work = [&](int thread) {
    const auto* data = static_cast<const float*>(memory[static_cast<size_t>(thread)].get());
    for (int64_t repeat = 0; repeat < repeats; ++repeat) loop(data, working_set);
    return static_cast<double>(repeats * working_set);
  };
  MemoryLevel level{name, capacity, working_set, best_rate(options, 1, work), 0};
  level.all_threads = options.threads > 1 ? best_rate(options, options.threads, work) : level.one_thread;
  peaks.levels.push_back(std::move(level));
}

// The last cache may be shared with other machines, and its size be that of all. What it holds for us is the largest
// part that one thread reads at a rate nearer to that of the level's own working set than to the memory's.
int64_t measured_capacity(const MemoryLevel& cache, const MemoryLevel& memory_level, const ProbeOptions& options) {
  const ReadLoop loop = widest_read_loop();
  const double least = std::sqrt(cache.one_thread * memory_level.one_thread);
  for (int64_t eighths = 8; eighths > 0; --eighths) {
    const int64_t bytes = cache.capacity / 8 * eighths / 4096 * 4096;
    if (bytes <= cache.working_set) break;
    const auto memory = working_sets(1, bytes);
    if (memory.empty()) continue;
    const auto work = [&](int) {
      loop(static_cast<const float*>(memory[0].get()), bytes);
      return static_cast<double>(bytes);
    };
    if (best_rate(options, 1, work) >= least) return bytes;
  }
  return std::min(cache.working_set, cache.capacity);
}

// How long data stays in the last cache while this program waits: other machines that share it drive it out. The
// longest wait, up to `kLongest`, behind which a thread reads the level's working set as measured_capacity asks.
double measured_retention(const MemoryLevel& cache, const MemoryLevel& memory_level, const ProbeOptions& options) {
  constexpr double kShortest = 0.25e-3, kLongest = 16e-3;
  const auto memory = working_sets(1, cache.working_set);
  if (memory.empty()) return std::numeric_limits<double>::infinity();
  const ReadLoop loop = widest_read_loop();
  const auto* data = static_cast<const float*>(memory[0].get());
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const double longest_read =
      static_cast<double>(cache.working_set) / std::sqrt(cache.one_thread * memory_level.one_thread);
  for (double wait = kShortest; wait <= kLongest; wait *= 2) {
    std::vector<double> reads;
    for (int round = 0; round < options.rounds; ++round) {
      // Twice, because a cache may keep only what was asked for again.
      for (int time = 0; time < 2; ++time) loop(data, cache.working_set);
      const Clock::time_point touched = Clock::now();
      while (seconds_since(touched) < wait) {
      }
      const Clock::time_point begin = Clock::now();
      loop(data, cache.working_set);
      reads.push_back(seconds_since(begin));
    }
    std::sort(reads.begin(), reads.end());
    if (reads[reads.size() / 2] > longest_read) return wait / 2;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

MachinePeaks measure_machine(const ProbeOptions& options) {
  MachinePeaks peaks;
  peaks.threads = options.threads;
  peaks.fma_f32 = measure(options, "f32 multiply-add", widest_fma_loop());
  if (!options.only_floats) {
    if (const auto loop = vnni_loop()) peaks.vnni = measure(options, "i8 dot products", *loop);
    if (const auto loop = amx_i8_loop()) peaks.amx_i8 = measure(options, "i8 tiles", *loop);
    if (const auto loop = amx_bf16_loop()) peaks.amx_bf16 = measure(options, "bf16 tiles", *loop);
  }
  if (options.l1_bytes > 0) measure_level(peaks, options, "L1", options.l1_bytes, options.l1_bytes / 2);
  if (options.l2_bytes > 0) measure_level(peaks, options, "L2", options.l2_bytes, options.l2_bytes / 2);
  // The threads share the last level.
  if (options.l3_bytes > 0)
    measure_level(peaks, options, "L3", options.l3_bytes,
                  std::max(options.l3_bytes / 2 / options.threads, 2 * options.l2_bytes));
  if (options.memory) {
    const int64_t caches = std::max<int64_t>(options.l3_bytes, options.l2_bytes);
    measure_level(peaks, options, "memory", INT64_MAX,
                  std::clamp<int64_t>(4 * caches / options.threads, 32 << 20, 256 << 20));
  }
  const size_t levels = peaks.levels.size();
  if (levels >= 2 && peaks.levels[levels - 1].name == "memory" && peaks.levels[levels - 2].name == "L3") {
    MemoryLevel& cache = peaks.levels[levels - 2];
    cache.capacity = measured_capacity(cache, peaks.levels[levels - 1], options);
    cache.keeps = measured_retention(cache, peaks.levels[levels - 1], options);
  }
  return peaks;
}

}  // namespace tessera::inline diagnose
