#include "program/reuse_distance.h"

#include <algorithm>
#include <map>

#include "program/memory_plan.h"

namespace tessera::inline program {

namespace {

// Pieces of memory, of the arena of a device (space -1 - device) or of a buffer.
struct Range {
  BufferId space = -1;
  int64_t begin = 0, end = 0;
};

Range range_of(const Program& program, BufferId id) {
  const auto [root, begin] = place_in_root(program, id);
  const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(root)];
  const bool in_arena = buffer.kind == BufferKind::kArena;
  const int64_t first = begin + (in_arena ? buffer.offset : 0);
  return {in_arena ? -1 - buffer.device : root, first, first + program.buffers[static_cast<size_t>(id)].bytes};
}

// When each byte was touched last, and how many bytes were touched last after some time: a sum over a binary indexed
// tree (Fenwick, A new data structure for cumulative frequency tables, 1994).
class LatestTouches {
 public:
  explicit LatestTouches(size_t times) : tree_(times + 1, 0) {}

  // -1: never.
  int64_t latest(const Range& range) const {
    if (range.begin == range.end) return -1;
    const auto space = pieces_.find(range.space);
    if (space == pieces_.end()) return -1;
    int64_t time = -1;
    auto piece = space->second.upper_bound(range.begin);
    if (piece != space->second.begin() && std::prev(piece)->second.end > range.begin) --piece;
    for (; piece != space->second.end() && piece->first < range.end; ++piece) time = std::max(time, piece->second.time);
    return time;
  }

  int64_t bytes_after(int64_t time) const { return total_ - bytes_until(time); }

  void touch(const Range& range, int64_t time) {
    if (range.begin == range.end) return;
    auto& space = pieces_[range.space];
    split_at(space, range.begin);
    split_at(space, range.end);
    for (auto piece = space.lower_bound(range.begin); piece != space.end() && piece->first < range.end;
         piece = space.erase(piece))
      add(piece->second.time, piece->first - piece->second.end);
    space[range.begin] = {range.end, time};
    add(time, range.end - range.begin);
  }

 private:
  struct Piece {
    int64_t end = 0, time = 0;
  };
  using Pieces = std::map<int64_t, Piece>;  // by their first byte

  static void split_at(Pieces& pieces, int64_t place) {
    auto piece = pieces.lower_bound(place);
    if (piece == pieces.begin() || (--piece)->second.end <= place) return;
    pieces[place] = piece->second;
    piece->second.end = place;
  }

  void add(int64_t time, int64_t bytes) {
    total_ += bytes;
    for (size_t i = static_cast<size_t>(time) + 1; i < tree_.size(); i += i & (~i + 1)) tree_[i] += bytes;
  }

  int64_t bytes_until(int64_t time) const {
    int64_t sum = 0;
    for (size_t i = static_cast<size_t>(time) + 1; i > 0; i &= i - 1) sum += tree_[i];
    return sum;
  }

  std::map<BufferId, Pieces> pieces_;
  std::vector<int64_t> tree_;
  int64_t total_ = 0;
};

}  // namespace

std::vector<std::vector<CallTraffic>> call_traffic(const Program& program) {
  const size_t calls = program.calls.size();
  std::vector<std::vector<CallTraffic>> traffic(calls);
  LatestTouches touches(2 * calls);
  // The first of two runs only leaves what the second finds.
  for (size_t time = 0; time < 2 * calls; ++time) {
    const std::vector<BufferId>& args = program.calls[time % calls].args;
    if (time >= calls) {
      for (const BufferId id : args) {
        const Range range = range_of(program, id);
        const int64_t latest = touches.latest(range);
        CallTraffic& argument = traffic[time - calls].emplace_back(CallTraffic{range.end - range.begin});
        if (latest < 0) continue;
        argument.distance = touches.bytes_after(latest);
        argument.calls = static_cast<int64_t>(time) - latest;
      }
    }
    for (const BufferId id : args) touches.touch(range_of(program, id), static_cast<int64_t>(time));
  }
  return traffic;
}

std::vector<std::vector<CallTraffic>> known_traffic(const Program& program) {
  if (program.flow || !program.symbols.empty()) return std::vector<std::vector<CallTraffic>>(program.calls.size());
  return call_traffic(program);
}

}  // namespace tessera::inline program
