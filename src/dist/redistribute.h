// How a tensor comes from one sharding to another: for each mesh axis one step, and what it costs.
//
//   partial  -> copies    all_reduce            partial -> cut      reduce_scatter
//   cut      -> copies    all_gather            cut     -> cut      all_to_all (another dimension)
//   copies   -> cut       each rank keeps its part; nothing moves
//
// Steps that make a tensor smaller come first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "types/sharding.h"

namespace tessera::inline dist {

enum class MoveKind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kKeepPart };
const char* move_kind_name(MoveKind kind);  // "all_reduce"; "part"

struct Move {
  MoveKind kind = MoveKind::kKeepPart;
  std::string axis;  // of the mesh
  CollectiveCombiner combiner = CollectiveCombiner::kNone;
  int from = -1, to = -1;  // dimensions that are cut before and behind; -1: none
};

// REQUIRES: both fit the tensor, dimensions are cut along one axis at most, and `to` is partial only where `from` is.
std::vector<Move> moves_between(const Sharding& from, const Sharding& to);
// The sharding behind a move.
Sharding after_move(const Sharding& from, const Move& move);
// Bytes that one rank sends, of a tensor whose part has `local_bytes` on it before the move; as rings do it, with n
// ranks: all_reduce 2 (n - 1) / n, reduce_scatter (n - 1) / n, all_gather n - 1, all_to_all (n - 1) / n times that.
int64_t sent_bytes(const Move& move, int64_t local_bytes, const Mesh& mesh);

}  // namespace tessera::inline dist
