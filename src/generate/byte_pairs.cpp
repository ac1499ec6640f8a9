#include "generate/byte_pairs.h"

#include <queue>

namespace tessera::inline generate {

std::vector<int32_t> join_neighbours(std::vector<int32_t> parts, const JoinOf& join_of) {
  constexpr size_t kNone = SIZE_MAX;
  struct Place {
    size_t before, behind;
  };
  struct Candidate {
    Join join;
    size_t left;
    int32_t left_part, right_part;                  // as they were: it is void when one of them has changed
    bool operator<(const Candidate& other) const {  // the queue's first is the greatest
      if (other.join < join) return true;
      return !(join < other.join) && left > other.left;
    }
  };
  std::vector<Place> places(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) places[i] = {i == 0 ? kNone : i - 1, i + 1 == parts.size() ? kNone : i + 1};
  std::priority_queue<Candidate> queue;
  const auto offer = [&](size_t left) {
    if (left == kNone || places[left].behind == kNone) return;
    const int32_t right_part = parts[places[left].behind];
    if (const auto join = join_of(parts[left], right_part)) queue.push({*join, left, parts[left], right_part});
  };
  for (size_t i = 0; i < parts.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const size_t right = places[best.left].behind;
    if (parts[best.left] != best.left_part || right == kNone || parts[right] != best.right_part) continue;
    parts[best.left] = best.join.token;
    parts[right] = -1;
    places[best.left].behind = places[right].behind;
    if (places[right].behind != kNone) places[places[right].behind].before = best.left;
    offer(places[best.left].before);
    offer(best.left);
  }
  std::erase(parts, -1);
  return parts;
}

}  // namespace tessera::inline generate
