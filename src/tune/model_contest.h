// A contest (contest.h) in a model that runs here: each lineup is compiled once, and all of them run in turn.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "driver/decisions.h"
#include "driver/graph_choice.h"
#include "schedule/choose.h"
#include "tune/contest.h"
#include "tune/model_tasks.h"

namespace tessera::inline tune {

// What could run a kernel beside its default.
struct ContestPoints {
  std::optional<KnobPoint> stored, found;
};

struct ModelContest {
  RunningModel& before;    // what the rules choose
  RunningModel& searched;  // the same with the graph in which this search tuned kernels; `before` where it is none
  GraphChoice stored_graph, searched_graph;
  std::shared_ptr<Decisions> stored;             // what compiles use of the records
  std::map<std::string, ContestPoints> kernels;  // that this search took on, by structural hash
  std::function<RunningModel(const GraphChoice& graph, std::shared_ptr<Decisions> decisions)> load;
  std::function<void()> on_begin;  // of each comparison
};

// One comparison takes `seconds`, all of them together three times that; but each has its first look.
Contest hold_contest(const ModelContest& model, double seconds);

}  // namespace tessera::inline tune
