#include "diagnose/roofline.h"

#include <algorithm>

#include "support/error.h"

namespace tessera {

Roofline roofline_of(int64_t flops, int64_t bytes, double seconds, const MachinePeaks& peaks, int threads) {
  check(seconds > 0 && !peaks.levels.empty(), "a roofline needs a time and the machine's bandwidths");
  const bool alone = threads <= 1;
  const auto work = static_cast<double>(std::max<int64_t>(flops, 0));
  const auto traffic = static_cast<double>(std::max<int64_t>(bytes, 0));
  // L1 and L2 are there once for each core, and the kernel's data is shared out among them.
  const auto fits = [&](const MemoryLevel& level) {
    const bool per_core = level.name == "L1" || level.name == "L2";
    const double cores = alone || !per_core ? 1 : threads;
    return level.capacity == INT64_MAX || traffic <= static_cast<double>(level.capacity) * cores;
  };
  const MemoryLevel& level = *std::find_if(peaks.levels.begin(), peaks.levels.end() - 1, fits);
  const double peak = alone ? peaks.fma_f32.one_thread : peaks.fma_f32.all_threads;
  const double bandwidth = alone ? level.one_thread : level.all_threads;
  const double compute_seconds = work / peak, memory_seconds = traffic / bandwidth;

  Roofline result;
  result.gflops = work / seconds / 1e9;
  result.gbytes = traffic / seconds / 1e9;
  result.percent_of_peak = 100 * compute_seconds / seconds;
  result.compute_bound = compute_seconds > memory_seconds;
  result.percent_of_bound = 100 * std::max(compute_seconds, memory_seconds) / seconds;
  result.level = level.name;
  return result;
}

}  // namespace tessera
