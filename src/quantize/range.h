// Which range of real numbers the integers that stand for a tensor cover: what calibration sees of the tensor, and the
// methods that choose from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline quantize {

// Counts numbers in bins of one width, a power of two. Bins begin at multiples of the width and are merged in pairs
// when the numbers need more than kMostBins, so that memory is constant and the counts do not depend on the order of
// the numbers. Thread safety: one thread at a time.
class ValueHistogram {
 public:
  static constexpr int64_t kMostBins = 2048;

  // NaN and infinities are counted apart and are in no bin.
  void add(std::span<const float> numbers);

  int64_t count() const { return count_; }  // of finite numbers
  int64_t non_finite() const { return non_finite_; }
  double min() const { return min_; }  // 0 of none
  double max() const { return max_; }
  double width() const { return width_; }
  double begin_of(size_t bin) const { return static_cast<double>(first_ + static_cast<int64_t>(bin)) * width_; }
  const std::vector<int64_t>& bins() const { return bins_; }  // from the smallest number's to the largest's

 private:
  void cover(double low, double high);

  int64_t count_ = 0, non_finite_ = 0;
  double min_ = 0, max_ = 0;
  double width_ = 0;   // 0: no numbers yet
  int64_t first_ = 0;  // the first bin begins at first_ * width_
  std::vector<int64_t> bins_;
};

enum class RangeMethod : uint8_t {
  kMinMax,      // all that was seen
  kPercentile,  // but for a share of the numbers at each end
  kMse,         // of the shrunk ranges the one whose integers differ least from the numbers, in the mean square
  kEntropy,     // least Kullback-Leibler divergence (Migacz, 8-bit Inference with TensorRT, 2017)
};
const std::vector<std::string_view>& range_method_names();  // "minmax", "percentile", "mse", "entropy"
// UserError TSR-2090 for another name.
RangeMethod range_method(const std::string& name);

struct RangeOptions {
  RangeMethod method = RangeMethod::kMinMax;
  double percentile = 99.99;  // kPercentile: of the numbers are inside; above 50, at most 100
};

struct Range {
  double low = 0, high = 0;  // low <= 0 <= high: zero is always an integer
};

// Of integers with `levels` values. No numbers, or zeros alone: {0, 0}.
Range chosen_range(const ValueHistogram& histogram, const RangeOptions& options, int levels = 256);

// The number of bins of a distribution of magnitudes that the best threshold keeps, for `levels` integers of one sign:
// of all thresholds of at least `levels` bins the one where the clipped distribution and what is left of it in `levels`
// integers have the least Kullback-Leibler divergence; of equal ones the largest.
size_t entropy_threshold(std::span<const int64_t> magnitudes, size_t levels);

}  // namespace tessera::inline quantize
