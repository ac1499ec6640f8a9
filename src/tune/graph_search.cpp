#include "tune/graph_search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <utility>

#include "diagnose/compare.h"
#include "driver/compile.h"

namespace tessera::inline tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLeastShare = 0.05;  // of the time, for one comparison
constexpr double kHopeless = 1.2;     // times as slow at first sight
constexpr int kMostChains = 24;       // that are tried one by one

double fastest_us(Model& model) {
  constexpr int kRuns = 3;
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) fastest = std::min(fastest, microseconds_of(model));
  return fastest;
}

// Empty when both models' results agree.
std::string difference(const Model& got, const Model& want) {
  constexpr Tolerance kTolerance = {.rtol = 1e-3, .atol = 0, .mtol = 1e-3};
  const std::vector<RunValue> ours = got.value_results(), theirs = want.value_results();
  for (size_t i = 0; i < theirs.size(); ++i)
    if (const Comparison compared = compare(ours[i], theirs[i], kTolerance); !compared.agrees)
      return want.outputs()[i].name + ": " + compared.text;
  return "";
}

// The names of the chains that a compile could make.
class OfferedChains : public Observer {
 public:
  void chain_offered(std::string_view step, const Kernel& made) override { names.push_back(name_of_chain(step, made)); }
  std::vector<std::string> names;
};

class GraphSearcher {
 public:
  GraphSearcher(RunningModel& before, GraphSearch from, const GraphSearchOptions& options)
      : before_(before), options_(options), result_(std::move(from)) {}

  GraphSearch run() {
    standing_text_ = program_text(result_.choice, chains_);
    for (const std::string_view step : searched_steps()) {
      if (options_.driver.compile.disabled_passes.contains(std::string(step))) continue;
      if (result_.choice.steps.contains(std::string(step))) continue;
      GraphChoice choice = result_.choice;
      choice.steps.emplace(step);
      attempt(choice);
    }
    std::set<std::string> known = result_.choice.chains;
    for (int tried = 0; tried < kMostChains; ++tried) {
      // Without a chain others may be made.
      const auto next = std::find_if(chains_.begin(), chains_.end(), [&](const auto& c) { return !known.contains(c); });
      if (next == chains_.end()) break;
      known.insert(*next);
      GraphChoice choice = result_.choice;
      choice.chains.insert(*next);
      attempt(choice);
    }
    return std::move(result_);
  }

 private:
  RunningModel& standing() { return result_.choice.empty() ? before_ : result_.model; }
  double seconds_left() const {
    return options_.seconds - std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  // The choice takes the place of what stands when it is faster.
  void attempt(const GraphChoice& choice) {
    if (options_.stopped() || seconds_left() <= 0) return;
    options_.on_begin(choice);
    GraphTrial trial;
    trial.choice = choice;
    RunningModel candidate;
    std::string text;
    std::vector<std::string> chains;
    try {
      trial.status = "build failed";
      text = program_text(choice, chains);
      const bool is_new = text != standing_text_;
      if (is_new) candidate = make(choice);
      trial.status = is_new ? "run failed" : "same program";
      if (is_new) {
        trial.ratio = fastest_us(*candidate.model) / fastest_us(*standing().model);
        before_.model->run();
        trial.detail = difference(*candidate.model, *before_.model);
        trial.status = trial.detail.empty() ? "ok" : "wrong result";
      }
    } catch (const std::exception& error) {
      trial.detail = error.what();
    }
    if (trial.status == "ok" && trial.ratio < kHopeless) trial.is_kept = is_faster_than_all(candidate, trial);
    const bool is_kept = trial.is_kept;
    result_.trials.push_back(std::move(trial));
    if (is_kept) {
      result_.choice = choice;
      result_.model = std::move(candidate);
      standing_text_ = std::move(text);
      chains_ = std::move(chains);
    }
  }

  DriverOptions driver_with(const GraphChoice& choice) const {
    DriverOptions driver = options_.driver;
    driver.graph_choice = choice;
    return driver;
  }

  // Without machine code, which takes most of a compile.
  std::string program_text(const GraphChoice& choice, std::vector<std::string>& chains) const {
    DriverOptions driver = driver_with(choice);
    OfferedChains offered;
    driver.observers.add(offered);
    driver.emit = Emit::kProgram;
    std::string text = compile_model(options_.model, driver).text;
    chains = std::move(offered.names);
    return text;
  }

  RunningModel make(const GraphChoice& choice) const {
    return compile_and_load(options_.model, driver_with(choice), options_.bind);
  }

  // Than what stands, and than the default.
  bool is_faster_than_all(RunningModel& candidate, GraphTrial& trial) {
    const auto faster = [&](RunningModel& other, PairedTimes& times) {
      const double seconds = std::max(kLeastShare * options_.seconds, 0.1);
      times = compare_whole(other, candidate, seconds, options_.stopped);
      return is_faster(times);
    };
    PairedTimes beside_standing, beside_default;
    const bool wins = faster(standing(), beside_standing);
    trial.ratio = beside_standing.ratio();
    // Once more: of many candidates one is lucky now and then.
    if (!wins || !faster(before_, beside_default)) return false;
    result_.measured = std::move(beside_default);
    return true;
  }

  RunningModel& before_;
  const GraphSearchOptions& options_;
  Clock::time_point begin_ = Clock::now();
  std::string standing_text_;        // the program that stands
  std::vector<std::string> chains_;  // that are offered in it
  GraphSearch result_;
};

}  // namespace

GraphSearch search_graph(RunningModel& before, GraphSearch from, const GraphSearchOptions& options) {
  return GraphSearcher(before, std::move(from), options).run();
}

}  // namespace tessera::inline tune
