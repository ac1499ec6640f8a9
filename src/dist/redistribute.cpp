#include "dist/redistribute.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "support/error.h"

namespace tessera::inline dist {

const char* move_kind_name(MoveKind kind) {
  static constexpr std::array kNames = {"all_reduce", "reduce_scatter", "all_gather",
                                        "all_to_all", "part",           "rank_shift"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {

// Shardings of one tensor as numbers: for each mesh axis a digit, 0 where all have copies, d + 1 where dimension d is
// cut, and the last one where it is partial, as it may be where it began so.
class Ways {
 public:
  Ways(const TensorType& whole, const Mesh& mesh, const Sharding& from, const RankSpeed& speed)
      : mesh_(mesh),
        speed_(speed),
        dims_(whole.dims()),
        dtype_(whole.dtype),
        digits_(static_cast<int>(dims_.size()) + 2),
        combiners_(mesh.axes.size(), CollectiveCombiner::kNone) {
    int64_t count = 1;
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      weights_.push_back(count);
      count *= digits_;
      for (const PartialAxis& p : from.partial)
        if (p.axis == mesh.axes[a].name) combiners_[a] = p.combiner;
    }
    best_.resize(static_cast<size_t>(count));
  }

  int64_t number_of(const Sharding& sharding) const {
    int64_t number = 0;
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      const std::string& axis = mesh_.axes[a].name;
      number += weights_[a] * (sharding.is_partial(axis) ? digits_ - 1 : sharding.dim_of(axis) + 1);
    }
    return number;
  }

  std::optional<std::vector<Move>> cheapest(int64_t from, int64_t to, int64_t most_bytes) {
    struct Place {
      double seconds;
      int moves;
      int64_t number;
      bool operator>(const Place& other) const {
        return std::tie(seconds, moves, number) > std::tie(other.seconds, other.moves, other.number);
      }
    };
    std::priority_queue<Place, std::vector<Place>, std::greater<>> open;
    best_[static_cast<size_t>(from)] = {0, 0, -1, {}};
    open.push({0, 0, from});
    while (!open.empty()) {
      const Place place = open.top();
      open.pop();
      if (place.number == to) break;
      const Best& here = best_[static_cast<size_t>(place.number)];
      if (std::tie(here.seconds, here.moves) < std::tie(place.seconds, place.moves)) continue;
      const int64_t bytes = bytes_of(place.number);
      for_each_move(place.number, [&](const Move& move, int64_t next) {
        if (most_bytes > 0 && next != to && bytes_of(next) > most_bytes) return;
        const double seconds = place.seconds + move_seconds(move, bytes, mesh_, speed_);
        Best& known = best_[static_cast<size_t>(next)];
        if (std::tie(known.seconds, known.moves) <= std::make_tuple(seconds, place.moves + 1)) return;
        known = {seconds, place.moves + 1, place.number, move};
        open.push({seconds, place.moves + 1, next});
      });
    }
    if (best_[static_cast<size_t>(to)].moves == kNever) return std::nullopt;
    std::vector<Move> moves;
    for (int64_t at = to; at != from; at = best_[static_cast<size_t>(at)].before)
      moves.push_back(best_[static_cast<size_t>(at)].move);
    std::reverse(moves.begin(), moves.end());
    return moves;
  }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();
  struct Best {
    double seconds = std::numeric_limits<double>::infinity();
    int moves = kNever;
    int64_t before = -1;
    Move move;
  };

  int digit(int64_t number, size_t axis) const { return static_cast<int>(number / weights_[axis] % digits_); }

  int64_t bytes_of(int64_t number) const {
    int64_t elements = 1;
    for (const int64_t d : dims_) elements *= d;
    for (size_t a = 0; a < mesh_.axes.size(); ++a)
      if (const int at = digit(number, a); at > 0 && at + 1 < digits_) elements /= mesh_.axes[a].extent;
    return dtype_bytes(dtype_, elements);
  }

  template <typename Take>
  void for_each_move(int64_t number, const Take& take) const {
    std::vector<bool> is_free(dims_.size(), dtype_bits(dtype_) >= 8);  // parts are whole bytes
    for (size_t a = 0; a < mesh_.axes.size(); ++a)
      if (const int at = digit(number, a); at > 0 && at + 1 < digits_) is_free[static_cast<size_t>(at - 1)] = false;
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      const MeshAxis& axis = mesh_.axes[a];
      const int at = digit(number, a);
      const bool is_partial = at + 1 == digits_;
      const auto go = [&](MoveKind kind, int to) {
        const Move move{kind, axis.name, is_partial ? combiners_[a] : CollectiveCombiner::kNone,
                        is_partial ? -1 : at - 1, to};
        take(move, number + weights_[a] * (to + 1 - at));
      };
      if (at > 0) go(is_partial ? MoveKind::kAllReduce : MoveKind::kAllGather, -1);
      const MoveKind cuts = is_partial ? MoveKind::kReduceScatter : at > 0 ? MoveKind::kAllToAll : MoveKind::kKeepPart;
      for (size_t d = 0; d < dims_.size(); ++d)
        if (is_free[d] && dims_[d] % axis.extent == 0) go(cuts, static_cast<int>(d));
    }
  }

  const Mesh& mesh_;
  const RankSpeed& speed_;
  const std::vector<int64_t> dims_;
  const DType dtype_;
  const int digits_;
  std::vector<CollectiveCombiner> combiners_;  // by mesh axis, of what is partial at first
  std::vector<int64_t> weights_;               // of digits
  std::vector<Best> best_;
};

}  // namespace

std::optional<std::vector<Move>> moves_between(const Sharding& from, const Sharding& to, const TensorType& whole,
                                               const Mesh& mesh, const RankSpeed& speed, int64_t most_bytes) {
  if (from == to) return std::vector<Move>{};
  Ways ways(whole, mesh, from, speed);
  return ways.cheapest(ways.number_of(from), ways.number_of(to), most_bytes);
}

std::vector<Move> moves_between(const Sharding& from, const Sharding& to, const TensorType& whole, const Mesh& mesh,
                                const RankSpeed& speed) {
  auto moves = moves_between(from, to, whole, mesh, speed, 0);
  check(moves.has_value(), "no way from " + from.to_string() + " to " + to.to_string());
  return std::move(*moves);
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
    case MoveKind::kShift: return local_bytes;
  }
  return 0;
}

double move_seconds(const Move& move, int64_t local_bytes, const Mesh& mesh, const RankSpeed& speed) {
  const int64_t bytes = sent_bytes(move, local_bytes, mesh);
  return bytes == 0 ? 0 : speed.latency_seconds + static_cast<double>(bytes) / speed.bytes_per_second;
}

double moves_seconds(const std::vector<Move>& moves, const Sharding& from, const TensorType& whole, const Mesh& mesh,
                     const RankSpeed& speed) {
  double seconds = 0;
  Sharding now = from;
  for (const Move& move : moves) {
    seconds += move_seconds(move, local_bytes(whole, now, mesh), mesh, speed);
    now = after_move(now, move);
  }
  return seconds;
}

int64_t local_bytes(const TensorType& whole, const Sharding& sharding, const Mesh& mesh) {
  int64_t elements = 1;
  for (const int64_t d : local_dims(sharding, whole.dims(), mesh)) elements *= d;
  return dtype_bytes(whole.dtype, elements);
}

}  // namespace tessera::inline dist
