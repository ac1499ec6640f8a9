#include "tune/graph_search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "diagnose/compare.h"
#include "driver/compile.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLeastShare = 0.05;  // of the time, for one comparison
constexpr double kHopeless = 1.2;     // times as slow at first sight
constexpr int kMostChains = 24;       // that are tried one by one

double fastest_us(Model& model) {
  constexpr int kRuns = 3;
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const Clock::time_point begin = Clock::now();
    model.run();
    fastest = std::min(fastest, std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
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

class GraphSearcher {
 public:
  GraphSearcher(RunningModel& before, const GraphSearchOptions& options) : before_(before), options_(options) {}

  GraphSearch run() {
    standing_text_ = program_text({});
    std::vector<std::pair<std::string_view, int>> joined;  // chains that there are
    for (const std::string_view step : searched_steps()) {
      if (options_.driver.compile.disabled_passes.contains(std::string(step))) continue;
      GraphChoice choice = result_.choice;
      choice.steps.emplace(step);
      const bool is_kept = attempt(choice);
      if (!is_kept && makes_chains(step))
        for (int chain = 0; chain < chains_of(step); ++chain) joined.emplace_back(step, chain);
    }
    if (joined.size() > kMostChains) joined.resize(kMostChains);
    for (const auto& [step, chain] : joined) {
      GraphChoice choice = result_.choice;
      choice.chains.emplace(step, chain);
      attempt(choice);
    }
    return std::move(result_);
  }

 private:
  RunningModel& standing() { return result_.choice.empty() ? before_ : result_.model; }
  double seconds_left() const {
    return options_.seconds - std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  int chains_of(std::string_view step) {
    const std::vector<Kernel>& kernels = standing().compiled.program.kernels;
    return static_cast<int>(
        std::count_if(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.rule == step; }));
  }

  // Whether the choice takes the place of what stands.
  bool attempt(const GraphChoice& choice) {
    if (options_.stopped() || seconds_left() <= 0) return false;
    options_.on_begin(choice);
    GraphTrial trial;
    trial.choice = choice;
    RunningModel candidate;
    std::string text;
    try {
      text = program_text(choice);
      trial.status = text == standing_text_ ? "same program" : "ok";
      if (trial.status == "ok") candidate = make(choice);
    } catch (const std::exception& error) {
      trial.status = "build failed";
      trial.detail = error.what();
    }
    if (trial.status == "ok") {
      trial.ratio = fastest_us(*candidate.model) / fastest_us(*standing().model);
      trial.detail = difference(*candidate.model, *standing().model);
      if (!trial.detail.empty()) trial.status = "wrong result";
      else if (trial.ratio < kHopeless) trial.is_kept = is_faster_than_all(candidate, trial);
    }
    const bool is_kept = trial.is_kept;
    result_.trials.push_back(std::move(trial));
    if (is_kept) {
      result_.choice = choice;
      result_.model = std::move(candidate);
      standing_text_ = std::move(text);
    }
    return is_kept;
  }

  DriverOptions driver_with(const GraphChoice& choice) const {
    DriverOptions driver = options_.driver;
    driver.graph_choice = choice;
    return driver;
  }

  // Without machine code, which takes most of a compile.
  std::string program_text(const GraphChoice& choice) const {
    DriverOptions driver = driver_with(choice);
    driver.emit = Emit::kProgram;
    return compile_model(options_.model, driver).text;
  }

  RunningModel make(const GraphChoice& choice) const {
    RunningModel made = compile_and_load(options_.model, driver_with(choice));
    options_.bind(*made.model);
    return made;
  }

  // Than what stands, and than the default.
  bool is_faster_than_all(RunningModel& candidate, GraphTrial& trial) {
    const auto faster = [&](RunningModel& other, PairedTimes& times) {
      const double seconds = std::max(kLeastShare * options_.seconds, 0.1);
      times = compare_models(other, candidate, seconds, [](const ModelComparison& so_far) {
                return verdict_of(so_far.whole) != Verdict::kUndecided;
              }).whole;
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
  std::string standing_text_;  // the program that stands
  GraphSearch result_;
};

}  // namespace

GraphSearch search_graph(RunningModel& before, const GraphSearchOptions& options) {
  return GraphSearcher(before, options).run();
}

}  // namespace tessera
