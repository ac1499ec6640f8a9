#include "dist/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
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

// A way from one rank to another: over the links of each level that it leaves, to its own link and into another's.
struct Flow {
  struct Hop {
    size_t level = 0, out = 0, in = 0;  // numbers of links
  };
  std::vector<Hop> hops;
  double latency = 0;  // of the outermost level
};

// All ranks of a group send to whom stands some places further in it, round about. By group.
using Ring = std::vector<std::vector<Flow>>;

// So many times round, `bytes` of each rank a time.
struct Phase {
  const Ring* ring = nullptr;
  double rounds = 0, bytes = 0;
};

// What groups do together at the moment: all flows over a link have equal shares of it.
class Transfers {
 public:
  struct Transfer {
    const std::vector<Phase>* phases = nullptr;
    size_t group = 0;
    const std::vector<int64_t>* members = nullptr;
    size_t phase = 0;
    double rounds = 0;     // that are left of the phase
    double per_round = 0;  // seconds, as it is now
  };

  Transfers(const Network& network, size_t ranks) : network_(network) {
    size_t links = 0;
    for (const NetworkLevel& level : network) {
      first_.push_back(links);
      links += 2 * units(ranks, level);
    }
    sharers_.assign(links, 0);
    link_bytes_.assign(network.size(), 0);
    ranks_ = ranks;
  }

  // Where a flow goes.
  Flow flow(int64_t from, int64_t to) const {
    Flow flow;
    for (size_t k = 0; k < network_.size(); ++k) {
      const auto a = static_cast<size_t>(from / network_[k].ranks), b = static_cast<size_t>(to / network_[k].ranks);
      if (a == b) break;
      flow.hops.push_back({k, first_[k] + a, first_[k] + units(ranks_, network_[k]) + b});
      flow.latency = network_[k].latency_seconds;
    }
    return flow;
  }

  bool any() const { return !active_.empty(); }
  double next_end() const {
    double end = std::numeric_limits<double>::infinity();
    for (const Transfer& transfer : active_) end = std::min(end, now_ + transfer.rounds * transfer.per_round);
    return end;
  }

  // Lets time pass, and answers those that are done then. Not beyond next_end().
  std::vector<Transfer> advance(double now) {
    std::vector<Transfer> done;
    const double passed = now - now_, rounding = 1e-12 * now;
    now_ = now;
    std::erase_if(active_, [&](Transfer& transfer) {
      if (transfer.rounds * transfer.per_round - passed > rounding) {
        transfer.rounds -= passed / transfer.per_round;
        return false;
      }
      count(transfer, -1);
      if (enter(transfer, transfer.phase + 1)) return false;
      done.push_back(transfer);
      return true;
    });
    return done;
  }
  // False: there is nothing to do, it is done already.
  bool begin(Transfer transfer) {
    if (!enter(transfer, 0)) return false;
    active_.push_back(transfer);
    return true;
  }
  // How fast each goes on, after all that has begun and ended at this time.
  void share() {
    for (Transfer& transfer : active_) {
      transfer.per_round = 0;
      for (const Flow& flow : flows(transfer)) {
        double per_byte = 0;
        for (const Flow::Hop& hop : flow.hops)
          per_byte =
              std::max(per_byte, std::max(sharers_[hop.out], sharers_[hop.in]) / network_[hop.level].bytes_per_second);
        transfer.per_round = std::max(transfer.per_round, flow.latency + phase(transfer).bytes * per_byte);
      }
    }
  }

  const std::vector<double>& link_bytes() const { return link_bytes_; }

 private:
  static size_t units(size_t ranks, const NetworkLevel& level) { return ranks / static_cast<size_t>(level.ranks) + 1; }
  static const Phase& phase(const Transfer& transfer) { return (*transfer.phases)[transfer.phase]; }
  static const std::vector<Flow>& flows(const Transfer& transfer) { return (*phase(transfer).ring)[transfer.group]; }

  void count(const Transfer& transfer, double more) {
    for (const Flow& flow : flows(transfer))
      for (const Flow::Hop& hop : flow.hops) sharers_[hop.out] += more, sharers_[hop.in] += more;
  }

  // The first phase from this one on in which something is sent.
  bool enter(Transfer& transfer, size_t number) {
    for (transfer.phase = number; transfer.phase < transfer.phases->size(); ++transfer.phase) {
      transfer.rounds = phase(transfer).rounds;
      if (transfer.rounds <= 0 || flows(transfer).empty()) continue;
      count(transfer, 1);
      for (const Flow& flow : flows(transfer))
        for (const Flow::Hop& hop : flow.hops) link_bytes_[hop.level] += transfer.rounds * phase(transfer).bytes;
      return true;
    }
    return false;
  }

  const Network& network_;
  size_t ranks_ = 0;
  std::vector<size_t> first_;    // of each level's links: of ranks that send, then of those that receive
  std::vector<double> sharers_;  // by link
  std::vector<double> link_bytes_;
  std::vector<Transfer> active_;
  double now_ = 0;
};

class Simulation {
 public:
  Simulation(const Mesh& mesh, const std::vector<RankSteps>& steps, const Network& network)
      : mesh_(mesh),
        steps_(steps),
        network_(network),
        ranks_(mesh.ranks()),
        transfers_(network, static_cast<size_t>(mesh.ranks())) {
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
    while (!open_.empty() || !sends_.empty() || !begins_.empty() || transfers_.any()) {
      if (open_.empty()) {
        // Whoever waits goes on later than the first of these.
        const double begin = begins_.empty() ? kNever : begins_.top().first;
        const double together = std::min(begin, transfers_.next_end());
        if (sends_.empty() || together < sends_.top().first) {
          go_on_together(together);
          continue;
        }
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
    for (size_t k = 0; k < network_.size(); ++k) result_.link_bytes[k] += transfers_.link_bytes()[k];
    if (result_.seconds > 0) result_.working = working / (result_.seconds * static_cast<double>(ranks_));
    return std::move(result_);
  }

 private:
  static constexpr uint64_t kNothing = ~uint64_t{0};
  static constexpr double kNever = std::numeric_limits<double>::infinity();

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

  const Ring& ring(const std::string& name, int64_t shift) {
    const auto [known, is_new] = rings_.try_emplace({name, shift});
    if (!is_new) return known->second;
    for (const std::vector<int64_t>& group : axis(name).members) {
      std::vector<Flow>& flows = known->second.emplace_back();
      for (size_t i = 0; i < group.size(); ++i)
        if (const size_t to = (i + static_cast<size_t>(shift)) % group.size(); to != i)
          flows.push_back(transfers_.flow(group[i], group[to]));
    }
    return known->second;
  }

  const std::vector<Phase>& phases_of(const RankStep& step) {
    const auto [known, is_new] = phases_.try_emplace({step.axis, step.collective, step.bytes});
    std::vector<Phase>& phases = known->second;
    if (!is_new) return phases;
    const int64_t n = std::ssize(axis(step.axis).members[0]);
    const auto whole = static_cast<double>(step.bytes), share = whole / static_cast<double>(n),
               others = static_cast<double>(n - 1);
    const auto go_round = [&](int64_t shift, double rounds, double bytes) {
      phases.push_back({&ring(step.axis, shift), rounds, bytes});
    };
    switch (step.collective) {
      case CollectiveKind::kAllReduce: go_round(1, 2 * others, share); break;
      case CollectiveKind::kReduceScatter: go_round(1, others, share); break;
      case CollectiveKind::kAllGather: go_round(1, others, whole); break;
      case CollectiveKind::kAllToAll:
        for (int64_t shift = 1; shift < n; ++shift) go_round(shift, 1, share);
        break;
      default: go_round(1, 1, whole);
    }
    return phases;
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

  // The last one of its group begins what they do together; none goes on before it is done.
  bool comes(int64_t rank, const RankStep& step) {
    Axis& groups = axis(step.axis);
    const auto g = static_cast<size_t>(groups.group[static_cast<size_t>(rank)]);
    groups.latest[g] = std::max(groups.latest[g], now_[static_cast<size_t>(rank)]);
    if (++groups.come[g] < groups.members[g].size()) return false;
    begins_.emplace(groups.latest[g], Transfers::Transfer{&phases_of(step), g, &groups.members[g]});
    groups.come[g] = 0;
    groups.latest[g] = 0;
    return false;
  }

  // Whatever ends and begins at this time.
  void go_on_together(double now) {
    const auto is_done = [&](const Transfers::Transfer& transfer) {
      for (const int64_t member : *transfer.members) {
        now_[static_cast<size_t>(member)] = now;
        ++next_[static_cast<size_t>(member)];
        open_.push_back(member);
      }
    };
    for (const Transfers::Transfer& transfer : transfers_.advance(now)) is_done(transfer);
    while (!begins_.empty() && begins_.top().first <= now) {
      const Transfers::Transfer transfer = begins_.top().second;
      begins_.pop();
      if (!transfers_.begin(transfer)) is_done(transfer);
    }
    transfers_.share();
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
  std::map<std::pair<std::string, int64_t>, Ring> rings_;  // by axis and shift
  std::map<std::tuple<std::string, CollectiveKind, int64_t>, std::vector<Phase>> phases_;
  Transfers transfers_;
  using Begin = std::pair<double, Transfers::Transfer>;  // when the last one of a group has come
  struct IsLater {
    bool operator()(const Begin& a, const Begin& b) const { return a.first > b.first; }
  };
  std::priority_queue<Begin, std::vector<Begin>, IsLater> begins_;
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
