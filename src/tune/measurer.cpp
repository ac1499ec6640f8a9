#include "tune/measurer.h"

#include <algorithm>
#include <chrono>

namespace tessera::inline tune {

std::vector<MeasuredTrial> LocalMeasurer::measure(const MeasuredKernel& kernel, const KnobPoint& incumbent,
                                                  const std::vector<KnobPoint>& candidates, bool thorough) {
  if (current_ != kernel.hash || known_.reuse != kernel.reuse) {
    known_ = {make_kernel_bench(kernel.definition, target_, kernel.reuse), kernel.reuse, {}, 0};
    known_.bench.runner = runner_;
    current_ = kernel.hash;
  }
  constexpr size_t kMostIncumbents = 4;
  const std::string text = identity_of(incumbent);
  if (known_.incumbents.size() > kMostIncumbents) known_.incumbents.clear();
  BuiltKernel& stands = known_.incumbents[text];
  if (!stands.file) {
    const auto begin = std::chrono::steady_clock::now();
    stands = build_kernel(known_.bench, &incumbent, limits_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    known_.build_seconds = std::max(known_.build_seconds, seconds);
  }

  std::vector<MeasuredTrial> trials(candidates.size());
  if (!stands.file) {
    for (MeasuredTrial& trial : trials) trial = {"build failed", "the incumbent: " + stands.failure, {}, -1};
    known_.incumbents.erase(text);
    return trials;
  }
  // Code that takes many times as long to build is long, and slow for that alone; a round of it would take a minute.
  constexpr double kTimesAsLong = 10, kLeastSeconds = 1;
  BenchLimits limits = limits_;
  limits.build_seconds = std::min(limits.build_seconds, kLeastSeconds + kTimesAsLong * known_.build_seconds);
  if (thorough) {
    limits.least_rounds = limits.most_rounds;
    limits.most_seconds *= 4;
  }
  const std::vector<BuiltKernel> built = build_kernels(known_.bench, candidates, limits);
  for (size_t i = 0; i < built.size(); ++i) {
    if (!built[i].file) {
      const size_t colon = built[i].failure.find(": ");
      trials[i] = {built[i].failure.substr(0, colon),
                   colon == std::string::npos ? "while it was built" : built[i].failure.substr(colon + 2),
                   {},
                   -1};
      continue;
    }
    KernelComparison compared = compare_kernels(known_.bench, stands, built[i], limits);
    trials[i] = {std::move(compared.status), std::move(compared.detail), std::move(compared.times), -1};
  }
  return trials;
}

}  // namespace tessera::inline tune
