// When one thing counts as faster than another on a machine that is never quiet: paired rounds and a sign test, which
// asks nothing of how the times are distributed.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::inline tune {

// REQUIRES: not empty.
double median_of(std::vector<double> values);

// The probability of at least `wins` heads in `rounds` throws of a fair coin.
double sign_test(int64_t wins, int64_t rounds);

// One round: the time of what stands, and of what wants its place, right after each other.
struct PairedTimes {
  std::vector<std::pair<double, double>> rounds;  // incumbent, candidate; in microseconds

  int64_t wins() const;         // rounds in which the candidate was faster
  double incumbent_us() const;  // medians
  double candidate_us() const;
  double ratio() const;  // median of candidate / incumbent over the rounds
};

// With incumbent and candidate in each other's place.
PairedTimes swapped(const PairedTimes& times);

// Chance alone gives so clear a result less often than once in so many comparisons.
inline constexpr double kSignificance = 0.01;
// A smaller gain is not worth another schedule.
inline constexpr double kLeastGain = 0.01;

// Whether the candidate is faster: the sign test is below kSignificance and the median gain is kLeastGain.
bool is_faster(const PairedTimes& times);

// A comparison that may end as soon as it is decided: it is looked at after 16, 32, ... 1024 rounds, each time at a
// seventh of kSignificance, so that all looks together err less often than kSignificance (Bonferroni).
enum class Verdict : uint8_t { kUndecided, kFaster, kSlower };
inline constexpr int64_t kFirstLook = 16, kLooks = 7, kMostRounds = kFirstLook << (kLooks - 1);
// Of the latest look that the rounds reach: whether the candidate is faster, or slower, in a sign test and the median.
Verdict verdict_of(const PairedTimes& times);

}  // namespace tessera::inline tune
