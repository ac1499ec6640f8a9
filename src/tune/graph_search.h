// The search over what is done to a model as a whole: layouts, products that become one, which kernels run as a chain
// and where the chain ends (driver/graph_choice.h). Each step of the compiler that is a matter of speed is left out,
// then each chain of kernels by itself; what is surely faster, and computes the same, stays out while the others are
// tried: a greedy search, since choices far apart in a model rarely depend on each other. Kernels are tuned behind it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/graph_choice.h"
#include "driver/options.h"
#include "tune/model_tasks.h"

namespace tessera::inline tune {

struct GraphTrial {
  GraphChoice choice;
  std::string status;  // "ok", "same program", "build failed", "wrong result"
  std::string detail;  // of the last two
  double ratio = -1;   // of the model's time to what stood before; -1 when it was not measured
  bool is_kept = false;
};

struct GraphSearch {
  GraphChoice choice;
  RunningModel model;    // with the choice; empty when it is the default
  PairedTimes measured;  // beside the default, of the whole choice
  std::vector<GraphTrial> trials;
};

struct GraphSearchOptions {
  std::string model;
  DriverOptions driver;
  double seconds = 0;                                       // for all of it, not much exceeded
  std::function<void(Model& model)> bind;                   // gives it its inputs
  std::function<void(const GraphChoice& choice)> on_begin;  // of each trial
  std::function<bool()> stopped;                            // end soon
};

// `before` is the default, bound to its inputs; `from`: what stands when the search begins, mostly nothing.
GraphSearch search_graph(RunningModel& before, GraphSearch from, const GraphSearchOptions& options);

}  // namespace tessera::inline tune
