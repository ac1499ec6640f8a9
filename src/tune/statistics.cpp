#include "tune/statistics.h"

#include <algorithm>
#include <cmath>

#include "support/error.h"

namespace tessera::inline tune {

double median_of(std::vector<double> values) {
  check(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double sign_test(int64_t wins, int64_t rounds) {
  double sum = 0;
  for (int64_t k = wins; k <= rounds; ++k)
    sum += std::exp(std::lgamma(rounds + 1.0) - std::lgamma(k + 1.0) - std::lgamma(rounds - k + 1.0) -
                    static_cast<double>(rounds) * std::log(2.0));
  return std::min(1.0, sum);
}

int64_t PairedTimes::wins() const {
  return std::count_if(rounds.begin(), rounds.end(), [](const auto& round) { return round.second < round.first; });
}

double PairedTimes::incumbent_us() const {
  std::vector<double> values;
  for (const auto& round : rounds) values.push_back(round.first);
  return median_of(std::move(values));
}

double PairedTimes::candidate_us() const {
  std::vector<double> values;
  for (const auto& round : rounds) values.push_back(round.second);
  return median_of(std::move(values));
}

double PairedTimes::ratio() const {
  std::vector<double> values;
  for (const auto& round : rounds) values.push_back(round.second / round.first);
  return median_of(std::move(values));
}

PairedTimes swapped(const PairedTimes& times) {
  PairedTimes result;
  for (const auto& [incumbent, candidate] : times.rounds) result.rounds.emplace_back(candidate, incumbent);
  return result;
}

bool is_faster(const PairedTimes& times) {
  if (times.rounds.empty()) return false;
  return sign_test(times.wins(), static_cast<int64_t>(times.rounds.size())) < kSignificance &&
         times.ratio() <= 1 - kLeastGain;
}

Verdict verdict_of(const PairedTimes& times) {
  PairedTimes seen;
  for (int64_t look = kMostRounds; look >= kFirstLook && seen.rounds.empty(); look /= 2)
    if (static_cast<int64_t>(times.rounds.size()) >= look)
      seen.rounds.assign(times.rounds.begin(), times.rounds.begin() + look);
  if (seen.rounds.empty()) return Verdict::kUndecided;
  const auto rounds = static_cast<int64_t>(seen.rounds.size());
  const int64_t losses = std::count_if(seen.rounds.begin(), seen.rounds.end(),
                                       [](const auto& round) { return round.second > round.first; });
  constexpr double kOfOneLook = kSignificance / kLooks;
  const double ratio = seen.ratio();
  if (ratio < 1 && sign_test(seen.wins(), rounds) < kOfOneLook) return Verdict::kFaster;
  if (ratio > 1 && sign_test(losses, rounds) < kOfOneLook) return Verdict::kSlower;
  return Verdict::kUndecided;
}

}  // namespace tessera::inline tune
