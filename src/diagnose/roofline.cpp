#include "diagnose/roofline.h"

#include <algorithm>

#include "support/error.h"

namespace tessera {

Roofline roofline_of(const KernelWork& kernel, int64_t model_constants, double seconds, const MachinePeaks& peaks,
                     int threads) {
  check(seconds > 0 && !peaks.levels.empty(), "a roofline needs a time and the machine's bandwidths");
  const bool alone = threads <= 1;
  const auto known = [](int64_t count) { return static_cast<double>(std::max<int64_t>(count, 0)); };
  const double work = known(kernel.flops), traffic = known(kernel.bytes);
  // L1 and L2 are there once for each core, and the kernel's data is shared out among them.
  const auto level_of = [&](double bytes) -> const MemoryLevel& {
    return *std::find_if(peaks.levels.begin(), peaks.levels.end() - 1, [&](const MemoryLevel& level) {
      const bool per_core = level.name == "L1" || level.name == "L2";
      const double cores = alone || !per_core ? 1 : threads;
      return level.capacity == INT64_MAX || bytes <= static_cast<double>(level.capacity) * cores;
    });
  };
  const auto seconds_from = [&](double bytes, const MemoryLevel& level) {
    return bytes / (alone ? level.one_thread : level.all_threads);
  };
  const double peak = alone ? peaks.fma_f32.one_thread : peaks.fma_f32.all_threads;
  const MemoryLevel& last = peaks.levels.back();
  const bool streams = &level_of(known(model_constants)) == &last;
  const double streamed = streams ? std::min(known(kernel.constant_bytes), traffic) : 0;
  const MemoryLevel& level = level_of(traffic - streamed);
  const double streamed_seconds = seconds_from(streamed, last), kept_seconds = seconds_from(traffic - streamed, level);
  const double compute_seconds = work / peak, memory_seconds = streamed_seconds + kept_seconds;

  Roofline result;
  result.gflops = work / seconds / 1e9;
  result.gbytes = traffic / seconds / 1e9;
  result.percent_of_peak = 100 * compute_seconds / seconds;
  result.compute_bound = compute_seconds > memory_seconds;
  result.percent_of_bound = 100 * std::max(compute_seconds, memory_seconds) / seconds;
  result.level = streamed_seconds > kept_seconds ? last.name : level.name;
  return result;
}

}  // namespace tessera
