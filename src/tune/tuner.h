// The whole search: a model's kernels as tasks, trials until the budget is spent, records of everything, and at the end
// the tuned module against the untuned one.
//
// What stands at the begin of a task is the rules' own choice (trial 0). A candidate takes its place when it is faster
// in paired rounds (statistics.h), twice, in two processes; and the last word has the whole model, in which the
// default, what the records held and what was found meet (contest.h). Until then what was found is a candidate in the
// records, which no compile uses.
//
// Before the kernels, what is done to the model as a whole is searched (graph_search.h); kernels are those of the
// choice that won.
//
// Code for another machine runs on workers alone (remote_measurer.h): kernels are timed one by one, each winner has to
// win once more against what stood, and the model as a whole is not compared.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/engine/model.h"
#include "driver/options.h"
#include "records/records.h"
#include "tune/graph_search.h"
#include "tune/measurer.h"
#include "tune/search.h"

namespace tessera::inline tune {

struct TuneStatus {
  std::string task;  // its nodes' names, shortened
  size_t tasks = 0;
  int64_t trials = 0;
  double seconds = 0;
  double task_us = 0, task_default_us = 0, task_percent_of_peak = 0;
  double model_us = 0, model_default_us = 0;  // estimates
  double remaining_us = 0;                    // that the rooflines leave to gain, of the whole model
  std::string doing;
};

struct TuneOptions {
  DriverOptions driver;
  std::string model, db;
  double budget_seconds = 0;  // 0: no limit
  int64_t trials = 0;         // of all tasks together; 0: no limit
  int64_t batch = 8;          // candidates of one round
  std::string only;           // kernels whose hash begins with it, or whose nodes' names hold it; empty: all
  SearchMode mode = SearchMode::kEvolutionary;
  SpaceKind space = SpaceKind::kAll;
  uint64_t seed = 1;
  bool resume = false;                    // go on from the trials in the records
  bool search_graph = true;               // not with `only`, nor where code for the target does not run here
  std::string cost_model = "pretrained";  // that kModel begins with: "pretrained", "none", or a file (cost_model.h)
  std::string save_model;                 // file for the model at the end; empty: none
  BenchLimits limits;
  std::function<void(Model& model)> bind;                   // gives a model that runs here its inputs
  std::function<void(const TuneStatus& status)> on_status;  // often; may be null
  std::function<std::unique_ptr<Measurer>(const Target& target)>
      measurer;  // null: this machine alone; must be set when code for the target does not run here
  const std::atomic<bool>* stop = nullptr;  // set by a signal handler: end soon
};

struct TunedTask {
  std::string hash, name, rule;
  int64_t calls = 0;
  double share = 0;                    // of the model's time before
  double default_us = 0, best_us = 0;  // of one call, in the bench
  double percent_of_bound = 0;         // of the machine's roofline, with the default
  std::string default_point, best_point;
  int64_t trials = 0;
  std::vector<double> trial_us;  // of each trial, in order; -1 when it was not measured
  // What stood after each trial, confirmed, of one call; counted from the trial that proposed it.
  std::vector<double> standing_us;
  std::string outcome;  // "tuned", "default stays", "reverted", or why there were no trials
};

struct TuneResult {
  std::vector<TunedTask> tasks;  // largest share first, those without trials included
  std::string graph;             // what the model goes without (driver/graph_choice.h); empty: nothing
  std::vector<GraphTrial> graph_trials;
  int64_t trials = 0;
  double seconds = 0;
  double default_ms = 0, tuned_ms = 0;  // medians of the last comparison; 0 when there was none
  int64_t rounds = 0, wins = 0;
  std::string verdict;            // what became of the whole model, in a sentence
  int64_t predictions = 0;        // of the learned model, with the features that it sees
  double prediction_seconds = 0;  // all of them together
  bool interrupted = false;
  std::vector<ProgressRecord> log;
};

// UserError TSR-4056: TuneOptions::only is the name of none of the kernels `names`, of which the first ones are told.
[[noreturn]] void refuse_only(const std::string& only, std::vector<std::string> names);

// UserError for what the user can mend. Everything that was found is in the records at every moment.
TuneResult tune_model(const TuneOptions& options);

}  // namespace tessera::inline tune
