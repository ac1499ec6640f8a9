#include "dist/redistribute.h"

#include <algorithm>
#include <array>
#include <set>

namespace tessera::inline dist {

const char* move_kind_name(MoveKind kind) {
  static constexpr std::array kNames = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "part"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<Move> moves_between(const Sharding& from, const Sharding& to) {
  std::set<std::string> axes;
  for (const Sharding* s : {&from, &to}) {
    for (const auto& dim : s->dims) axes.insert(dim.begin(), dim.end());
    for (const PartialAxis& p : s->partial) axes.insert(p.axis);
  }
  std::vector<Move> moves;
  for (const std::string& axis : axes) {
    const int before = from.dim_of(axis), behind = to.dim_of(axis);
    const auto partial =
        std::find_if(from.partial.begin(), from.partial.end(), [&](const PartialAxis& p) { return p.axis == axis; });
    if (partial != from.partial.end()) {
      if (to.is_partial(axis)) continue;
      moves.push_back(
          {behind < 0 ? MoveKind::kAllReduce : MoveKind::kReduceScatter, axis, partial->combiner, -1, behind});
    } else if (before != behind) {
      const MoveKind kind = behind < 0 ? MoveKind::kAllGather : before < 0 ? MoveKind::kKeepPart : MoveKind::kAllToAll;
      moves.push_back({kind, axis, CollectiveCombiner::kNone, before, behind});
    }
  }
  const auto grows = [](const Move& move) {
    return move.kind == MoveKind::kAllGather   ? 3
           : move.kind == MoveKind::kAllToAll  ? 2
           : move.kind == MoveKind::kAllReduce ? 1
                                               : 0;
  };
  std::stable_sort(moves.begin(), moves.end(), [&](const Move& a, const Move& b) { return grows(a) < grows(b); });
  // A dimension is free to be cut only when what cuts it has left: such a move waits for it.
  std::vector<Move> ordered;
  Sharding now = from;
  while (!moves.empty()) {
    const auto free = std::find_if(moves.begin(), moves.end(), [&](const Move& move) {
      return move.to < 0 || now.dims[static_cast<size_t>(move.to)].empty();
    });
    if (free != moves.end()) {
      now = after_move(now, *free);
      ordered.push_back(*free);
      moves.erase(free);
      continue;
    }
    // Two axes that change places: one of them goes by way of copies.
    Move& first = moves.front();
    Move gather{MoveKind::kAllGather, first.axis, CollectiveCombiner::kNone, first.from, -1};
    now = after_move(now, gather);
    ordered.push_back(gather);
    first.kind = MoveKind::kKeepPart;
    first.from = -1;
  }
  return ordered;
}

Sharding after_move(const Sharding& from, const Move& move) {
  Sharding result = from;
  std::erase_if(result.partial, [&](const PartialAxis& p) { return p.axis == move.axis; });
  if (move.from >= 0) std::erase(result.dims[static_cast<size_t>(move.from)], move.axis);
  if (move.to >= 0) result.dims[static_cast<size_t>(move.to)].push_back(move.axis);
  return result;
}

int64_t sent_bytes(const Move& move, int64_t local_bytes, const Mesh& mesh) {
  const int64_t n = mesh.group_size({move.axis});
  switch (move.kind) {
    case MoveKind::kAllReduce: return 2 * (n - 1) * local_bytes / n;
    case MoveKind::kReduceScatter:
    case MoveKind::kAllToAll: return (n - 1) * local_bytes / n;
    case MoveKind::kAllGather: return (n - 1) * local_bytes;
    case MoveKind::kKeepPart: return 0;
  }
  return 0;
}

}  // namespace tessera::inline dist
