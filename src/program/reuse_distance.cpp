#include "program/reuse_distance.h"

#include <algorithm>
#include <map>

#include "program/memory_plan.h"

namespace tessera {

namespace {

// Pieces of memory, which do not overlap: of the arena (space -1) or of a buffer.
class TouchedMemory {
 public:
  explicit TouchedMemory(const Program& program) : program_(program) {}

  struct Range {
    BufferId space = -1;
    int64_t begin = 0, end = 0;
  };
  Range range_of(BufferId id) const {
    const auto [root, begin] = place_in_root(program_, id);
    const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(root)];
    const bool in_arena = buffer.kind == BufferKind::kArena;
    const int64_t first = begin + (in_arena ? buffer.offset : 0);
    return {in_arena ? -1 : root, first, first + program_.buffers[static_cast<size_t>(id)].bytes};
  }

  bool touches(const Range& range) const {
    const auto space = pieces_.find(range.space);
    if (space == pieces_.end()) return false;
    auto next = space->second.lower_bound(range.begin);
    if (next != space->second.end() && next->first < range.end) return true;
    return next != space->second.begin() && std::prev(next)->second > range.begin;
  }

  void touch(Range range) {
    auto& space = pieces_[range.space];
    auto next = space.lower_bound(range.begin);
    if (next != space.begin() && std::prev(next)->second >= range.begin) --next;
    while (next != space.end() && next->first <= range.end) {
      range.begin = std::min(range.begin, next->first);
      range.end = std::max(range.end, next->second);
      bytes_ -= next->second - next->first;
      next = space.erase(next);
    }
    space[range.begin] = range.end;
    bytes_ += range.end - range.begin;
  }

  int64_t bytes() const { return bytes_; }

 private:
  const Program& program_;
  std::map<BufferId, std::map<int64_t, int64_t>> pieces_;  // begin -> end
  int64_t bytes_ = 0;
};

}  // namespace

std::vector<int64_t> reuse_distances(const Program& program, size_t call) {
  const std::vector<BufferId>& args = program.calls[call].args;
  std::vector<int64_t> distances(args.size(), -1);
  TouchedMemory since(program);
  const size_t calls = program.calls.size();
  for (size_t back = 1; back <= calls; ++back) {
    const KernelCall& earlier = program.calls[(call + calls - back) % calls];
    TouchedMemory own(program);
    for (const BufferId id : earlier.args) own.touch(own.range_of(id));
    for (size_t i = 0; i < args.size(); ++i)
      if (distances[i] < 0 && own.touches(own.range_of(args[i]))) distances[i] = since.bytes();
    if (std::find(distances.begin(), distances.end(), -1) == distances.end()) break;
    for (const BufferId id : earlier.args) since.touch(since.range_of(id));
  }
  // What has no bytes is touched by nobody.
  for (int64_t& distance : distances) distance = std::max<int64_t>(distance, 0);
  return distances;
}

}  // namespace tessera
