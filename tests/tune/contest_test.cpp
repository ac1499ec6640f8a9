// Who stands at the end of a search, on a machine whose times are made up: no clock, and the same noise in each run.
#include "tune/contest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tessera {
namespace {

// What each contestant takes, in microseconds, with 5% of noise on kernels and half a percent on the rest.
struct FakeMachine {
  struct Times {
    double by_default = 100, stored = 100, found = 100;
    double of(Standing standing) const {
      return standing == Standing::kFound ? found : standing == Standing::kStored ? stored : by_default;
    }
  };
  std::map<std::string, Times> kernels;
  Times graph = {1000, 1000, 1000};             // of everything else
  std::map<Standing, double> whole_extra = {};  // that kernels do not explain, of runs with any kernel so
  double others = 0;                            // that their choices take longer
  double noise = 0.05;                          // of kernels
  int64_t most_rounds = 64;
  std::mt19937 random{5};
  int comparisons = 0;
  std::vector<Lineup> last = {};

  double noisy(double us, double share) {
    return us * std::uniform_real_distribution<double>(1 - share, 1 + share)(random);
  }

  ModelTimes operator()(const std::vector<Lineup>& lineups, const std::function<bool(const ModelTimes&)>& decided) {
    ++comparisons;
    last = lineups;
    ModelTimes times;
    times.runs.resize(lineups.size());
    for (const auto& [hash, us] : kernels) times.kernels[hash].resize(lineups.size());
    for (int64_t round = 0; round < most_rounds; ++round) {
      for (size_t i = 0; i < lineups.size(); ++i) {
        double sum = noisy(graph.of(lineups[i].graph), 0.005) + (lineups[i].others ? others : 0);
        std::set<Standing> standings;
        for (const auto& [hash, us] : kernels) {
          const auto named = lineups[i].kernels.find(hash);
          const Standing standing = named == lineups[i].kernels.end() ? Standing::kDefault : named->second;
          const double kernel_us = us.of(standing);
          times.kernels[hash][i].push_back(kernel_us < 0 ? std::numeric_limits<double>::quiet_NaN()
                                                         : noisy(kernel_us, noise));
          sum += std::max(0.0, kernel_us);
          standings.insert(standing);
        }
        for (const Standing standing : standings)
          if (const auto extra = whole_extra.find(standing); extra != whole_extra.end()) sum += extra->second;
        times.runs[i].push_back(sum);
      }
      const bool is_look = round + 1 >= kFirstLook && ((round + 1) & round) == 0;
      if (is_look && decided(times)) break;
    }
    return times;
  }

  Contest hold(Contest contest) {
    hold_contest(contest, std::ref(*this));
    return contest;
  }
};

Contestant contestant(const std::string& hash, bool has_stored, bool has_found) {
  Contestant result;
  result.hash = hash;
  result.has_stored = has_stored;
  result.has_found = has_found;
  return result;
}

Contest of_kernels(std::vector<Contestant> kernels) {
  Contest contest;
  contest.kernels = std::move(kernels);
  return contest;
}

TEST(Contest, WithoutRecordsTheDefaultIsToBeBeaten) {
  FakeMachine machine{{{"faster", {100, 0, 50}}, {"same", {100, 0, 100}}, {"slower", {100, 0, 120}}}};
  const Contest held = machine.hold(of_kernels(
      {contestant("faster", false, true), contestant("same", false, true), contestant("slower", false, true)}));
  EXPECT_EQ(held.kernels[0].stands, Standing::kFound);
  EXPECT_EQ(held.kernels[1].stands, Standing::kDefault);
  EXPECT_EQ(held.kernels[2].stands, Standing::kDefault);
  EXPECT_NEAR(held.kernels[2].found_lost->ratio(), 1.2, 0.05);
  EXPECT_EQ(machine.comparisons, 2) << "what is left is measured again";
  EXPECT_LT(held.gain.ratio(), 1);
  EXPECT_FALSE(held.whole);
}

TEST(Contest, WhatDoesNotRunInTheModelLoses) {
  FakeMachine machine{{{"a", {100, 80, -1}}, {"b", {100, 0, -1}}}};
  const Contest held = machine.hold(of_kernels({contestant("a", true, true), contestant("b", false, true)}));
  EXPECT_EQ(held.kernels[0].stands, Standing::kStored);
  EXPECT_EQ(held.kernels[1].stands, Standing::kDefault);
  EXPECT_TRUE(held.kernels[1].found_lost->rounds.empty());
}

TEST(Contest, OfWhatTheRecordsHoldOnlyTheSurelySlowerGoes) {
  FakeMachine machine{{{"faster", {100, 80, 0}}, {"same", {100, 100, 0}}, {"slower", {100, 130, 0}}}};
  const Contest held = machine.hold(of_kernels(
      {contestant("faster", true, false), contestant("same", true, false), contestant("slower", true, false)}));
  EXPECT_EQ(held.kernels[0].stands, Standing::kStored);
  EXPECT_EQ(held.kernels[1].stands, Standing::kStored) << "undecided changes nothing";
  EXPECT_EQ(held.kernels[2].stands, Standing::kDefault);
  EXPECT_NEAR(held.kernels[2].stored_lost->ratio(), 1.3, 0.05);
}

TEST(Contest, AProvenChoiceGoesForNoLessThanAPercent) {
  FakeMachine machine{{{"slower", {100, 100.3, 0}}, {"faster", {100, 80, 79.8}}, {"new", {100, 0, 99.3}}}};
  machine.noise = 0.005;
  machine.most_rounds = kMostRounds;
  const Contest held = machine.hold(of_kernels(
      {contestant("slower", true, false), contestant("faster", true, true), contestant("new", false, true)}));
  EXPECT_EQ(held.kernels[0].stands, Standing::kStored);
  EXPECT_EQ(held.kernels[1].stands, Standing::kStored);
  EXPECT_EQ(verdict_of(*held.kernels[1].found_lost), Verdict::kFaster) << "it is, though not by enough";
  EXPECT_EQ(held.kernels[2].stands, Standing::kFound) << "it has won by a percent alone";
}

TEST(Contest, WhatBeatsASlowStoredChoiceMustBeatTheDefaultToo) {
  FakeMachine machine{{{"a", {100, 140, 100}}, {"b", {100, 140, 70}}, {"c", {100, 140, 110}}}};
  const Contest held =
      machine.hold(of_kernels({contestant("a", true, true), contestant("b", true, true), contestant("c", true, true)}));
  EXPECT_EQ(held.kernels[0].stands, Standing::kDefault);
  EXPECT_EQ(held.kernels[1].stands, Standing::kFound);
  EXPECT_EQ(held.kernels[2].stands, Standing::kDefault);
  EXPECT_TRUE(held.kernels[0].stored_lost && held.kernels[0].found_lost);
}

TEST(Contest, TheWholeHasTheLastWord) {
  // Each kernel is faster by itself, and makes others slower.
  FakeMachine machine{{{"a", {100, 80, 60}}, {"b", {100, 0, 60}}}};
  machine.whole_extra[Standing::kFound] = 300;
  const Contest held = machine.hold(of_kernels({contestant("a", true, true), contestant("b", false, true)}));
  EXPECT_EQ(held.kernels[0].stands, Standing::kStored);
  EXPECT_EQ(held.kernels[1].stands, Standing::kDefault);
  ASSERT_TRUE(held.whole);
  EXPECT_GT(held.whole->ratio(), 1);
  machine.whole_extra = {{Standing::kStored, 300}};
  const Contest again = machine.hold(of_kernels({contestant("a", true, false)}));
  EXPECT_EQ(again.kernels[0].stands, Standing::kDefault);
  EXPECT_TRUE(again.gain.rounds.empty());
}

TEST(Contest, RecordsOfOtherKernelsAreOnBothSides) {
  FakeMachine machine{{{"a", {100, 0, 60}}}};
  machine.others = -500;  // so that they alone would make anything look good
  Contest contest = of_kernels({contestant("a", false, true)});
  contest.has_others = true;
  machine.whole_extra[Standing::kFound] = 100;
  const Contest held = machine.hold(contest);
  EXPECT_EQ(machine.last.size(), 3u);
  EXPECT_EQ(held.kernels[0].stands, Standing::kDefault) << "the whole became slower by it";
  EXPECT_LT(held.gain.ratio(), 1) << "with the others' choices alone";
}

TEST(Contest, AGraphMustBeatTheStoredOne) {
  const auto held_with = [](FakeMachine::Times graph, bool has_stored, bool has_found) {
    FakeMachine machine{{{"a", {100, 80, 60}}}};
    machine.graph = graph;
    Contest contest = of_kernels({contestant("a", true, true)});
    contest.graph.has_stored = has_stored;
    contest.graph.has_found = has_found;
    return machine.hold(contest);
  };
  const auto standings = [](const Contest& held) { return std::pair(held.graph.stands, held.kernels[0].stands); };
  using enum Standing;
  EXPECT_EQ(standings(held_with({1000, 900, 700}, true, true)), std::pair(kFound, kFound));
  EXPECT_EQ(standings(held_with({1000, 700, 800}, true, true)), std::pair(kStored, kStored))
      << "all that was found goes";
  EXPECT_EQ(standings(held_with({1000, 0, 700}, false, true)), std::pair(kFound, kFound));
  EXPECT_EQ(standings(held_with({1000, 0, 1200}, false, true)), std::pair(kDefault, kStored));
  EXPECT_EQ(standings(held_with({1000, 900, 0}, true, false)), std::pair(kStored, kFound));
  EXPECT_EQ(standings(held_with({1000, 1500, 0}, true, false)), std::pair(kDefault, kDefault));
  EXPECT_EQ(standings(held_with({1000, 1500, 1400}, true, true)), std::pair(kDefault, kDefault));
  // 40 us less of the kernel make it the default's equal: undecided, and what stood stays.
  EXPECT_EQ(standings(held_with({1000, 1040, 0}, true, false)), std::pair(kStored, kFound));
}

// The schedule's text is how long it takes. One search after another over one file: what a compile uses is never slower
// after a search than before it, and a proven choice is never taken back for one that is as fast.
TEST(Contest, NoRegretOverSeveralSearches) {
  const std::string path = testing::TempDir() + "contest-" + std::to_string(getpid()) + ".db";
  std::filesystem::remove(path);
  RecordFile records(path, RecordFile::Open::kWrite);
  const RecordKey key{"a", 1, 1};
  const auto record = [&](double us) {
    ChoiceRecord result;
    result.key = key;
    result.payload.text = std::to_string(us);
    result.default_us = 100;
    result.us = us;
    return result;
  };
  const auto search = [&](std::optional<double> finds, unsigned seed) {
    FakeMachine machine{{{"a", {100, 0, 0}}}};
    machine.random.seed(seed);
    const auto stored = records.choice(key);
    const bool has_stored = stored && stored->state == "won";
    if (has_stored) machine.kernels["a"].stored = std::stod(stored->payload.text);
    std::optional<ChoiceRecord> candidate;
    if (finds) {
      candidate = record(*finds);
      records.set_candidate(*candidate);
      machine.kernels["a"].found = *finds;
      EXPECT_EQ(records.choice(key).has_value(), stored.has_value()) << "a kill here leaves what is used as it is";
    }
    const Contest held = machine.hold(of_kernels({contestant("a", has_stored, finds.has_value())}));
    settle(records, key, held.kernels[0], candidate);
    EXPECT_TRUE(records.candidates().empty());
    const auto now = records.choice(key);
    return now ? now->state + " " + std::to_string(std::lround(std::stod(now->payload.text))) : "";
  };
  for (unsigned seed = 0; seed < 20; ++seed) {
    records.set_choice(record(80));
    EXPECT_EQ(search(80, seed), "won 80") << "as fast";
    EXPECT_EQ(search(95, seed), "won 80") << "slower, though faster than the default";
    EXPECT_EQ(search({}, seed), "won 80") << "nothing new";
    EXPECT_EQ(search(50, seed), "won 50");
    EXPECT_EQ(search(51, seed), "won 50");
  }
  // A choice that was proven on another day, and is as fast as the default today, stays; a slower one goes.
  records.set_choice(record(100));
  EXPECT_EQ(search({}, 3), "won 100");
  EXPECT_EQ(search(99.9, 3), "won 100");
  records.set_choice(record(150));
  EXPECT_EQ(search({}, 3), "reverted 150");
  EXPECT_EQ(search({}, 3), "reverted 150");
  EXPECT_EQ(search(110, 3), "reverted 110") << "what lost last";
  EXPECT_EQ(search(70, 3), "won 70");
  // A record that this version cannot use is not in the contest; the candidate that loses to the default leaves it.
  ChoiceRecord newer = record(10);
  records.set_choice(newer);
  records.set_candidate(record(120));
  Contestant lost = contestant("a", false, true);
  lost.found_lost = PairedTimes();
  settle(records, key, lost, record(120));
  EXPECT_EQ(records.choice(key)->state, "won");
  EXPECT_EQ(records.choice(key)->us, 10);
  EXPECT_TRUE(records.candidates().empty());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera
