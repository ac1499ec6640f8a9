#include "dist/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "dist/cheapest_plan.h"
#include "dist/localize.h"
#include "support/error.h"

namespace tessera::inline dist {
namespace {

// What a byte takes between two ranks, and how long it is under way beside that.
struct Way {
  double latency = 0, seconds_per_byte = 0;
  double seconds(double bytes) const { return latency + bytes * seconds_per_byte; }
};

// Where every rank sends something at the same time.
class Links {
 public:
  // `next`: whom each rank sends to; -1: nobody.
  Links(const Network& network, const std::vector<int64_t>& next) : ways_(next.size()), crossing_(network.size(), 0) {
    for (size_t k = 0; k < network.size(); ++k) {
      const NetworkLevel& level = network[k];
      const auto unit = [&](int64_t rank) { return static_cast<size_t>(rank / level.ranks); };
      const auto is_crossed = [&](size_t rank) {
        return next[rank] >= 0 && unit(static_cast<int64_t>(rank)) != unit(next[rank]);
      };
      std::vector<double> out(next.size() / static_cast<size_t>(level.ranks) + 1, 0), in = out;
      for (size_t r = 0; r < next.size(); ++r)
        if (is_crossed(r)) ++out[unit(static_cast<int64_t>(r))], ++in[unit(next[r])], ++crossing_[k];
      for (size_t r = 0; r < next.size(); ++r) {
        if (!is_crossed(r)) continue;
        const double sharers = std::max(out[unit(static_cast<int64_t>(r))], in[unit(next[r])]);
        ways_[r].latency = level.latency_seconds;  // of the outermost level
        ways_[r].seconds_per_byte = std::max(ways_[r].seconds_per_byte, sharers / level.bytes_per_second);
      }
    }
  }

  const Way& from(int64_t rank) const { return ways_[static_cast<size_t>(rank)]; }
  // Ranks whose way goes over a link of the level.
  const std::vector<double>& crossing() const { return crossing_; }

 private:
  std::vector<Way> ways_;  // by rank that sends
  std::vector<double> crossing_;
};

class Simulation {
 public:
  Simulation(const Mesh& mesh, const std::vector<RankSteps>& steps, const Network& network)
      : mesh_(mesh), steps_(steps), network_(network), ranks_(mesh.ranks()) {
    const int stage = mesh.find("stage");
    check(steps.size() == 1 || (stage >= 0 && std::ssize(steps) == mesh.axes[static_cast<size_t>(stage)].extent),
          "steps of other stages than the mesh has");
    for (int64_t r = 0; r < ranks_; ++r)
      stage_.push_back(steps.size() == 1 ? 0 : mesh.place_of(r)[static_cast<size_t>(stage)]);
    result_.link_bytes.assign(network.size(), 0);
  }

  SimulatedRanks run() {
    const auto count = static_cast<size_t>(ranks_);
    now_.assign(count, 0);
    for (const NetworkLevel& level : network_) {
      const size_t units = count / static_cast<size_t>(level.ranks) + 1;
      out_free_.emplace_back(units, 0);
      in_free_.emplace_back(units, 0);
    }
    next_.assign(count, 0);
    waits_for_.assign(count, kNothing);
    for (int64_t r = ranks_; r-- > 0;) open_.push_back(r);
    while (!open_.empty() || !sends_.empty()) {
      if (open_.empty()) {
        // Whoever waits goes on later than the first of these.
        const int64_t sender = sends_.top().second;
        sends_.pop();
        send(sender, steps_of(sender)[next_[static_cast<size_t>(sender)]++]);
        open_.push_back(sender);
      }
      const int64_t rank = open_.back();
      open_.pop_back();
      while (next_[static_cast<size_t>(rank)] < steps_of(rank).size() && does_next(rank))
        ++next_[static_cast<size_t>(rank)];
    }
    double working = 0;
    for (int64_t r = 0; r < ranks_; ++r) {
      check(next_[static_cast<size_t>(r)] == steps_of(r).size(), "ranks that wait for each other");
      result_.seconds = std::max(result_.seconds, now_[static_cast<size_t>(r)]);
      for (const RankStep& step : steps_of(r)) working += step.seconds;
    }
    if (result_.seconds > 0) result_.working = working / (result_.seconds * static_cast<double>(ranks_));
    return std::move(result_);
  }

 private:
  static constexpr uint64_t kNothing = ~uint64_t{0};

  const RankSteps& steps_of(int64_t rank) const {
    return steps_[static_cast<size_t>(stage_[static_cast<size_t>(rank)])];
  }

  // The groups of a mesh axis.
  struct Axis {
    std::vector<int64_t> group;                 // by rank
    std::vector<std::vector<int64_t>> members;  // by group, in their order
    std::vector<size_t> come;                   // by group: ranks that wait for the others
    std::vector<double> latest;                 // by group: when the last one of these came
  };
  Axis& axis(const std::string& name) {
    const auto [known, is_new] = axes_.try_emplace(name);
    Axis& axis = known->second;
    if (!is_new) return axis;
    axis.group.assign(static_cast<size_t>(ranks_), -1);
    for (int64_t r = 0; r < ranks_; ++r) {
      if (axis.group[static_cast<size_t>(r)] >= 0) continue;
      axis.members.push_back(mesh_.group_of(r, {name}));
      for (const int64_t member : axis.members.back())
        axis.group[static_cast<size_t>(member)] = std::ssize(axis.members) - 1;
    }
    axis.come.assign(axis.members.size(), 0);
    axis.latest.assign(axis.members.size(), 0);
    return axis;
  }

  // Everybody sends to whom stands `shift` places further in its group, round about.
  const Links& ring(const std::string& name, int64_t shift) {
    const auto known = rings_.find({name, shift});
    if (known != rings_.end()) return known->second;
    std::vector<int64_t> next(static_cast<size_t>(ranks_), -1);
    for (const std::vector<int64_t>& group : axis(name).members)
      for (size_t i = 0; i < group.size(); ++i) {
        const size_t to = (i + static_cast<size_t>(shift)) % group.size();
        if (to != i) next[static_cast<size_t>(group[i])] = group[to];
      }
    return rings_.try_emplace({name, shift}, network_, next).first->second;
  }

  struct Times {
    std::vector<double> seconds;     // by group
    std::vector<double> link_bytes;  // by level, of all groups
  };
  // So many times round, `bytes` each.
  void go_round(const RankStep& step, int64_t shift, double times, double bytes, Times& result) {
    const Links& links = ring(step.axis, shift);
    const Axis& groups = axis(step.axis);
    for (size_t g = 0; g < groups.members.size(); ++g) {
      double slowest = 0;
      for (const int64_t member : groups.members[g]) slowest = std::max(slowest, links.from(member).seconds(bytes));
      result.seconds[g] += times * slowest;
    }
    for (size_t k = 0; k < network_.size(); ++k) result.link_bytes[k] += times * bytes * links.crossing()[k];
  }
  const Times& times_of(const RankStep& step) {
    const auto [known, is_new] = times_.try_emplace({step.axis, step.collective, step.bytes});
    Times& times = known->second;
    if (!is_new) return times;
    times.seconds.assign(axis(step.axis).members.size(), 0);
    times.link_bytes.assign(network_.size(), 0);
    const int64_t n = std::ssize(axis(step.axis).members[0]);
    const auto whole = static_cast<double>(step.bytes), share = whole / static_cast<double>(n),
               others = static_cast<double>(n - 1);
    switch (step.collective) {
      case CollectiveKind::kAllReduce: go_round(step, 1, 2 * others, share, times); break;
      case CollectiveKind::kReduceScatter: go_round(step, 1, others, share, times); break;
      case CollectiveKind::kAllGather: go_round(step, 1, others, whole, times); break;
      case CollectiveKind::kAllToAll:
        for (int64_t shift = 1; shift < n; ++shift) go_round(step, shift, 1, share, times);
        break;
      default: go_round(step, 1, 1, whole, times);
    }
    return times;
  }

  // Whether the rank's next step is done; else it goes on when somebody else has come.
  bool does_next(int64_t rank) {
    const auto r = static_cast<size_t>(rank);
    const RankStep& step = steps_of(rank)[next_[r]];
    switch (step.kind) {
      case RankStep::Kind::kWork: now_[r] += step.seconds; return true;
      case RankStep::Kind::kCollective: return comes(rank, step);
      case RankStep::Kind::kSend: sends_.emplace(now_[r], rank); return false;
      case RankStep::Kind::kReceive: {
        const uint64_t message = message_number(peer_of(rank, step.peer), rank, step.message);
        const auto there = arrived_.find(message);
        if (there == arrived_.end()) {
          waits_for_[r] = message;
          return false;
        }
        now_[r] = std::max(now_[r], there->second);
        return true;
      }
    }
    return true;
  }

  // Ranks that were waiting for this one have done their step, too.
  bool comes(int64_t rank, const RankStep& step) {
    Axis& groups = axis(step.axis);
    const auto g = static_cast<size_t>(groups.group[static_cast<size_t>(rank)]);
    const std::vector<int64_t>& members = groups.members[g];
    groups.latest[g] = std::max(groups.latest[g], now_[static_cast<size_t>(rank)]);
    if (++groups.come[g] < members.size()) return false;
    const Times& times = times_of(step);
    const double end = groups.latest[g] + times.seconds[g];
    if (g == 0)
      for (size_t k = 0; k < network_.size(); ++k) result_.link_bytes[k] += times.link_bytes[k];
    groups.come[g] = 0;
    groups.latest[g] = 0;
    for (const int64_t member : members) {
      now_[static_cast<size_t>(member)] = end;
      if (member == rank) continue;
      ++next_[static_cast<size_t>(member)];
      open_.push_back(member);
    }
    return true;
  }

  int64_t peer_of(int64_t rank, int64_t shift) const {
    std::vector<int64_t> place = mesh_.place_of(rank);
    place[static_cast<size_t>(mesh_.find("stage"))] += shift;
    return mesh_.rank_at(place);
  }
  uint64_t message_number(int64_t from, int64_t to, int64_t message) const {
    return (static_cast<uint64_t>(message) * static_cast<uint64_t>(ranks_) + static_cast<uint64_t>(from)) *
               static_cast<uint64_t>(ranks_) +
           static_cast<uint64_t>(to);
  }

  // Messages of one link go over it one behind the other, in the order in which they are sent.
  void send(int64_t rank, const RankStep& step) {
    const int64_t peer = peer_of(rank, step.peer);
    const auto unit = [&](size_t level, int64_t of) { return static_cast<size_t>(of / network_[level].ranks); };
    const auto bytes = static_cast<double>(step.bytes);
    double begin = now_[static_cast<size_t>(rank)], takes = 0, latency = 0;
    for (size_t k = 0; k < network_.size() && unit(k, rank) != unit(k, peer); ++k) {
      begin = std::max({begin, out_free_[k][unit(k, rank)], in_free_[k][unit(k, peer)]});
      takes = std::max(takes, bytes / network_[k].bytes_per_second);
      latency = network_[k].latency_seconds;  // of the outermost level
    }
    for (size_t k = 0; k < network_.size() && unit(k, rank) != unit(k, peer); ++k) {
      out_free_[k][unit(k, rank)] = in_free_[k][unit(k, peer)] = begin + bytes / network_[k].bytes_per_second;
      result_.link_bytes[k] += bytes;
    }
    const uint64_t message = message_number(rank, peer, step.message);
    arrived_[message] = begin + takes + latency;
    if (waits_for_[static_cast<size_t>(peer)] != message) return;
    waits_for_[static_cast<size_t>(peer)] = kNothing;
    open_.push_back(peer);
  }

  const Mesh& mesh_;
  const std::vector<RankSteps>& steps_;
  const Network& network_;
  const int64_t ranks_;
  std::vector<int64_t> stage_;  // by rank
  SimulatedRanks result_;
  std::vector<double> now_;                              // by rank
  std::vector<std::vector<double>> out_free_, in_free_;  // by level and unit: when its link is free
  std::vector<size_t> next_;                             // by rank: its next step
  std::vector<uint64_t> waits_for_;                      // by rank: a message
  std::vector<int64_t> open_;                            // ranks that may go on
  using Send = std::pair<double, int64_t>;               // when, and who
  std::priority_queue<Send, std::vector<Send>, std::greater<>> sends_;
  std::map<std::string, Axis> axes_;
  std::map<std::pair<std::string, int64_t>, Links> rings_;  // by axis and shift
  std::map<std::tuple<std::string, CollectiveKind, int64_t>, Times> times_;
  std::unordered_map<uint64_t, double> arrived_;  // by message
};

CollectiveKind kind_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::kReduceScatter: return CollectiveKind::kReduceScatter;
    case MoveKind::kAllGather: return CollectiveKind::kAllGather;
    case MoveKind::kAllToAll: return CollectiveKind::kAllToAll;
    case MoveKind::kShift: return CollectiveKind::kShift;
    default: return CollectiveKind::kAllReduce;
  }
}

}  // namespace

std::string parse_network(std::string_view text, Network& network) {
  network.clear();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view level = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = level.find('='), slash = level.find('/');
    const auto number = [&](size_t from, size_t to, auto& value) {
      if (from > level.size() || to > level.size() || from >= to) return false;
      const auto [stop, error] = std::from_chars(level.data() + from, level.data() + to, value);
      return error == std::errc() && stop == level.data() + to;
    };
    NetworkLevel found;
    double gigabytes = 0, microseconds = 0;
    if (equals == level.npos || slash == level.npos || slash < equals || !number(0, equals, found.ranks) ||
        !number(equals + 1, slash, gigabytes) || !number(slash + 1, level.size(), microseconds))
      return fmt::format("'{}' is not RANKS=GB/S/US", level);
    if (!(gigabytes > 0) || !(microseconds >= 0) || !std::isfinite(gigabytes) || !std::isfinite(microseconds))
      return fmt::format("'{}': more than 0 GB/s, and 0 us or more", level);
    found.bytes_per_second = gigabytes * 1e9;
    found.latency_seconds = microseconds * 1e-6;
    const bool fits = network.empty() ? found.ranks == 1
                                      : found.ranks > network.back().ranks && found.ranks <= kMostRanks &&
                                            found.ranks % network.back().ranks == 0;
    if (!fits) return fmt::format("'{}': levels have 1 rank, then multiples of the one before", level);
    network.push_back(found);
  }
  return "";
}

std::string to_text(const Network& network) {
  std::string text;
  for (const NetworkLevel& level : network)
    text += fmt::format("{}{}={:g}/{:g}", text.empty() ? "" : ",", level.ranks, level.bytes_per_second / 1e9,
                        level.latency_seconds * 1e6);
  return text;
}

SimulatedRanks simulate(const Mesh& mesh, const std::vector<RankSteps>& steps, const Network& network) {
  check(!network.empty() && network[0].ranks == 1, "a network without links of ranks");
  return Simulation(mesh, steps, network).run();
}

RankSteps rank_steps(const Graph& graph, const ShardingPlan& plan, double scale) {
  const std::vector<double> seconds = node_seconds(graph, plan);
  RankSteps steps;
  const auto work = [&](size_t begin, size_t end) {
    double sum = 0;
    for (size_t n = begin; n < end; ++n) sum += scale * seconds[n];
    if (sum > 0) steps.push_back({.kind = RankStep::Kind::kWork, .seconds = sum});
  };
  size_t done = 0;
  for (const PlannedMove& move : planned_collectives(graph, plan)) {
    work(done, move.node);
    done = move.node;
    steps.push_back({.kind = RankStep::Kind::kCollective,
                     .collective = kind_of(move.move.kind),
                     .axis = move.move.axis,
                     .bytes = move.operand_bytes});
  }
  work(done, seconds.size());
  return steps;
}

std::string trace_text(const RankSteps& steps) {
  std::string text;
  for (const RankStep& step : steps) switch (step.kind) {
      case RankStep::Kind::kWork: text += fmt::format("work {:.9e}\n", step.seconds); break;
      case RankStep::Kind::kCollective:
        text += fmt::format("{} {} {}\n", collective_kind_name(step.collective), step.axis, step.bytes);
        break;
      default:
        text += fmt::format("{} {} {} {}\n", step.kind == RankStep::Kind::kSend ? "send" : "receive", step.peer,
                            step.message, step.bytes);
    }
  return text;
}

}  // namespace tessera::inline dist
