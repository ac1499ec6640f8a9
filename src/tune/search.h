// What to try next on one kernel: at random, by evolution from the best so far, or by evolution in front of a learned
// model of which the most promising are tried. The search knows a space of points and the times it is told; what is
// behind a point is no matter of its.
//
// Trials go to families (rules and sketches) by how near their best is to the best of all, with a bonus for what few
// were spent on, as in UCB (Auer et al., Machine Learning 47, 2002): without that, the family that happens to be ahead
// after the first rounds has all parents, and so all children.
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

namespace tessera::inline tune {

enum class SearchMode : uint8_t { kRandom, kEvolutionary, kModel };
const char* search_mode_name(SearchMode mode);

class Search {
 public:
  // Scores of loop programs, higher for what should be faster; for kModel.
  using Predict = std::function<std::vector<double>(const std::vector<const LoopProgram*>& programs)>;

  Search(const SearchSpace& space, SearchMode mode, uint64_t seed)
      : space_(space), mode_(mode), random_(seed), families_(space.families()) {}

  // A point that was measured, with its time (any unit, the same for all), or that failed (time <= 0).
  void told(const KnobPoint& point, double time);
  // Up to `count` points that were not proposed or told before, all of which the rules take; fewer when nothing else
  // could be found.
  std::vector<KnobPoint> propose(size_t count, const Predict& predict);
  // Whether the last call of propose ended for its time, before it had looked everywhere.
  bool is_slow() const { return is_slow_; }

 private:
  struct Candidate {
    KnobPoint point;
    size_t family = 0;
    SearchSpace::Loops loops;
    double score = 0;
  };
  struct Family {
    size_t tried = 0;                                 // that failed ones included
    size_t barren = 0;                                // attempts of this proposal without a new candidate, in a row
    std::vector<std::pair<double, KnobPoint>> times;  // ascending
  };
  // False when the point is declined, or its loops are known.
  bool admit(const KnobPoint& point, size_t family, std::vector<Candidate>& to);
  // A family drawn by its share in the next trials; nothing when none has anything left.
  std::optional<size_t> drawn_family();
  KnobPoint descendant(size_t family);
  std::vector<Candidate> search(size_t count, const Predict& predict);
  // The best of each family, as many as it draws. `ordered`: best first.
  std::vector<Candidate> best_of_families(std::vector<Candidate> ordered, size_t count);
  static std::vector<KnobPoint> points_of(std::vector<Candidate> candidates);
  std::vector<Candidate> evolved(size_t count, const Predict& predict);

  const SearchSpace& space_;
  SearchMode mode_;
  std::mt19937_64 random_;
  bool begun_ = false;
  std::vector<Family> families_;
  bool is_slow_ = false;
  std::set<uint64_t> seen_;  // hashes of loop programs
  // By the identity of a point that was looked at: the hash of its loops, or nothing when the rules decline it.
  std::unordered_map<std::string, std::optional<uint64_t>> loops_of_;
};

}  // namespace tessera::inline tune
