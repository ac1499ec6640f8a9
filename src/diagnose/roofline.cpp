#include "diagnose/roofline.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "support/error.h"

namespace tessera::inline diagnose {

std::vector<CallTraffic> aged(std::vector<CallTraffic> traffic, double call_seconds, const MachinePeaks& peaks) {
  constexpr int64_t kFar = int64_t{1} << 40;  // more than any cache; workers take up to 1e15
  for (const MemoryLevel& level : peaks.levels)
    for (CallTraffic& argument : traffic)
      if (static_cast<double>(argument.calls) * call_seconds > level.keeps) argument.distance = kFar;
  return traffic;
}

const ArithmeticPeak* peak_of(const MachinePeaks& peaks, const std::string& unit) {
  if (unit.empty() || unit == peaks.fma_f32.name) return &peaks.fma_f32;
  for (const auto* peak : {&peaks.vnni, &peaks.amx_i8, &peaks.amx_bf16})
    if (*peak && (*peak)->name == unit) return &**peak;
  return nullptr;
}

Roofline roofline_of(const KernelWork& kernel, int64_t model_constants, double seconds, const MachinePeaks& peaks,
                     int threads) {
  check(seconds > 0 && !peaks.levels.empty(), "a roofline needs a time and the machine's bandwidths");
  const bool alone = threads <= 1;
  const auto known = [](int64_t count) { return std::max<int64_t>(count, 0); };
  std::vector<CallTraffic> traffic = kernel.traffic;
  if (traffic.empty()) {
    const int64_t constants = std::min(known(kernel.constant_bytes), known(kernel.bytes));
    traffic = {{constants, std::max<int64_t>(model_constants - constants, 0)}, {known(kernel.bytes) - constants, 0}};
  }
  // L1 and L2 are there once for each core, and the kernel's data is shared out among them.
  const auto level_of = [&](const CallTraffic& argument) {
    return std::find_if(peaks.levels.begin(), peaks.levels.end() - 1, [&](const MemoryLevel& level) {
      const bool per_core = level.name == "L1" || level.name == "L2";
      const int64_t cores = alone || !per_core ? 1 : threads;
      return level.capacity == INT64_MAX || argument.bytes + argument.distance <= level.capacity * cores;
    });
  };
  std::vector<double> seconds_of_level(peaks.levels.size(), 0);
  for (const CallTraffic& argument : traffic) {
    const auto level = level_of(argument);
    seconds_of_level[static_cast<size_t>(level - peaks.levels.begin())] +=
        static_cast<double>(argument.bytes) / (alone ? level->one_thread : level->all_threads);
  }
  const ArithmeticPeak* peak = peak_of(peaks, kernel.unit);
  const double compute_seconds =
      peak ? static_cast<double>(known(kernel.flops)) / (alone ? peak->one_thread : peak->all_threads) : 0;
  const double memory_seconds = std::accumulate(seconds_of_level.begin(), seconds_of_level.end(), 0.0);
  const auto slowest = std::max_element(seconds_of_level.begin(), seconds_of_level.end());

  Roofline result;
  result.has_peak = peak != nullptr;
  result.gflops = static_cast<double>(known(kernel.flops)) / seconds / 1e9;
  result.gbytes = static_cast<double>(known(kernel.bytes)) / seconds / 1e9;
  result.percent_of_peak = 100 * compute_seconds / seconds;
  result.compute_bound = compute_seconds > memory_seconds;
  result.percent_of_bound = 100 * std::max(compute_seconds, memory_seconds) / seconds;
  result.level = peaks.levels[static_cast<size_t>(slowest - seconds_of_level.begin())].name;
  return result;
}

}  // namespace tessera::inline diagnose
