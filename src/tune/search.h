// What to try next on one kernel: at random, by evolution from the best so far, or by evolution in front of a learned
// model of which the most promising are tried. The search knows a space of points and the times it is told; what is
// behind a point is no matter of its.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tune/search_space.h"

namespace tessera {

enum class SearchMode : uint8_t { kRandom, kEvolutionary, kModel };
const char* search_mode_name(SearchMode mode);

class Search {
 public:
  // Scores of loop programs, higher for what should be faster; for kModel.
  using Predict = std::function<std::vector<double>(const std::vector<const LoopProgram*>& programs)>;

  Search(const SearchSpace& space, SearchMode mode, uint64_t seed) : space_(space), mode_(mode), random_(seed) {}

  // A point that was measured, with its time (any unit, the same for all), or that failed (time <= 0).
  void told(const KnobPoint& point, double time);
  // Up to `count` points that were not proposed or told before, all of which the rules take; fewer when nothing else
  // could be found.
  std::vector<KnobPoint> propose(size_t count, const Predict& predict);

  size_t known() const { return times_.size(); }

 private:
  struct Candidate {
    KnobPoint point;
    SearchSpace::Loops loops;
    double score = 0;
  };
  // False when the point is declined, or its loops are known.
  bool admit(const KnobPoint& point, std::vector<Candidate>& to);
  KnobPoint descendant();
  std::vector<Candidate> search(size_t count, const Predict& predict);
  static std::vector<KnobPoint> points_of(std::vector<Candidate> candidates);
  std::vector<Candidate> evolved(size_t count, const Predict& predict);

  const SearchSpace& space_;
  SearchMode mode_;
  std::mt19937_64 random_;
  bool begun_ = false;
  std::vector<std::pair<double, KnobPoint>> times_;  // ascending
  std::set<uint64_t> seen_;                          // hashes of loop programs
  // By the identity of a point that was looked at: the hash of its loops, or nothing when the rules decline it.
  std::unordered_map<std::string, std::optional<uint64_t>> loops_of_;
};

}  // namespace tessera
