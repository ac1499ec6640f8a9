#include "tune/model_contest.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "tune/task_kernel.h"

namespace tessera::inline tune {
namespace {

using Clock = std::chrono::steady_clock;

// Each kernel runs as it does in a lineup.
class LineupDecisions : public Decisions {
 public:
  LineupDecisions(const ModelContest& model, const Lineup& lineup) : model_(model), lineup_(lineup) {}

  std::string digest() const override { return "a lineup"; }

  TunedChoice choose_schedule(const Kernel& kernel) override {
    const TaskKernel task(kernel);
    if (!task) return {};
    const std::string hash = task.hash();
    const auto points = model_.kernels.find(hash);
    if (points == model_.kernels.end()) return lineup_.others ? model_.stored->choose_schedule(kernel) : TunedChoice();
    const auto standing = lineup_.kernels.find(hash);
    if (standing == lineup_.kernels.end() || standing->second == Standing::kDefault) return {};
    return {standing->second == Standing::kFound ? points->second.found : points->second.stored, ""};
  }

 private:
  const ModelContest& model_;
  const Lineup lineup_;
};

class Lineups {
 public:
  Lineups(const ModelContest& model, double seconds)
      : model_(model), seconds_(seconds), seconds_left_(kComparisons * seconds) {}

  ModelTimes measure(const std::vector<Lineup>& lineups, const std::function<bool(const ModelTimes&)>& decided) {
    model_.on_begin();
    // A model is memory: those that are not asked for any more go.
    std::erase_if(loaded_, [&](const auto& entry) {
      return std::find(lineups.begin(), lineups.end(), entry.first) == lineups.end();
    });
    std::vector<RunningModel*> models;
    for (const Lineup& lineup : lineups) models.push_back(&model_of(lineup));
    const Clock::time_point begin = Clock::now();
    ModelTimes times = compare_models(models, std::clamp(seconds_left_, 0.0, seconds_), /*anew=*/true, decided);
    seconds_left_ -= std::chrono::duration<double>(Clock::now() - begin).count();
    return times;
  }

 private:
  static constexpr double kComparisons = 3;

  const GraphChoice& graph_of(Standing standing) const {
    return standing == Standing::kFound    ? model_.searched_graph
           : standing == Standing::kStored ? model_.stored_graph
                                           : none_;
  }

  RunningModel& model_of(const Lineup& lineup) {
    const GraphChoice& graph = graph_of(lineup.graph);
    if (!lineup.is_stored() && graph.empty()) return model_.before;
    if (!lineup.is_stored() && graph == model_.searched_graph) return model_.searched;
    const auto [entry, is_new] = loaded_.try_emplace(lineup);
    if (is_new)
      entry->second = model_.load(
          graph, lineup.is_stored() ? std::make_shared<LineupDecisions>(model_, lineup) : default_decisions());
    return entry->second;
  }

  const ModelContest& model_;
  const double seconds_;
  double seconds_left_;
  std::map<Lineup, RunningModel> loaded_;
  const GraphChoice none_;
};

}  // namespace

Contest hold_contest(const ModelContest& model, double seconds) {
  Contest contest;
  for (const auto& [hash, points] : model.kernels)
    if (points.stored || points.found) {
      Contestant& entry = contest.kernels.emplace_back();
      entry.hash = hash;
      entry.has_stored = points.stored.has_value();
      entry.has_found = points.found.has_value();
    }
  contest.graph.has_stored = !model.stored_graph.empty();
  contest.graph.has_found = model.searched_graph != model.stored_graph;
  for (const Kernel& kernel : model.searched.compiled.program.kernels)
    if (const TaskKernel task(kernel); task && !model.kernels.contains(task.hash()))
      contest.has_others |= model.stored->choose_schedule(kernel).point.has_value();
  Lineups lineups(model, seconds);
  hold_contest(contest, [&](const auto& list, const auto& decided) { return lineups.measure(list, decided); });
  return contest;
}

}  // namespace tessera::inline tune
