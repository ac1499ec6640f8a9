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

int64_t sent_of(MoveKind kind, int64_t ranks, int64_t local_bytes) {
  switch (kind) {
    case MoveKind::kAllReduce: return 2 * (ranks - 1) * local_bytes / ranks;
    case MoveKind::kReduceScatter:
    case MoveKind::kAllToAll: return (ranks - 1) * local_bytes / ranks;
    case MoveKind::kAllGather: return (ranks - 1) * local_bytes;
    case MoveKind::kKeepPart: return 0;
    case MoveKind::kShift: return local_bytes;
  }
  return 0;
}

double seconds_of(int64_t bytes, const RankSpeed& speed) {
  return bytes == 0 ? 0 : speed.latency_seconds + static_cast<double>(bytes) / speed.bytes_per_second;
}

// Shardings of one tensor as numbers: for each mesh axis a digit, 0 where all have copies, d + 1 where dimension d is
// cut, and the last one where it is partial, as it may be where it began so. Moves are numbers, too, until the way is
// known: planners ask for many ways.
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
    for (const int64_t d : dims_) elements_ *= d;
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
      for_each_step(place.number, [&](const Step& step, int64_t next) {
        if (most_bytes > 0 && next != to && bytes_of(next) > most_bytes) return;
        const double seconds =
            place.seconds + seconds_of(sent_of(step.kind, mesh_.axes[step.axis].extent, bytes), speed_);
        Best& known = best_[static_cast<size_t>(next)];
        if (std::tie(known.seconds, known.moves) <= std::make_tuple(seconds, place.moves + 1)) return;
        known = {seconds, place.moves + 1, place.number, step};
        open.push({seconds, place.moves + 1, next});
      });
    }
    if (best_[static_cast<size_t>(to)].moves == kNever) return std::nullopt;
    std::vector<Move> moves;
    for (int64_t at = to; at != from; at = best_[static_cast<size_t>(at)].before)
      moves.push_back(move_of(best_[static_cast<size_t>(at)].step));
    std::reverse(moves.begin(), moves.end());
    return moves;
  }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();
  struct Step {
    MoveKind kind = MoveKind::kKeepPart;
    size_t axis = 0;
    int from = 0, to = 0;  // digits
  };
  struct Best {
    double seconds = std::numeric_limits<double>::infinity();
    int moves = kNever;
    int64_t before = -1;
    Step step;
  };

  int digit(int64_t number, size_t axis) const { return static_cast<int>(number / weights_[axis] % digits_); }
  bool is_partial(int digit) const { return digit + 1 == digits_; }
  bool is_cut(int digit) const { return digit > 0 && !is_partial(digit); }

  Move move_of(const Step& step) const {
    const bool combines = is_partial(step.from);
    return {step.kind, mesh_.axes[step.axis].name, combines ? combiners_[step.axis] : CollectiveCombiner::kNone,
            combines ? -1 : step.from - 1, step.to - 1};
  }

  int64_t bytes_of(int64_t number) const {
    int64_t elements = elements_;
    for (size_t a = 0; a < mesh_.axes.size(); ++a)
      if (is_cut(digit(number, a))) elements /= mesh_.axes[a].extent;
    return dtype_bytes(dtype_, elements);
  }

  bool cuts(int64_t number, int dim_digit) const {
    for (size_t a = 0; a < mesh_.axes.size(); ++a)
      if (digit(number, a) == dim_digit) return true;
    return false;
  }

  template <typename Take>
  void for_each_step(int64_t number, const Take& take) const {
    const bool has_parts = dtype_bits(dtype_) >= 8;  // parts are whole bytes
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      const int at = digit(number, a);
      const auto go = [&](MoveKind kind, int to) { take({kind, a, at, to}, number + weights_[a] * (to - at)); };
      if (at > 0) go(is_partial(at) ? MoveKind::kAllReduce : MoveKind::kAllGather, 0);
      if (!has_parts) continue;
      const MoveKind kind = is_partial(at) ? MoveKind::kReduceScatter
                            : at > 0       ? MoveKind::kAllToAll
                                           : MoveKind::kKeepPart;
      for (size_t d = 0; d < dims_.size(); ++d)
        if (const int to = static_cast<int>(d) + 1; dims_[d] % mesh_.axes[a].extent == 0 && !cuts(number, to))
          go(kind, to);
    }
  }

  const Mesh& mesh_;
  const RankSpeed& speed_;
  const std::vector<int64_t> dims_;
  const DType dtype_;
  const int digits_;
  int64_t elements_ = 1;
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
  return sent_of(move.kind, mesh.group_size({move.axis}), local_bytes);
}

double move_seconds(const Move& move, int64_t local_bytes, const Mesh& mesh, const RankSpeed& speed) {
  return seconds_of(sent_bytes(move, local_bytes, mesh), speed);
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
