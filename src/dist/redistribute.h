// How a tensor comes from one sharding to another: the cheapest way there is.
//
//   partial  -> copies    all_reduce            partial -> cut      reduce_scatter
//   cut      -> copies    all_gather            cut     -> cut      all_to_all (another dimension)
//   copies   -> cut       each rank keeps its part; nothing moves
//
// Each of these changes one mesh axis. Ways through all shardings that the tensor can have are compared, axes that both
// ends have alike included: what all have copies of may be cut first, so that less is sent, and gathered behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arith/tensor_type.h"
#include "types/sharding.h"

namespace tessera::inline dist {

// kShift: not between shardings; rows at the borders of parts, for neighbours (localize.h).
enum class MoveKind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kKeepPart, kShift };
const char* move_kind_name(MoveKind kind);  // "all_reduce"; "part"; "rank_shift"

struct Move {
  MoveKind kind = MoveKind::kKeepPart;
  std::string axis;  // of the mesh
  CollectiveCombiner combiner = CollectiveCombiner::kNone;
  int from = -1, to = -1;  // dimensions that are cut before and behind; -1: none
  bool operator==(const Move&) const = default;
};

// Links between ranks, and what a rank does itself, for the costs.
struct RankSpeed {
  double bytes_per_second = 5e9;  // that a rank sends
  double latency_seconds = 2e-5;  // of a collective
  double memory_bytes_per_second = 1e10;
  double operations_per_second = 3e10;
};

// The moves whose seconds (move_seconds) add up to the least; of such, the fewest. No rank has more than `most_bytes`
// of the tensor on the way (0: any amount); nothing where that leaves no way. Shortest paths over the shardings that a
// tensor of this type can have (Dijkstra 1959): hundreds for three mesh axes.
// REQUIRES: both fit the tensor, whose sizes are numbers, dimensions are cut along one axis at most, and `to` is
// partial only where `from` is.
std::optional<std::vector<Move>> moves_between(const Sharding& from, const Sharding& to, const TensorType& whole,
                                               const Mesh& mesh, const RankSpeed& speed, int64_t most_bytes);
// Without a bound, which always leaves a way.
std::vector<Move> moves_between(const Sharding& from, const Sharding& to, const TensorType& whole, const Mesh& mesh,
                                const RankSpeed& speed);
// The sharding behind a move.
Sharding after_move(const Sharding& from, const Move& move);
// Bytes that one rank sends, of a tensor whose part has `local_bytes` on it before the move; as rings do it, with n
// ranks: all_reduce 2 (n - 1) / n, reduce_scatter (n - 1) / n, all_gather n - 1, all_to_all (n - 1) / n times that.
int64_t sent_bytes(const Move& move, int64_t local_bytes, const Mesh& mesh);
// Of such a move: a latency where something is sent, and the bytes; with neither, nothing.
double move_seconds(const Move& move, int64_t local_bytes, const Mesh& mesh, const RankSpeed& speed);
double moves_seconds(const std::vector<Move>& moves, const Sharding& from, const TensorType& whole, const Mesh& mesh,
                     const RankSpeed& speed);
// Of a rank's part.
int64_t local_bytes(const TensorType& whole, const Sharding& sharding, const Mesh& mesh);

}  // namespace tessera::inline dist
