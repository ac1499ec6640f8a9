#include "quantize/range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/error.h"

namespace tessera::inline quantize {
namespace {

constexpr int64_t kMost = ValueHistogram::kMostBins;

int64_t bin_of(double number, double width) { return static_cast<int64_t>(std::floor(number / width)); }

// The mean square of what integers of the range make of the numbers, a bin's taken in its middle; times their count.
double squared_error(const ValueHistogram& histogram, const Range& range, int levels) {
  const double step = (range.high - range.low) / (levels - 1);
  if (!(step > 0)) return std::numeric_limits<double>::infinity();
  double error = 0;
  for (size_t b = 0; b < histogram.bins().size(); ++b) {
    const int64_t count = histogram.bins()[b];
    if (count == 0) continue;
    const double begin = std::max(histogram.begin_of(b), histogram.min());
    const double end = std::min(histogram.begin_of(b) + histogram.width(), histogram.max());
    const double x = (begin + end) / 2, outside = std::max({range.low - x, x - range.high, 0.0});
    // Inside, a uniform distribution within a step.
    const double square = outside > 0 ? outside * outside : step * step / 12;
    error += static_cast<double>(count) * square;
  }
  return error;
}

Range percentile_range(const ValueHistogram& histogram, double percentile) {
  const double outside = static_cast<double>(histogram.count()) * (100 - percentile) / 200;
  const auto& bins = histogram.bins();
  Range range{histogram.min(), histogram.max()};
  double seen = 0;
  for (size_t b = 0; b < bins.size() && (seen += static_cast<double>(bins[b])) <= outside; ++b)
    range.low = histogram.begin_of(b + 1);
  seen = 0;
  for (size_t b = bins.size(); b-- > 0 && (seen += static_cast<double>(bins[b])) <= outside;)
    range.high = histogram.begin_of(b);
  return range;
}

Range least_error_range(const ValueHistogram& histogram, Range whole, int levels) {
  constexpr int kSteps = 100;
  const Range all = {std::min(whole.low, 0.0), std::max(whole.high, 0.0)};
  Range best = all;
  double least = squared_error(histogram, all, levels);
  // Each end on its own, then the other: a distribution of one sign has one end only.
  for (int round = 0; round < 2; ++round)
    for (double Range::* end : {&Range::low, &Range::high})
      for (int step = 1; step < kSteps; ++step) {
        Range range = best;
        range.*end = all.*end * step / kSteps;
        const double error = squared_error(histogram, range, levels);
        if (error < least) least = error, best = range;
      }
  return best;
}

Range entropy_range(const ValueHistogram& histogram, int levels) {
  // Bins [k, k + 1) and [-k - 1, -k) hold magnitudes of one bin; where the numbers are far from zero, several do.
  const auto magnitude_of = [&](size_t b) {
    const auto place = static_cast<int64_t>(std::llround(histogram.begin_of(b) / histogram.width()));
    return place < 0 ? -place - 1 : place;
  };
  const int64_t largest = std::max(magnitude_of(0), magnitude_of(histogram.bins().size() - 1));
  int64_t together = 1;
  while (largest / together >= kMost) together *= 2;
  std::vector<int64_t> magnitudes(static_cast<size_t>(largest / together + 1), 0);
  for (size_t b = 0; b < histogram.bins().size(); ++b)
    magnitudes[static_cast<size_t>(magnitude_of(b) / together)] += histogram.bins()[b];
  // Zero is an integer in any case: its peak (ReLU makes one) says nothing of the range.
  if (magnitudes.size() > 1) magnitudes[0] = magnitudes[1];
  // Numbers of one sign have all the integers.
  const bool one_sign = histogram.min() >= 0 || histogram.max() <= 0;
  const size_t kept = entropy_threshold(magnitudes, static_cast<size_t>(one_sign ? levels : levels / 2));
  const double threshold = static_cast<double>(kept) * static_cast<double>(together) * histogram.width();
  return {std::max(histogram.min(), -threshold), std::min(histogram.max(), threshold)};
}

}  // namespace

void ValueHistogram::cover(double low, double high) {
  const auto needed = [&](double width) { return bin_of(high, width) - bin_of(low, width) + 1; };
  // The widest magnitude decides how fine bins may be: numbers of a bin have 40 bits of places.
  const double magnitude = std::max(std::abs(low), std::abs(high));
  const double finest = magnitude > 0 ? std::ldexp(1, std::ilogb(magnitude) - 40) : std::ldexp(1, -149);
  double width = std::max(width_, std::max(finest, std::ldexp(1, -149)));
  if (width_ == 0) {
    const double apart = (high - low) / static_cast<double>(kMost);
    if (apart > 0) width = std::max(width, std::ldexp(1, std::ilogb(apart)));
  }
  while (needed(width) > kMost) width *= 2;
  if (width_ == 0) {
    width_ = width;
    first_ = bin_of(low, width);
    bins_.assign(static_cast<size_t>(needed(width)), 0);
    return;
  }
  const int64_t first = bin_of(low, width);
  std::vector<int64_t> bins(static_cast<size_t>(needed(width)), 0);
  for (size_t b = 0; b < bins_.size(); ++b) bins[static_cast<size_t>(bin_of(begin_of(b), width) - first)] += bins_[b];
  width_ = width;
  first_ = first;
  bins_ = std::move(bins);
}

void ValueHistogram::add(std::span<const float> numbers) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  int64_t finite = 0;
  for (const float number : numbers) {
    if (!std::isfinite(number)) continue;
    ++finite;
    low = std::min<double>(low, number);
    high = std::max<double>(high, number);
  }
  non_finite_ += static_cast<int64_t>(numbers.size()) - finite;
  if (finite == 0) return;
  if (count_ > 0) low = std::min(low, min_), high = std::max(high, max_);
  if (count_ == 0 || low < min_ || high > max_) cover(low, high);
  min_ = low;
  max_ = high;
  count_ += finite;
  for (const float number : numbers)
    if (std::isfinite(number)) ++bins_[static_cast<size_t>(bin_of(number, width_) - first_)];
}

const std::vector<std::string_view>& range_method_names() {
  static const std::vector<std::string_view> names = {"minmax", "percentile", "mse", "entropy"};
  return names;
}

RangeMethod range_method(const std::string& name) {
  const auto& names = range_method_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw UserError({.id = "TSR-2090",
                     .message = fmt::format("no method of calibration is called '{}'", name),
                     .node = {},
                     .legal = fmt::format("{}", fmt::join(names, ", ")),
                     .hint = {}});
  return static_cast<RangeMethod>(found - names.begin());
}

Range chosen_range(const ValueHistogram& histogram, const RangeOptions& options, int levels) {
  if (histogram.count() == 0) return {};
  Range range{histogram.min(), histogram.max()};
  switch (options.method) {
    case RangeMethod::kMinMax: break;
    case RangeMethod::kPercentile: range = percentile_range(histogram, options.percentile); break;
    case RangeMethod::kMse: range = least_error_range(histogram, range, levels); break;
    case RangeMethod::kEntropy: range = entropy_range(histogram, levels); break;
  }
  return {std::min(range.low, 0.0), std::max(range.high, 0.0)};
}

size_t entropy_threshold(std::span<const int64_t> magnitudes, size_t levels) {
  size_t best = magnitudes.size();
  double least = std::numeric_limits<double>::infinity();
  int64_t total = std::accumulate(magnitudes.begin(), magnitudes.end(), int64_t{0});
  std::vector<double> kept, integers;
  for (size_t threshold = magnitudes.size(); threshold >= levels && threshold > 0; --threshold) {
    // What is beyond the threshold becomes the largest number.
    kept.assign(magnitudes.begin(), magnitudes.begin() + static_cast<int64_t>(threshold));
    const auto inside = std::accumulate(kept.begin(), kept.end(), 0.0);
    kept.back() += static_cast<double>(total) - inside;
    // Each integer's share of the numbers is spread over those of its bins that have any.
    integers.assign(threshold, 0);
    for (size_t level = 0; level < levels; ++level) {
      const size_t begin = level * threshold / levels, end = (level + 1) * threshold / levels;
      double sum = 0;
      int64_t used = 0;
      for (size_t b = begin; b < end; ++b)
        if (magnitudes[b] > 0) sum += static_cast<double>(magnitudes[b]), ++used;
      for (size_t b = begin; b < end; ++b)
        if (magnitudes[b] > 0) integers[b] = sum / static_cast<double>(used);
    }
    if (!(inside > 0)) continue;
    double divergence = 0;
    constexpr double kNothing = 1e-12;  // where the integers have nothing of what was clipped
    for (size_t b = 0; b < threshold; ++b) {
      if (kept[b] == 0) continue;
      const double p = kept[b] / static_cast<double>(total), q = std::max(integers[b] / inside, kNothing);
      divergence += p * std::log(p / q);
    }
    if (divergence < least) least = divergence, best = threshold;
  }
  return best;
}

}  // namespace tessera::inline quantize
