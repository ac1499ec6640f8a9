#include "tune/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/error.h"

namespace tessera::inline tune {

namespace {

constexpr size_t kAttemptsEach = 40;  // for a point that is neither declined nor known
constexpr size_t kBarren = 300;       // attempts in a row, after which nothing more is expected of a family for now
constexpr size_t kHopeless = 8;       // failed trials of a family without any that ran; a lost worker's count, too
constexpr double kHopelessSpeed = 0.3;
// A family whose best is at 0.8 of the speed of all gets a fifth of the trials, one at a half nearly none.
constexpr double kBonus = 0.4, kSharpness = 8;
constexpr size_t kParents = 12;
constexpr double kRandomShare = 0.15;  // of what evolution tries

}  // namespace

const char* search_mode_name(SearchMode mode) {
  static constexpr const char* kNames[] = {"random", "evolutionary", "model"};
  return kNames[static_cast<int>(mode)];
}

void Search::told(const KnobPoint& point, double time) {
  std::string why;
  if (const auto loops = space_.loops_at(point, why)) seen_.insert(loops->hash);
  const auto number = space_.family_of(point);
  if (!number) return;  // the rules' choice in a space of sketches
  Family& family = families_[*number];
  ++family.tried;
  if (time <= 0) return;
  const auto at = std::upper_bound(family.times.begin(), family.times.end(), time,
                                   [](double value, const auto& entry) { return value < entry.first; });
  family.times.insert(at, {time, point});
}

bool Search::admit(const KnobPoint& point, size_t family, std::vector<Candidate>& to) {
  ++families_[family].barren;
  // Making loops takes milliseconds, and evolution comes to the same points again and again.
  const auto [known, is_new] = loops_of_.try_emplace(identity_of(point));
  if (!is_new && (!known->second || seen_.contains(*known->second))) return false;
  std::string why;
  auto loops = space_.loops_at(point, why);
  if (!loops) return false;
  known->second = loops->hash;
  if (!seen_.insert(loops->hash).second) return false;
  families_[family].barren = 0;
  to.push_back({point, family, std::move(*loops)});
  return true;
}

std::optional<size_t> Search::drawn_family() {
  double best = std::numeric_limits<double>::infinity();
  for (const Family& family : families_)
    if (!family.times.empty()) best = std::min(best, family.times.front().first);
  std::vector<double> weights;
  for (const Family& family : families_) {
    double speed = family.tried < kHopeless ? 1 : kHopelessSpeed;
    if (!family.times.empty()) speed = best / family.times.front().first;
    const double hoped = speed * (1 + kBonus / std::sqrt(1 + static_cast<double>(family.tried)));
    weights.push_back(family.barren < kBarren ? std::pow(hoped, kSharpness) : 0);
  }
  if (std::accumulate(weights.begin(), weights.end(), 0.0) <= 0) return std::nullopt;
  return std::discrete_distribution<size_t>(weights.begin(), weights.end())(random_);
}

KnobPoint Search::descendant(size_t number) {
  const auto& times = families_[number].times;
  const double chance = std::uniform_real_distribution<double>(0, 1)(random_);
  if (times.empty() || chance < kRandomShare) return space_.random_point_of(number, random_);
  // The better, the more children.
  const size_t parents = std::min(kParents, times.size());
  const auto pick = [&]() -> const KnobPoint& {
    size_t i = 0;
    while (i + 1 < parents && random_() % 10 >= 4) ++i;
    return times[i].second;
  };
  const KnobPoint& parent = pick();
  if (random_() % 4 == 0) {
    const KnobPoint& other = pick();
    if (other.values.size() == parent.values.size() && !(other == parent))
      return space_.crossed(parent, other, random_);
  }
  return space_.mutated(parent, random_);
}

namespace {

// Draws of sketches of long kernels take up to a second, most of them refused: after some seconds what was found is
// all there is, so that a round of trials keeps to its time.
class Deadline {
 public:
  bool is_over() const {
    constexpr std::chrono::seconds kMost{6};
    return std::chrono::steady_clock::now() - begin_ > kMost;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<Search::Candidate> Search::evolved(size_t count, const Predict& predict) {
  const Deadline deadline;
  constexpr size_t kPopulation = 48;
  constexpr int kGenerations = 3;
  const std::set<uint64_t> before = seen_;
  std::vector<Candidate> all;
  const auto score = [&](size_t begin) {
    std::vector<const LoopProgram*> programs;
    for (size_t i = begin; i < all.size(); ++i) programs.push_back(&all[i].loops.program);
    if (programs.empty()) return;
    const std::vector<double> scores = predict(programs);
    for (size_t i = begin; i < all.size(); ++i) all[i].score = scores[i - begin];
  };
  for (int generation = 0; generation < kGenerations; ++generation) {
    const size_t begin = all.size();
    std::vector<std::vector<size_t>> promising(families_.size());  // of each family, of the generations before
    for (size_t i = 0; i < begin; ++i)
      if (auto& of_family = promising[all[i].family]; of_family.size() < kPopulation / 4) of_family.push_back(i);
    // Children of what was measured, and from the second generation on of what looks best.
    for (size_t attempt = 0; attempt < 3 * kPopulation && all.size() < begin + kPopulation; ++attempt) {
      if (is_slow_ = deadline.is_over(); is_slow_) break;
      const auto family = drawn_family();
      if (!family) break;
      const auto& parents = promising[*family];
      const bool from_pool = !parents.empty() && random_() % 2 == 0;
      admit(from_pool ? space_.mutated(all[parents[random_() % parents.size()]].point, random_) : descendant(*family),
            *family, all);
    }
    score(begin);
    std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  }
  // What is not tried now may be tried later.
  seen_ = before;
  all = best_of_families(std::move(all), count);
  for (const Candidate& candidate : all) seen_.insert(candidate.loops.hash);
  return all;
}

std::vector<Search::Candidate> Search::best_of_families(std::vector<Candidate> ordered, size_t count) {
  std::vector<size_t> places(families_.size());
  for (Family& family : families_) family.barren = 0;
  for (size_t i = 0; i < count; ++i)
    if (const auto family = drawn_family()) ++places[*family];
  std::vector<Candidate> chosen, others;
  for (Candidate& candidate : ordered) {
    size_t& left = places[candidate.family];
    (left > 0 ? chosen : others).push_back(std::move(candidate));
    if (left > 0) --left;
  }
  // Places that a family cannot fill go to whoever is best.
  for (size_t i = 0; i < others.size() && chosen.size() < count; ++i) chosen.push_back(std::move(others[i]));
  return chosen;
}

std::vector<KnobPoint> Search::propose(size_t count, const Predict& predict) {
  is_slow_ = false;
  if (families_.empty()) return {};
  for (Family& family : families_) family.barren = 0;
  std::vector<Candidate> chosen;
  if (!begun_) {
    for (const KnobPoint& point : space_.first_points())
      if (chosen.size() < count) admit(point, *space_.family_of(point), chosen);
    begun_ = true;
    if (chosen.size() == count) return points_of(std::move(chosen));
    count -= chosen.size();
  }
  std::vector<Candidate> more = search(count, predict);
  chosen.insert(chosen.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return points_of(std::move(chosen));
}

std::vector<KnobPoint> Search::points_of(std::vector<Candidate> candidates) {
  std::vector<KnobPoint> points;
  for (Candidate& candidate : candidates) points.push_back(std::move(candidate.point));
  return points;
}

std::vector<Search::Candidate> Search::search(size_t count, const Predict& predict) {
  std::vector<Candidate> chosen;
  if (mode_ == SearchMode::kModel && predict) {
    check(count > 0, "no candidates are asked for");
    chosen = evolved(count > 4 ? count - 1 : count, predict);
  }
  // Enough for every family to turn out barren, whichever is drawn first.
  const size_t attempts = std::max(kAttemptsEach * count, 2 * kBarren * families_.size());
  const Deadline deadline;
  for (size_t attempt = 0; attempt < attempts && chosen.size() < count; ++attempt) {
    if (is_slow_ = deadline.is_over(); is_slow_) break;
    if (mode_ == SearchMode::kRandom) {
      const size_t family = random_() % families_.size();
      admit(space_.random_point_of(family, random_), family, chosen);
      continue;
    }
    const auto family = drawn_family();
    if (!family) break;
    const bool blind = mode_ == SearchMode::kModel && predict;
    admit(blind ? space_.random_point_of(*family, random_) : descendant(*family), *family, chosen);
  }
  return chosen;
}

}  // namespace tessera::inline tune
