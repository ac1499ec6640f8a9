#include "tune/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/llvm/target.h"
#include "diagnose/roofline.h"
#include "schedule/choose.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "support/error.h"
#include "te/canonical.h"
#include "tune/contest.h"
#include "tune/cost_model.h"
#include "tune/model_contest.h"
#include "tune/model_tasks.h"
#include "tune/task_scheduler.h"
#include "tune/tuned_kernels.h"

namespace tessera::inline tune {

namespace {

using Clock = std::chrono::steady_clock;

// One task while it is tuned. `ratio`s are times over the default's, from paired comparisons: drift cancels in them.
struct Task {
  ModelTask model;
  std::unique_ptr<SearchSpace> space;
  std::unique_ptr<Search> search;
  KnobPoint preferred, best;
  double default_us = 0;     // in the bench; 0 before trial 0
  bool has_default = false;  // trial 0 was made, here or in what is resumed
  double ratio = 1;          // of `best`
  Roofline bound;            // of the default
  int64_t trials = 0;
  int slow_rounds = 0;                        // in which the search came to nothing in its time
  std::vector<double> trial_us, standing_us;  // TunedTask
  std::string outcome = "default stays";
  // What the records held, and a compile uses; the record of `best` once it has won alone here, or in what is resumed.
  std::optional<ChoiceRecord> stored, candidate;
  KnobPoint stored_point;

  bool tuned() const { return outcome == "tuned"; }
};

class Tuner {
 public:
  explicit Tuner(const TuneOptions& options)
      : options_(options),
        target_(resolve_target(options.driver.compile)),
        fp32_(fp32_of(options.driver.compile)),
        runs_here_(runs_here(target_)),
        records_(options.db, RecordFile::Open::kWrite) {}

  TuneResult run() {
    run_ = fmt::format("{:016x}", std::random_device{}() * uint64_t{0x9e3779b97f4a7c15} + options_.seed);
    ModelTasks found = runs_here_ ? begin_here() : begin_elsewhere();
    default_us_ = model_us_ = std::max(found.run_us, 1e-3);
    log("estimate");
    if (runs_here_) found = choose_graph(std::move(found));
    check_only(found);
    run_us_ = std::max(found.run_us, 1e-3);
    for (ModelTask& task : found.tasks) add_task(std::move(task), found);
    read_choices();
    for (auto& [task, reason] : found.left_out) {
      TunedTask& entry = result_.tasks.emplace_back();
      entry.hash = task.hash;
      entry.name = task.name;
      entry.calls = task.calls;
      entry.share = task.run_us / run_us_;
      entry.outcome = "no trials: " + reason;
    }
    if (!measurer_)
      measurer_ =
          options_.measurer ? options_.measurer(target_) : std::make_unique<LocalMeasurer>(target_, options_.limits);
    if (options_.mode == SearchMode::kModel && options_.cost_model == "pretrained") costs_.load_pretrained();
    else if (options_.mode == SearchMode::kModel && options_.cost_model != "none") costs_.load(options_.cost_model);
    if (options_.resume) take_up_records();
    log("estimate");
    while (!stopped() && step()) {
    }
    if (!options_.save_model.empty() && costs_.ready()) costs_.save(options_.save_model);
    finish();
    return std::move(result_);
  }

 private:
  static constexpr int kTimedRuns = 7;
  RunningModel loaded(const DriverOptions& options) const {
    return compile_and_load(options_.model, options, options_.bind);
  }

  std::vector<KernelTime> times_of(RunningModel& running) {
    say("timing kernels");
    for (int i = 0; i < 2; ++i) running.model->run();
    return time_kernels(*running.model, kTimedRuns);
  }

  // The tasks of the model with the choice that won.
  ModelTasks choose_graph(ModelTasks by_default) {
    constexpr double kShare = 0.2, kSeconds = 20, kMostSeconds = 60;  // of the budget; without one
    constexpr double kOfStored = 0.25, kMostOfStored = 5;
    const DriverOptions nobody;
    PassRunner unwatched(nobody);
    const ImportedModel model = read_model(options_.model, options_.driver, unwatched);
    if (model.flow || !model.symbols.empty()) return by_default;
    graph_key_ = {model_hash_of(model.graph, options_.driver), machine_, target_.num_threads};
    GraphSearchOptions search;
    search.model = options_.model;
    search.driver = options_.driver;
    search.seconds = options_.budget_seconds > 0 ? std::min(kShare * options_.budget_seconds, kMostSeconds) : kSeconds;
    search.bind = options_.bind;
    search.on_begin = [&](const GraphChoice& choice) { say("trying the model " + to_string(choice)); };
    search.stopped = [&] { return interrupted(); };
    graph_ = recorded_graph(std::min(kOfStored * search.seconds, kMostOfStored));
    const bool resumes = options_.resume && !graph_.choice.empty();
    if (options_.search_graph && options_.only.empty() && !resumes && !out_of_budget()) {
      graph_ = search_graph(before_, std::move(graph_), search);
      result_.graph_trials = graph_.trials;
    }
    if (graph_.choice.empty()) return by_default;
    result_.graph = to_string(graph_.choice);
    records_.add_kernel({graph_key_.kernel, std::string(kGraphPayload), before_.model->name()});
    if (graph_.choice != stored_graph_) keep_graph();
    ModelTasks found = model_tasks(graph_.model.compiled.program, times_of(graph_.model), peaks_);
    model_us_ = default_us_ * std::min(1.0, graph_.measured.ratio());
    log("estimate");
    return found;
  }

  // What this search begins with: what the records' choice is, unless the default is surely faster by now, or what a
  // resumed search found and did not come to compare, if it is faster. A compile must not use it beside other kernels
  // else.
  GraphSearch recorded_graph(double seconds) {
    if (options_.resume)
      if (const auto candidate = records_.candidate(graph_key_)) {
        GraphSearch known = measured_graph(*candidate, seconds);
        if (!known.choice.empty() && is_faster(known.measured)) {
          read_stored_graph();
          return known;
        }
        records_.drop_candidate(graph_key_);
      }
    const auto stored = read_stored_graph();
    if (!stored) return {};
    GraphSearch known = measured_graph(*stored, seconds);
    // A choice that cannot be built any more has lost, too.
    if (!known.choice.empty() && !is_surely_slower(known.measured)) return known;
    ChoiceRecord lost = *stored;
    lost.state = "reverted";
    records_.set_choice(lost);
    stored_graph_ = {};
    lost_graph_ = true;
    return {};
  }

  // Nothing when this version does not use it: it is left as it is.
  std::optional<ChoiceRecord> read_stored_graph() {
    auto record = records_.choice(graph_key_);
    if (!record || record->state != "won") return std::nullopt;
    std::string why;
    const auto choice = usable_graph(record->payload, why);
    if (!choice) return std::nullopt;
    stored_graph_ = *choice;
    return record;
  }

  // Beside the default; without a choice where it cannot be used, or built.
  GraphSearch measured_graph(const ChoiceRecord& record, double seconds) {
    std::string why;
    const auto choice = usable_graph(record.payload, why);
    if (!choice) return {};
    try {
      GraphSearch known;
      DriverOptions driver = options_.driver;
      driver.graph_choice = known.choice = *choice;
      known.model = loaded(driver);
      known.measured = compare_whole(before_, known.model, seconds);
      return known;
    } catch (const UserError&) {
      return {};
    }
  }

  void keep_graph() {
    ChoiceRecord choice;
    choice.key = graph_key_;
    choice.payload = payload_of(graph_.choice);
    choice.default_us = graph_.measured.incumbent_us();
    choice.us = graph_.measured.candidate_us();
    choice.rounds = static_cast<int64_t>(graph_.measured.rounds.size());
    choice.wins = graph_.measured.wins();
    records_.set_candidate(choice);
    graph_candidate_ = std::move(choice);
  }

  ModelTasks begin_here() {
    say("compiling");
    before_ = loaded(options_.driver);
    const std::vector<KernelTime> times = times_of(before_);
    say("measuring the machine");
    peaks_ = measure_roofline(target_.num_threads);
    machine_ = records_.add_machine({0, machine_facts(target_, fp32_), peaks_.fma_f32.one_thread / 1e9,
                                     peaks_.levels.empty() ? 0 : peaks_.levels.back().one_thread / 1e9});
    return model_tasks(before_.compiled.program, times, peaks_);
  }

  // Code for the target does not run here: the machine is the workers', and kernels are timed there.
  ModelTasks begin_elsewhere() {
    check(options_.measurer != nullptr, "nobody runs code for this target");
    say("connecting to workers");
    measurer_ = options_.measurer(target_);
    for (MachineRecord& machine : measurer_->machines())
      if (!machine.facts.empty()) machine_ = machine_ > 0 ? machine_ : use_machine(machine);
    check(machine_ > 0, "a measurer without a machine");
    say("compiling");
    before_.compiled = compile_model(options_.model, options_.driver);
    const std::vector<KernelTime> times = kernel_times_elsewhere();
    ModelTasks found = model_tasks(before_.compiled.program, times, peaks_);
    for (auto& [task, reason] : found.left_out)
      if (const auto first = first_trials_.find(task.hash);
          first != first_trials_.end() && first->second.status != "ok")
        reason = cannot_be_measured(first->second);
    return found;
  }

  int64_t use_machine(const MachineRecord& machine) {
    const double threads = target_.num_threads, gflops = machine.peak_gflops * 1e9,
                 gbytes = machine.memory_gbytes * 1e9;
    constexpr double kNoBound = 1e15;  // bytes a second: of caches nothing is known
    peaks_.threads = target_.num_threads;
    peaks_.fma_f32 = {"f32 multiply-add", "", gflops, gflops * threads};
    peaks_.levels = {{"L2", target_.l2_bytes, 0, kNoBound, kNoBound}, {"memory", INT64_MAX, 0, gbytes, gbytes}};
    return records_.add_machine(
        {machine.id, machine_facts(target_, fp32_), machine.peak_gflops, machine.memory_gbytes});
  }

  // Of each call: the default of its kernel, alone.
  std::vector<KernelTime> kernel_times_elsewhere() {
    std::vector<KernelTime> times;
    const Program& program = before_.compiled.program;
    const auto traffic = known_traffic(program);
    for (size_t call = 0; call < program.calls.size() && !interrupted(); ++call) {
      const TaskKernel definition(program.kernels[static_cast<size_t>(program.calls[call].kernel)]);
      KernelTime& time = times.emplace_back(KernelTime{static_cast<int32_t>(call), 1, 0});
      if (!definition || definition.is_open()) continue;
      const std::string hash = definition.hash();
      if (!first_trials_.contains(hash)) {
        const SearchSpace space(definition, target_, SpaceKind::kTemplates, fp32_);
        if (!space.preferred()) continue;
        say(fmt::format("timing kernels: {} of {} calls", call + 1, program.calls.size()));
        first_trials_[hash] = measure_default({hash, definition, distances_of(traffic[call])}, *space.preferred());
      }
      const MeasuredTrial& trial = first_trials_[hash];
      if (trial.status == "ok") time.median_us = trial.times.incumbent_us();
    }
    return times;
  }

  static MeasuredKernel measured(const Task& task) {
    return {task.model.hash, task.model.definition, task.model.reuse};
  }

  MeasuredTrial measure_default(const MeasuredKernel& kernel, const KnobPoint& preferred) {
    auto trial = measurer_->measure(kernel, preferred, {preferred}, false)[0];
    // On a machine that is busy with other things it may take too long, once.
    if (trial.status == "timeout") trial = measurer_->measure(kernel, preferred, {preferred}, false)[0];
    return trial;
  }

  static std::string cannot_be_measured(const MeasuredTrial& trial) {
    const bool slow = trial.status == "timeout";
    return fmt::format("the default cannot be measured: {} {}", trial.status,
                       slow ? "(--trial-time, and --time-limit of workers, say how long it may take)" : trial.detail);
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool interrupted() const { return options_.stop && options_.stop->load(); }
  bool out_of_budget() const { return options_.budget_seconds > 0 && seconds() >= options_.budget_seconds; }
  bool stopped() const {
    return interrupted() || out_of_budget() || (options_.trials > 0 && result_.trials >= options_.trials);
  }

  bool is_asked_for(const ModelTask& task) const {
    return options_.only.empty() || task.hash.starts_with(options_.only) ||
           task.name.find(options_.only) != std::string::npos;
  }

  // UserError when `only` names no kernel of the model.
  void check_only(const ModelTasks& found) const {
    std::vector<std::string> names;
    for (const ModelTask& task : found.tasks) {
      if (is_asked_for(task)) return;
      names.push_back(task.name);
    }
    for (const auto& [task, reason] : found.left_out)
      if (is_asked_for(task)) return;
    refuse_only(options_.only, std::move(names));
  }

  RecordKey key_of(const Task& task) const { return {task.model.hash, machine_, target_.num_threads}; }

  void add_task(ModelTask model, ModelTasks& found) {
    if (!is_asked_for(model)) {
      found.left_out.emplace_back(std::move(model), "not among those that --only names");
      return;
    }
    if (options_.measurer && model.definition.is_open()) {
      found.left_out.emplace_back(std::move(model), "a run decides about its sizes, and workers measure fixed ones");
      return;
    }
    Task task;
    task.space = std::make_unique<SearchSpace>(model.definition, target_, options_.space, fp32_);
    if (!task.space->preferred()) {
      found.left_out.emplace_back(std::move(model), "no schedule rule takes it");
      return;
    }
    if (options_.space == SpaceKind::kSketches && task.space->sketches().empty()) {
      found.left_out.emplace_back(std::move(model), fmt::format("there is no sketch of it: {}",
                                                                fmt::join(task.space->declined_sketches(), "; ")));
      return;
    }
    if (task.space->size() < 2) {
      found.left_out.emplace_back(std::move(model), "its rule has no knobs, and no other takes it");
      return;
    }
    task.preferred = task.best = *task.space->preferred();
    task.search = std::make_unique<Search>(*task.space, options_.mode, options_.seed * 1000003 + tasks_.size());
    const double call_us = model.run_us / static_cast<double>(model.calls);
    task.bound = roofline_of(model.work, found.constant_bytes, call_us / 1e6, peaks_, target_.num_threads);
    TaskState state;
    state.calls = static_cast<double>(model.calls);
    state.best_us = call_us;
    state.flops = static_cast<double>(std::max<int64_t>(0, model.work.flops));
    state.bound_us = call_us * task.bound.percent_of_bound / 100;
    state.likeness = task.preferred.rule;
    records_.add_kernel({model.hash, model.text, model.name});
    task.model = std::move(model);
    tasks_.push_back(std::move(task));
    states_.push_back(std::move(state));
  }

  // What compiles use of the records now, in the contest at the end as well.
  void read_choices() {
    stored_ = tuned_kernels(records_, machine_, target_);
    for (Task& task : tasks_) {
      const auto choice = records_.choice(key_of(task));
      if (!choice || choice->state != "won") continue;
      std::string why;
      const auto point = usable_point(choice->payload, why);
      if (!point || !task.space->loops_at(*point, why)) continue;
      task.stored = *choice;
      task.stored_point = *point;
    }
  }

  void stand(Task& task, const KnobPoint& point, const ChoiceRecord& choice) {
    task.best = point;
    task.ratio = std::min(1.0, choice.us / choice.default_us);
    task.outcome = "tuned";
  }

  // What stands in the records is what stands here, and what was tried is not tried again.
  void take_up_records() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      Task& task = tasks_[i];
      std::string why;
      for (const TrialRecord& trial : records_.trials(key_of(task))) {
        const auto point = usable_point(trial.payload, why);
        if (!point) continue;
        task.search->told(*point, trial.status == "ok" ? trial.us : -1);
        if (trial.status == "ok" && trial.number == 0) task.default_us = trial.us;
        if (task.default_us > 0)
          learn(task, *point, trial.status == "ok" && trial.us > 0 ? task.default_us / trial.us : 0);
        ++task.trials;
        task.trial_us.push_back(trial.status == "ok" ? trial.us : -1);
        task.standing_us.push_back(task.default_us);
        ++result_.trials;
      }
      task.has_default = task.default_us > 0;
      const auto candidate = records_.candidate(key_of(task));
      const auto point = candidate ? usable_point(candidate->payload, why) : std::nullopt;
      if (point && task.space->loops_at(*point, why)) {
        stand(task, *point, *candidate);
        task.candidate = *candidate;
        task.default_us = candidate->default_us;
      } else if (task.stored) {
        stand(task, task.stored_point, *task.stored);
        task.default_us = task.stored->default_us;
      } else {
        continue;
      }
      states_[i].best_us *= task.ratio;
      states_[i].history.push_back(states_[i].best_us);
    }
  }

  // Gains are over the default, so that kernels of all sizes teach the same model.
  void learn(const Task& task, const KnobPoint& point, double gain) {
    if (options_.mode != SearchMode::kModel) return;
    std::string why;
    if (const auto loops = task.space->loops_at(point, why)) costs_.add(task.model.hash, loops->program, gain);
  }

  Search::Predict predictor() {
    constexpr size_t kLeastTrials = 16;
    if (options_.mode != SearchMode::kModel || !costs_.ready()) return {};
    if (!costs_.has_base() && costs_.num_trials() < kLeastTrials) return {};
    return [this](const std::vector<const LoopProgram*>& programs) {
      const Clock::time_point begin = Clock::now();
      auto scores = costs_.predict(programs);
      result_.prediction_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
      result_.predictions += static_cast<int64_t>(programs.size());
      return scores;
    };
  }

  double estimate_us() const {
    double us = model_us_;
    for (const Task& task : tasks_) us -= task.model.run_us * (1 - task.ratio);
    return us;
  }

  void log(const std::string& what, double us = -1) {
    ProgressRecord entry{run_,      options_.model, search_mode_name(options_.mode),
                         seconds(), result_.trials, us < 0 ? estimate_us() : us,
                         what};
    records_.add_progress(entry);
    result_.log.push_back(std::move(entry));
  }

  void say(const std::string& doing, const Task* task = nullptr) {
    if (!options_.on_status) return;
    TuneStatus status;
    status.doing = doing;
    status.tasks = tasks_.size();
    status.trials = result_.trials;
    status.seconds = seconds();
    status.model_default_us = default_us_;
    status.model_us = estimate_us();
    for (size_t i = 0; i < tasks_.size(); ++i)
      status.remaining_us += std::max(0.0, states_[i].best_us - states_[i].bound_us) * states_[i].calls;
    if (task) {
      status.task = task->model.name;
      status.task_default_us = task->default_us;
      status.task_us = task->default_us * task->ratio;
      status.task_percent_of_peak = task->bound.percent_of_peak / task->ratio;
    }
    options_.on_status(status);
  }

  // The number of another machine in the records: its own, unless it is like this one.
  int64_t machine_of(int index) {
    const MachineRecord machine = measurer_->machines().at(static_cast<size_t>(index));
    const auto [known, is_new] = machine_numbers_.try_emplace(index, 0);
    if (is_new) known->second = records_.add_machine(machine);
    return known->second;
  }

  void record(Task& task, const KnobPoint& point, const MeasuredTrial& trial, double us) {
    TrialRecord entry;
    entry.key = key_of(task);
    if (trial.machine >= 0) entry.key.machine = machine_of(trial.machine);
    entry.payload = payload_of(point);
    entry.status = trial.status;
    entry.detail = trial.detail;
    entry.us = us;
    entry.incumbent_us = task.default_us * task.ratio;
    entry.mode = search_mode_name(options_.mode);
    entry.seed = static_cast<int64_t>(options_.seed);
    entry.number = task.trials;
    entry.seconds = seconds();
    records_.add_trial(entry);
    ++task.trials;
    task.trial_us.push_back(us);
    task.standing_us.push_back(task.default_us * task.ratio);
    ++result_.trials;
  }

  // Trial 0: the rules' choice against itself, which says what a call takes here, and that it runs at all.
  bool begin_task(Task& task, TaskState& state) {
    const auto first = first_trials_.find(task.model.hash);
    const MeasuredTrial trial =
        first != first_trials_.end() ? first->second : measure_default(measured(task), task.preferred);
    if (trial.status == "ok") task.default_us = trial.times.incumbent_us();
    record(task, task.preferred, trial, trial.status == "ok" ? task.default_us : -1);
    task.search->told(task.preferred, trial.status == "ok" ? task.default_us : -1);
    task.has_default = trial.status == "ok";
    if (task.has_default) return true;
    task.outcome = cannot_be_measured(trial);
    state.exhausted = true;
    return false;
  }

  // One round of trials on the task that promises most; false when no task is left.
  bool step() {
    const int chosen = next_task(states_);
    if (chosen < 0) return false;
    Task& task = tasks_[static_cast<size_t>(chosen)];
    TaskState& state = states_[static_cast<size_t>(chosen)];
    say("trying", &task);
    if (!task.has_default && !begin_task(task, state)) return true;
    int64_t count = options_.batch;
    if (options_.trials > 0) count = std::min(count, options_.trials - result_.trials);
    if (options_.budget_seconds > 0) {
      if (out_of_budget()) return true;
      const double left = options_.budget_seconds - seconds();
      count = std::min(count, std::max<int64_t>(1, static_cast<int64_t>(left / seconds_of_a_trial_)));
    }
    if (count <= 0) return true;
    const std::vector<KnobPoint> points = task.search->propose(static_cast<size_t>(count), predictor());
    if (points.empty()) {
      constexpr int kMostSlow = 3;
      state.exhausted = !task.search->is_slow() || ++task.slow_rounds >= kMostSlow;
      return true;
    }
    const double begin = seconds();
    const auto trials = measurer_->measure(measured(task), task.best, points, false);
    seconds_of_a_trial_ = std::max((seconds() - begin) / static_cast<double>(points.size()), 1e-3);
    const double incumbent_us = task.default_us * task.ratio;
    int winner = -1;
    double best_ratio = 1;
    for (size_t i = 0; i < points.size(); ++i) {
      const bool ok = trials[i].status == "ok" && !trials[i].times.rounds.empty();
      const double ratio = ok ? trials[i].times.ratio() : -1;
      record(task, points[i], trials[i], ok ? ratio * incumbent_us : -1);
      task.search->told(points[i], ok ? ratio * incumbent_us : -1);
      learn(task, points[i], ok ? 1 / (ratio * task.ratio) : 0);
      if (ok && ratio < best_ratio && is_faster(trials[i].times)) {
        best_ratio = ratio;
        winner = static_cast<int>(i);
      }
    }
    if (options_.mode == SearchMode::kModel) costs_.fit();
    if (winner >= 0 && consider(task, points[static_cast<size_t>(winner)]))
      for (size_t i = static_cast<size_t>(task.trials) - points.size() + static_cast<size_t>(winner);
           i < task.standing_us.size(); ++i)
        task.standing_us[i] = task.default_us * task.ratio;
    state.trials = task.trials;
    state.best_us = std::min(state.best_us, task.model.run_us / static_cast<double>(task.model.calls) * task.ratio);
    state.history.push_back(state.best_us);
    log("estimate");
    return true;
  }

  // A candidate that was faster once is measured again, in a process of its own, against what stands and against the
  // default; then it stands.
  bool consider(Task& task, const KnobPoint& point) {
    const MeasuredKernel kernel = measured(task);
    const auto again = measurer_->measure(kernel, task.best, {point}, true)[0];
    if (again.status != "ok" || !is_faster(again.times)) return false;
    const auto beside_default =
        task.best == task.preferred ? again : measurer_->measure(kernel, task.preferred, {point}, true)[0];
    if (beside_default.status != "ok" || !is_faster(beside_default.times)) return false;
    // The estimate never rises: of two measurements that differ by noise, the better one stays.
    task.ratio = std::min(task.ratio, beside_default.times.ratio());
    task.best = point;
    task.outcome = "tuned";
    keep(task, beside_default.times);
    return true;
  }

  // As a candidate: a compile uses it when it has won in the model, too. What the records hold is none.
  void keep(Task& task, const PairedTimes& times) {
    ChoiceRecord choice;
    choice.key = key_of(task);
    choice.payload = payload_of(task.best);
    choice.default_us = task.default_us;
    choice.us = task.default_us * task.ratio;
    choice.rounds = static_cast<int64_t>(times.rounds.size());
    choice.wins = times.wins();
    if (task.stored && identity_of(task.best) == identity_of(task.stored_point)) {
      task.candidate.reset();
      records_.drop_candidate(choice.key);
      return;
    }
    records_.set_candidate(choice);
    task.candidate = std::move(choice);
  }

  // The last word of the model that runs here.
  void contest_in_model(double seconds_for_it) {
    const bool has_graph = !graph_.choice.empty();
    ModelContest model{
        before_, has_graph ? graph_.model : before_, stored_graph_, graph_.choice, stored_.decisions, {}, {}, {}};
    for (const Task& task : tasks_) {
      ContestPoints& points = model.kernels[task.model.hash];
      if (task.stored) points.stored = task.stored_point;
      if (task.candidate) points.found = task.best;
    }
    model.load = [&](const GraphChoice& graph, std::shared_ptr<Decisions> decisions) {
      DriverOptions driver = options_.driver;
      driver.graph_choice = graph;
      driver.decisions = std::move(decisions);
      return loaded(driver);
    };
    model.on_begin = [&] { say("measuring the tuned model"); };
    const Contest held = hold_contest(model, seconds_for_it);
    for (const Contestant& entry : held.kernels)
      for (Task& task : tasks_)
        if (task.model.hash == entry.hash) settle_task(task, entry, "in the tuned model");
    if (!graph_key_.kernel.empty()) settle(records_, graph_key_, held.graph, graph_candidate_);
    result_.graph = to_string(held.graph.stands == Standing::kFound    ? graph_.choice
                              : held.graph.stands == Standing::kStored ? stored_graph_
                                                                       : GraphChoice());
    report(held);
  }

  // `where`: "in the tuned model"
  void settle_task(Task& task, const Contestant& entry, const char* where) {
    settle(records_, key_of(task), entry, task.candidate);
    const auto lost = [&](const PairedTimes& times, const char* to) {
      return times.rounds.empty() ? fmt::format("it does not run {}", where)
                                  : fmt::format("{} it takes {:.3f} times {}, faster in {} of {} rounds", where,
                                                times.ratio(), to, times.wins(), times.rounds.size());
    };
    if (entry.stands == Standing::kFound) return;
    if (entry.stands == Standing::kStored) {
      stand(task, task.stored_point, *task.stored);
      if (entry.found_lost)
        task.outcome = "the records' choice stays: of what was found: " + lost(*entry.found_lost, "that");
      return;
    }
    const auto& times = entry.stored_lost ? entry.stored_lost : entry.found_lost;
    task.outcome = "reverted: " + lost(times ? *times : PairedTimes(), "the default");
    task.best = task.preferred;
    task.ratio = 1;
  }

  void report(const Contest& held) {
    result_.verdict = verdict_text(held);
    const PairedTimes& times = held.gain.rounds.empty() && held.whole ? *held.whole : held.gain;
    if (times.rounds.empty()) return;
    result_.default_ms = times.incumbent_us() / 1e3;
    result_.tuned_ms = held.gain.rounds.empty() ? result_.default_ms : times.candidate_us() / 1e3;
    result_.rounds = static_cast<int64_t>(times.rounds.size());
    result_.wins = times.wins();
    if (held.gain.rounds.empty()) return;
    log("measured default", times.incumbent_us());
    log("measured tuned", times.candidate_us());
  }

  // Where the model cannot run: each kernel alone, once more, against what the records hold, or its default.
  void check_alone() {
    say("measuring what won again");
    for (Task& task : tasks_) {
      if (!task.stored && !task.candidate) continue;
      const auto again = [&](const KnobPoint& stands, const KnobPoint& other) {
        return measurer_->measure(measured(task), stands, {other}, true)[0];
      };
      Contestant entry;
      entry.hash = task.model.hash;
      entry.has_stored = task.stored.has_value();
      entry.has_found = task.candidate.has_value();
      if (entry.has_stored) {
        entry.stands = Standing::kStored;
        const MeasuredTrial trial = again(task.stored_point, task.preferred);
        if (trial.status == "ok" && is_faster(trial.times)) {
          entry.stands = Standing::kDefault;
          entry.stored_lost = swapped(trial.times);
        }
      }
      if (entry.has_found) {
        const bool beside_stored = entry.stands == Standing::kStored;
        const MeasuredTrial trial = again(beside_stored ? task.stored_point : task.preferred, task.best);
        if (trial.status == "ok" && is_faster(trial.times)) entry.stands = Standing::kFound;
        else entry.found_lost = trial.times;
      }
      settle_task(task, entry, "when it is measured again");
    }
    const double us = estimate_us();
    log("estimate");
    result_.verdict =
        us < model_us_ ? fmt::format(
                             "its kernels alone take {:.3f} ms instead of {:.3f}: {:.3f} times as fast; the model as a "
                             "whole was not compared, because code for {} does not run here",
                             us / 1e3, model_us_ / 1e3, model_us_ / us, target_.triple)
                       : "nothing that was faster was faster again: the default stays";
  }

  // The whole model has the last word; after an interruption as well, but quickly.
  void finish() {
    result_.interrupted = interrupted();
    const double seconds_for_it = result_.interrupted           ? 2
                                  : options_.budget_seconds > 0 ? std::clamp(options_.budget_seconds / 10, 0.1, 15.0)
                                                                : 10;
    const bool has_contest =
        !graph_.choice.empty() || !stored_graph_.empty() ||
        std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.stored || task.candidate; });
    if (tasks_.empty() && graph_.choice.empty()) result_.verdict = "there is nothing to tune: no kernel has a choice";
    else if (!has_contest) result_.verdict = "no schedule was found that is faster than the default";
    else if (!runs_here_) check_alone();
    else contest_in_model(seconds_for_it);
    if (lost_graph_)
      result_.verdict += "; for the model as a whole the default is surely faster than what the records held";
    std::vector<TunedTask> own;
    for (const Task& task : tasks_) {
      TunedTask entry;
      entry.hash = task.model.hash;
      entry.name = task.model.name;
      entry.rule = task.best.rule;
      entry.calls = task.model.calls;
      entry.share = task.model.run_us / run_us_;
      entry.default_us = task.default_us;
      entry.best_us = task.default_us * task.ratio;
      entry.percent_of_bound = task.bound.percent_of_bound;
      entry.default_point = to_string(task.preferred);
      const auto& single = task.model.definition.single();
      entry.best_point = to_string(single ? essential(task.best, *single, target_) : task.best);
      entry.trials = task.trials;
      entry.trial_us = task.trial_us;
      entry.standing_us = task.standing_us;
      entry.outcome = task.trials > 0 ? task.outcome : "no trials: the budget was spent on others first";
      own.push_back(std::move(entry));
    }
    result_.tasks.insert(result_.tasks.begin(), own.begin(), own.end());
    result_.seconds = seconds();
  }

  const TuneOptions& options_;
  Target target_;
  Fp32Products fp32_;
  bool runs_here_;
  RecordFile records_;
  Clock::time_point begin_ = Clock::now();
  std::string run_;
  RunningModel before_;
  MachinePeaks peaks_;
  int64_t machine_ = 0;
  std::map<int, int64_t> machine_numbers_;  // of the measurer's machines
  double default_us_ = 0;                   // of the model's kernels
  double run_us_ = 0, model_us_ = 0;        // the same with the graph's choice: measured, and from the comparison
  GraphSearch graph_;
  RecordKey graph_key_;
  GraphChoice stored_graph_;                     // that compiles use; empty: none
  bool lost_graph_ = false;                      // it was one until the default was compared with it
  std::optional<ChoiceRecord> graph_candidate_;  // of `graph_`, when it is another one
  TunedKernels stored_;                          // that compiles use when the search begins
  double seconds_of_a_trial_ = 0.25;             // of the last round; before it: a guess
  std::vector<Task> tasks_;
  std::vector<TaskState> states_;  // of the same tasks
  std::unique_ptr<Measurer> measurer_;
  std::map<std::string, MeasuredTrial> first_trials_;  // by kernel: those of kernel_times_elsewhere
  CostModel costs_;                                    // of kModel
  TuneResult result_;
};

}  // namespace

void refuse_only(const std::string& only, std::vector<std::string> names) {
  constexpr size_t kMostNames = 5;
  if (names.size() > kMostNames) names.resize(kMostNames);
  throw UserError({.id = "TSR-4056",
                   .message = fmt::format("--only {}: the model has no such kernel", only),
                   .node = {},
                   .legal = fmt::format("a part of nodes' names, or the begin of a hash; the kernels that take most "
                                        "time are those of {}",
                                        fmt::join(names, ", ")),
                   .hint = "'tessera explain' lists all kernels"});
}

TuneResult tune_model(const TuneOptions& options) { return Tuner(options).run(); }

}  // namespace tessera::inline tune
