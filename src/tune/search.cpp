#include "tune/search.h"

#include <algorithm>

#include "support/error.h"

namespace tessera {

namespace {

constexpr int kAttemptsEach = 40;  // for a point that is neither declined nor known
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
  if (time <= 0) return;
  const auto at = std::upper_bound(times_.begin(), times_.end(), time,
                                   [](double value, const auto& entry) { return value < entry.first; });
  times_.insert(at, {time, point});
}

bool Search::admit(const KnobPoint& point, std::vector<Candidate>& to) {
  // Making loops takes milliseconds, and evolution comes to the same points again and again.
  const auto [known, is_new] = loops_of_.try_emplace(identity_of(point));
  if (!is_new && (!known->second || seen_.contains(*known->second))) return false;
  std::string why;
  auto loops = space_.loops_at(point, why);
  if (!loops) return false;
  known->second = loops->hash;
  if (!seen_.insert(loops->hash).second) return false;
  to.push_back({point, std::move(*loops)});
  return true;
}

KnobPoint Search::descendant() {
  const double chance = std::uniform_real_distribution<double>(0, 1)(random_);
  if (times_.empty() || chance < kRandomShare) return space_.random_point(random_);
  // The better, the more children.
  const size_t parents = std::min(kParents, times_.size());
  const auto pick = [&]() -> const KnobPoint& {
    size_t i = 0;
    while (i + 1 < parents && random_() % 10 >= 4) ++i;
    return times_[i].second;
  };
  const KnobPoint& parent = pick();
  if (random_() % 4 == 0) {
    const KnobPoint& other = pick();
    if (other.rule == parent.rule && other.values.size() == parent.values.size() && !(other == parent))
      return space_.crossed(parent, other, random_);
  }
  return space_.mutated(parent, random_);
}

std::vector<Search::Candidate> Search::evolved(size_t count, const Predict& predict) {
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
    // Children of what was measured, and from the second generation on of what looks best.
    for (size_t attempt = 0; attempt < 3 * kPopulation && all.size() < begin + kPopulation; ++attempt) {
      const bool from_pool = generation > 0 && random_() % 2 == 0 && begin > 0;
      admit(from_pool ? space_.mutated(all[random_() % std::min(begin, kPopulation / 4)].point, random_) : descendant(),
            all);
    }
    score(begin);
    std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  }
  // What is not tried now may be tried later.
  if (all.size() > count) all.resize(count);
  seen_ = before;
  for (const Candidate& candidate : all) seen_.insert(candidate.loops.hash);
  return all;
}

std::vector<KnobPoint> Search::propose(size_t count, const Predict& predict) {
  if (space_.spaces().empty() && space_.sketches().empty()) return {};
  std::vector<Candidate> chosen;
  if (!begun_) {
    for (const KnobPoint& point : space_.first_points())
      if (chosen.size() < count) admit(point, chosen);
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
  for (size_t attempt = 0; attempt < kAttemptsEach * count && chosen.size() < count; ++attempt) {
    const bool blind = mode_ == SearchMode::kRandom || (mode_ == SearchMode::kModel && predict);
    admit(blind ? space_.random_point(random_) : descendant(), chosen);
  }
  return chosen;
}

}  // namespace tessera
