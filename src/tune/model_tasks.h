// A model's kernels as tasks of the tuner: kernels that compute the same are one, weighted by their time in a run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/roofline.h"
#include "driver/analysis/kernel_times.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "package/anonymous_file.h"
#include "tune/statistics.h"
#include "tune/task_kernel.h"

namespace tessera::inline tune {

struct ModelTask {
  std::string hash, text;  // te/canonical.h
  std::string name;        // nodes of the model; of the first kernel
  TaskKernel definition;
  int64_t calls = 0;           // in one run
  double run_us = 0;           // of all its calls in one run
  KernelWork work;             // of one call
  std::vector<int64_t> reuse;  // distances of its first call's traffic
};

struct ModelTasks {
  std::vector<ModelTask> tasks;                             // most time first
  std::vector<std::pair<ModelTask, std::string>> left_out;  // with the reason why there is nothing to tune
  double run_us = 0;                                        // of all kernels
  int64_t constant_bytes = 0;                               // of weights that they read in a run
};

// Of a call's arguments (program/reuse_distance.h); empty for no traffic.
std::vector<int64_t> distances_of(const std::vector<CallTraffic>& traffic);

// The tasks of a compiled model whose kernels took `times` on a machine with such peaks.
ModelTasks model_tasks(const Program& program, const std::vector<KernelTime>& times, const MachinePeaks& peaks);

// A compiled model with everything that belongs to it.
struct RunningModel {
  Compiled compiled;
  std::unique_ptr<Model> model;
  std::optional<AnonymousFile> module;  // what `model` is a copy of
  std::string name;
  int num_threads = 1;
  std::function<void(Model& model)> bind;  // gives it its inputs

  // Loads another copy, which lies elsewhere in memory, and binds it; the old one goes.
  void place_anew();
};
// Bound.
RunningModel compile_and_load(const std::string& path, const DriverOptions& options,
                              const std::function<void(Model& model)>& bind);

// Modules of one model beside each other, in turn: what each took in each round, in microseconds.
struct ModelTimes {
  std::vector<std::vector<double>> runs;  // by module
  // By structural hash, then by module: all calls of a run; NaN where a run has none.
  std::map<std::string, std::vector<std::vector<double>>> kernels;

  PairedTimes whole(size_t incumbent, size_t candidate) const;
  // Without rounds in which one of the two does not run it.
  PairedTimes kernel(const std::string& hash, size_t incumbent, size_t candidate) const;
};
// Until `decided` says so at one of the looks of verdict_of (statistics.h), until `seconds` are over, but at least to
// the first look, or until kMostRounds. `anew`: every round in other places of memory (some rounds together where a run
// takes long). One module is some percent faster in all of its runs than a copy of it, by which pages it got and what
// meets in the caches: without new places a comparison says which copy is lucky, not which module is faster.
ModelTimes compare_models(const std::vector<RunningModel*>& models, double seconds, bool anew,
                          const std::function<bool(const ModelTimes& so_far)>& decided);

// Two of them where they are, until it is decided which whole model is faster.
PairedTimes compare_whole(RunningModel& before, RunningModel& after, double seconds,
                          const std::function<bool()>& stopped = {});

// One run.
double microseconds_of(Model& model);

}  // namespace tessera::inline tune
