#include "tune/contest.h"

#include <algorithm>

#include <fmt/format.h>

namespace tessera::inline tune {
namespace {

// The lineups of one comparison, each once.
class Lineups {
 public:
  size_t place_of(const Lineup& lineup) {
    const auto found = std::find(list_.begin(), list_.end(), lineup);
    if (found != list_.end()) return static_cast<size_t>(found - list_.begin());
    list_.push_back(lineup);
    return list_.size() - 1;
  }
  const std::vector<Lineup>& list() const { return list_; }

 private:
  std::vector<Lineup> list_;
};

class Holder {
 public:
  Holder(Contest& contest, const MeasureLineups& measure) : contest_(contest), measure_(measure) {}

  void run() {
    Contestant& graph = contest_.graph;
    graph.stands = graph.has_found ? Standing::kFound : graph.has_stored ? Standing::kStored : Standing::kDefault;
    for (Contestant& kernel : contest_.kernels) {
      stored_.push_back(kernel.has_stored);
      found_.push_back(kernel.has_found);
    }
    choose_kernels();
    if (graph.has_found) choose_graph();
    else if (graph.has_stored) check_stored_graph();
    for (size_t i = 0; i < contest_.kernels.size(); ++i)
      contest_.kernels[i].stands = found_[i] ? Standing::kFound : stored_[i] ? Standing::kStored : Standing::kDefault;
  }

 private:
  Lineup with_defaults(Standing graph) const { return {graph, {}, false}; }

  // Of the kernels that are still in the contest; `with_found`: what was found, where something was.
  Lineup with_kernels(Standing graph, bool with_found) const {
    Lineup lineup{graph, {}, contest_.has_others};
    for (size_t i = 0; i < contest_.kernels.size(); ++i) {
      if (with_found && found_[i]) lineup.kernels[contest_.kernels[i].hash] = Standing::kFound;
      else if (stored_[i]) lineup.kernels[contest_.kernels[i].hash] = Standing::kStored;
    }
    return lineup;
  }

  void drop_found(const PairedTimes& times) {
    for (size_t i = 0; i < found_.size(); ++i) drop(found_[i], contest_.kernels[i].found_lost, times);
  }
  void drop_stored(const PairedTimes& times) {
    for (size_t i = 0; i < stored_.size(); ++i) drop(stored_[i], contest_.kernels[i].stored_lost, times);
  }
  static void drop(std::vector<bool>::reference stands, std::optional<PairedTimes>& lost, const PairedTimes& times) {
    if (stands) lost = times;
    stands = false;
  }

  // Drops what is not the winner in the model, measures what is left again, until nothing more goes: then the whole is
  // the winner, or all that was found goes.
  void choose_kernels() {
    for (bool first = true;; first = false) {
      Lineups lineups;
      const Standing graph = contest_.graph.stands;
      const size_t none = lineups.place_of(with_defaults(graph));
      const size_t stored = lineups.place_of(with_kernels(graph, false));
      const size_t found = lineups.place_of(with_kernels(graph, true));
      if (lineups.list().size() == 1) return;
      const ModelTimes times = measure_(
          lineups.list(), [&](const ModelTimes& so_far) { return is_decided(so_far, first, none, stored, found); });
      bool changed = false;
      for (size_t i = 0; i < contest_.kernels.size(); ++i) changed |= judge(i, times, first, none, stored, found);
      if (changed) continue;

      const PairedTimes stored_gain = times.whole(none, stored), found_gain = times.whole(none, found);
      contest_.gain = stored_gain;
      if (found != stored) {
        const PairedTimes whole = times.whole(stored, found);
        if (verdict_of(whole) == Verdict::kFaster) {
          contest_.gain = found_gain;
          return;
        }
        drop_found(whole);
        contest_.whole = whole;
      }
      if (stored == none) contest_.gain = {};
      else if (is_surely_slower(stored_gain)) {
        drop_stored(stored_gain);
        contest_.gain = {};
      }
      return;
    }
  }

  bool is_decided(const ModelTimes& times, bool first, size_t none, size_t stored, size_t found) const {
    const auto decided = [](const PairedTimes& compared) { return verdict_of(compared) != Verdict::kUndecided; };
    if (stored != none && !decided(times.whole(none, stored))) return false;
    if (found != stored && !decided(times.whole(stored, found))) return false;
    if (!first) return true;
    for (size_t i = 0; i < contest_.kernels.size(); ++i) {
      const std::string& hash = contest_.kernels[i].hash;
      if (stored_[i] && !decided(times.kernel(hash, none, stored))) return false;
      if (found_[i] && !decided(times.kernel(hash, stored_[i] ? stored : none, found))) return false;
    }
    return true;
  }

  // Whether one kernel's contestants became fewer. At first what is found must be surely faster here as well. When some
  // are gone, others would have to be surely slower to follow them: the same question asked often enough would turn
  // down everything.
  bool judge(size_t i, const ModelTimes& times, bool first, size_t none, size_t stored, size_t found) {
    Contestant& kernel = contest_.kernels[i];
    const bool had_stored = stored_[i];
    bool changed = false, must_win = first;
    if (had_stored) {
      const PairedTimes beside_default = times.kernel(kernel.hash, none, stored);
      if (is_surely_slower(beside_default)) {
        drop(stored_[i], kernel.stored_lost, beside_default);
        changed = must_win = true;  // what was found has won against another one
      }
    }
    if (!found_[i]) return changed;
    const PairedTimes times_found = times.kernel(kernel.hash, stored_[i] ? stored : none, found);
    const Verdict verdict = verdict_of(times_found);
    const bool is_worth_it = !stored_[i] || times_found.rounds.empty() || times_found.ratio() <= 1 - kLeastGain;
    const bool wins = must_win ? verdict == Verdict::kFaster && is_worth_it : verdict != Verdict::kSlower;
    if (wins && !times_found.rounds.empty()) return changed;
    drop(found_[i], kernel.found_lost, times_found);
    return true;
  }

  // Everything together with the graph that was found, beside the default and what the records held.
  void choose_graph() {
    Contestant& graph = contest_.graph;
    const Standing before = graph.has_stored ? Standing::kStored : Standing::kDefault;
    Lineups lineups;
    const size_t none = lineups.place_of(with_defaults(Standing::kDefault));
    const Lineup old = with_kernels(before, false);
    const size_t stored = old.is_stored() || graph.has_stored ? lineups.place_of(old) : none;
    const size_t found = lineups.place_of(with_kernels(Standing::kFound, true));
    const ModelTimes times = measure_(lineups.list(), [&](const ModelTimes& so_far) {
      return verdict_of(so_far.whole(none, found)) != Verdict::kUndecided &&
             (stored == none || (verdict_of(so_far.whole(stored, found)) != Verdict::kUndecided &&
                                 verdict_of(so_far.whole(none, stored)) != Verdict::kUndecided));
    });
    const PairedTimes beside_default = times.whole(none, found), beside_stored = times.whole(stored, found);
    contest_.gain = beside_default;
    const bool beats_default = verdict_of(beside_default) == Verdict::kFaster;
    if (beats_default && (stored == none || verdict_of(beside_stored) == Verdict::kFaster)) {
      contest_.whole.reset();  // of kernels in it
      return;
    }
    const PairedTimes& lost = beats_default ? beside_stored : beside_default;
    drop_found(lost);
    graph.found_lost = contest_.whole = lost;
    graph.stands = before;
    contest_.gain = stored == none ? PairedTimes() : times.whole(none, stored);
    if (stored != none && is_surely_slower(contest_.gain)) drop_all(contest_.gain);
  }

  void check_stored_graph() {
    Lineups lineups;
    const size_t none = lineups.place_of(with_defaults(Standing::kDefault));
    const size_t stands = lineups.place_of(with_kernels(Standing::kStored, true));
    const ModelTimes times = measure_(lineups.list(), [&](const ModelTimes& so_far) {
      return verdict_of(so_far.whole(none, stands)) != Verdict::kUndecided;
    });
    contest_.gain = times.whole(none, stands);
    if (is_surely_slower(contest_.gain)) drop_all(contest_.gain);
  }

  // By value: it may be a part of the contest.
  void drop_all(const PairedTimes times) {
    drop_found(times);
    drop_stored(times);
    if (contest_.graph.has_stored) contest_.graph.stored_lost = times;
    contest_.graph.stands = Standing::kDefault;
    contest_.whole = times;
    contest_.gain = {};
  }

  Contest& contest_;
  const MeasureLineups& measure_;
  std::vector<bool> stored_, found_;  // of the kernels: who is left
};

}  // namespace

bool is_surely_slower(const PairedTimes& times) {
  return verdict_of(times) == Verdict::kSlower && times.ratio() >= 1 + kLeastGain;
}

void hold_contest(Contest& contest, const MeasureLineups& measure) { Holder(contest, measure).run(); }

std::string verdict_text(const Contest& held) {
  const auto any = [&](auto has) {
    return has(held.graph) || std::any_of(held.kernels.begin(), held.kernels.end(), has);
  };
  const bool stored_lost = any([](const Contestant& entry) { return entry.stored_lost.has_value(); });
  const PairedTimes& gain = held.gain;
  if (gain.rounds.empty() && stored_lost)
    return "the default is surely faster than what the records held, and takes its place";
  if (gain.rounds.empty() && held.whole)
    return fmt::format(
        "the tuned model takes {:.3f} times the default, faster in {} of {} rounds: it is not surely faster, and the "
        "default stays",
        held.whole->ratio(), held.whole->wins(), held.whole->rounds.size());
  if (gain.rounds.empty()) return "nothing that was faster alone was surely faster in the model: the default stays";
  const std::string fast =
      fmt::format("{:.3f} times as fast, faster in {} of {} rounds", 1 / gain.ratio(), gain.wins(), gain.rounds.size());
  if (any([](const Contestant& entry) { return entry.stands == Standing::kFound; })) return fast;
  if (held.whole)
    return fmt::format(
        "what was found takes {:.3f} times what the records hold, faster in {} of {} rounds: it is not surely faster, "
        "and what they hold stays: {}",
        held.whole->ratio(), held.whole->wins(), held.whole->rounds.size(), fast);
  return fmt::format("{} surely faster in the model than what the records hold, which stays: {}",
                     any([](const Contestant& entry) { return entry.has_found; }) ? "nothing that was faster alone was"
                                                                                  : "nothing was found that is",
                     fast);
}

void settle(RecordFile& records, const RecordKey& key, const Contestant& result,
            const std::optional<ChoiceRecord>& candidate) {
  if (result.stands == Standing::kFound) {
    ChoiceRecord won = *candidate;
    won.state = "won";
    records.set_choice(won);
  } else if (result.stands == Standing::kDefault) {
    std::optional<ChoiceRecord> held = records.choice(key);
    // One that is not in the contest - of a newer version, say - is not ours to judge.
    if (!result.stored_lost && held && held->state == "won") held.reset();
    else if (!result.stored_lost) held = candidate;
    if (held) {
      held->state = "reverted";
      records.set_choice(*held);
    }
  }
  if (candidate) records.drop_candidate(key);
}

}  // namespace tessera::inline tune
