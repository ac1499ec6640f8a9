#include "tune/unit_tuner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "accel/network/offload.h"
#include "accel/network/tile_sizes.h"
#include "accel/simulate.h"
#include "driver/accelerators.h"
#include "driver/compile_options.h"
#include "driver/devices.h"
#include "driver/unit_tilings.h"
#include "support/refuse.h"
#include "te/canonical.h"
#include "tune/program_hash.h"
#include "tune/task_scheduler.h"
#include "tune/tuned_kernels.h"

namespace tessera::inline tune {

namespace {

using Clock = std::chrono::steady_clock;

// Asks for nothing, and keeps what a compile would have cut into tiles.
class Collector : public Decisions {
 public:
  TunedChoice choose_tiling(const Accelerator&, const std::shared_ptr<const TensorProgram>& kernel) override {
    kernels.push_back(kernel);
    return {};
  }
  std::vector<std::shared_ptr<const TensorProgram>> kernels;
};

struct UnitTask {
  TaskKernel definition;
  Contraction of;
  Cover cover;
  std::unique_ptr<SearchSpace> space;
  std::unique_ptr<Search> search;
  int64_t default_cycles = 0, best_cycles = 0;
  UnitTiling preferred, best;
  TunedTask entry;
};

class UnitTuner {
 public:
  explicit UnitTuner(const TuneOptions& options)
      : options_(options),
        unit_(accelerator_of(options.driver.compile.target)),
        target_(resolve_target(options.driver.compile)),
        roles_(roles_of(unit_, why_no_unit_)),
        records_(options.db, RecordFile::Open::kWrite) {}

  TuneResult run() {
    if (options_.measurer || options_.mode == SearchMode::kModel || options_.space == SpaceKind::kSketches)
      refuse("TSR-4058", "tune: tilings of an accelerator's kernels are compared by simulated cycles",
             "--mode random or evolutionary, without --workers and --space sketches");
    machine_ = records_.add_machine(unit_machine(unit_));
    run_ = fmt::format("{:016x}", std::random_device{}() * uint64_t{0x9e3779b97f4a7c15} + options_.seed);
    const auto collector = std::make_shared<Collector>();
    const Program program = compiled(collector);
    for (const auto& kernel : collector->kernels) add_task(kernel);
    count_calls(program);
    leave_out();
    for (UnitTask& task : tasks_) take_up_records(task);
    default_us_ = model_us();
    log("estimate");
    while (!is_stopped() && step()) {
    }
    finish();
    return std::move(result_);
  }

 private:
  Program compiled(std::shared_ptr<Decisions> decisions) {
    say("compiling", nullptr);
    DriverOptions driver = options_.driver;
    driver.decisions = std::move(decisions);
    return compile_model(options_.model, driver).program;
  }

  void add_task(const std::shared_ptr<const TensorProgram>& kernel) {
    TaskKernel definition(kernel);
    const std::string hash = definition.hash();
    for (const UnitTask& known : tasks_)
      if (known.entry.hash == hash) return;
    UnitTask& task = tasks_.emplace_back();
    task.definition = std::move(definition);
    task.entry.hash = hash;
    task.entry.rule = kUnitTiling;
    // What the compile has taken.
    task.of = std::get<Contraction>(contraction_of(*kernel));
    task.cover = std::get<Cover>(cover(roles_, task.of));
    task.preferred = task.best = std::get<UnitTiling>(
        best_tiling(unit_, roles_, task.of, task.cover, unit_.threads, OffloadOptions().candidates));
    std::string why;
    task.default_cycles = task.best_cycles = cycles_of(unit_, roles_, task.of, task.cover, task.preferred, why).value();
  }

  double us_of(int64_t cycles) const { return static_cast<double>(cycles) / unit_.clock_mhz; }

  // The model's nodes and calls of each task: of the kernels whose loops its preferred tiling gives.
  void count_calls(const Program& program) {
    std::map<uint64_t, std::pair<int64_t, std::string>> known;
    for (const KernelCall& call : program.calls) {
      const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
      if (!has_fixed_loops(program, kernel)) continue;
      auto& [calls, nodes] = known[program_hash(kernel.program)];
      if (calls++ == 0) nodes = call.loc;
    }
    for (UnitTask& task : tasks_) {
      const auto found = known.find(program_hash(unit_kernel(roles_, task.of, task.cover, task.preferred).program));
      if (found != known.end()) std::tie(task.entry.calls, task.entry.name) = found->second;
    }
    // Kernels that stay on the host for another reason.
    std::erase_if(tasks_, [](const UnitTask& task) { return task.entry.calls == 0; });
  }

  void leave_out() {
    std::vector<UnitTask> asked;
    std::vector<std::string> names;
    for (UnitTask& task : tasks_) {
      names.push_back(task.entry.name);
      const bool is_asked = options_.only.empty() || task.entry.hash.starts_with(options_.only) ||
                            task.entry.name.find(options_.only) != std::string::npos;
      if (is_asked) {
        asked.push_back(std::move(task));
        continue;
      }
      task.entry.outcome = "no trials: not among those that --only names";
      left_out_.push_back(std::move(task.entry));
    }
    if (asked.empty() && !names.empty()) refuse_only(options_.only, names);
    tasks_ = std::move(asked);
    double all = 0;
    for (const UnitTask& task : tasks_) all += static_cast<double>(task.entry.calls * task.default_cycles);
    const auto peak = static_cast<double>(roles_.product.in * roles_.product.out);
    for (UnitTask& task : tasks_) {
      const auto cycles = static_cast<double>(task.default_cycles), work = static_cast<double>(task.of.multiply_adds());
      task.entry.share = static_cast<double>(task.entry.calls) * cycles / all;
      task.entry.percent_of_bound = 100 * work / peak / cycles;
      task.entry.default_us = us_of(task.default_cycles);
      TaskState state;
      state.calls = static_cast<double>(task.entry.calls);
      state.best_us = task.entry.default_us;
      state.flops = 2 * work;
      state.bound_us = work / peak / unit_.clock_mhz;
      state.likeness = kUnitTiling;
      states_.push_back(std::move(state));
      records_.add_kernel({task.entry.hash, task.definition.text(), task.entry.name});
    }
    for (size_t i = 0; i < tasks_.size(); ++i) make_search(i);
  }

  void make_search(size_t number) {
    UnitTask& task = tasks_[number];
    const auto loops_at = [&task, this](const KnobPoint& point, std::string& why) -> std::optional<SearchSpace::Loops> {
      const auto tiling = tiling_at(point);
      if (tiling && TileSizes(roles_, task.of, task.cover, *tiling).fit(unit_, roles_))
        return SearchSpace::Loops{{}, std::hash<std::string>()(to_string(point))};
      why = "the unit's memories do not hold its tiles";
      return std::nullopt;
    };
    task.space = std::make_unique<SearchSpace>(tiling_space(unit_, roles_, task.of, task.preferred), loops_at, target_);
    task.search = std::make_unique<Search>(*task.space, options_.mode, options_.seed * 1000003 + number);
  }

  RecordKey key_of(const UnitTask& task) const { return {task.entry.hash, machine_, unit_.threads}; }

  // A tiling that records hold stands, and what they have tried is not tried again.
  void take_up_records(UnitTask& task) {
    std::string why;
    const auto choice = records_.choice(key_of(task));
    if (const auto point = choice ? usable_tiling(choice->payload, why) : std::nullopt)
      try_one(task, *tiling_at(*point));
    if (!options_.resume) return;
    for (const TrialRecord& trial : records_.trials(key_of(task)))
      if (const auto point = usable_tiling(trial.payload, why)) {
        const auto cycles = static_cast<int64_t>(trial.us * unit_.clock_mhz + 0.5);
        count(task, trial.status == "ok" ? cycles : -1);
        task.search->told(*point, trial.us);
        if (trial.status == "ok" && cycles < task.best_cycles) try_one(task, *tiling_at(*point));
      }
  }

  // Takes it where it has fewer cycles; its cycles, or -1.
  int64_t try_one(UnitTask& task, const UnitTiling& tiling, std::string* declined = nullptr) {
    std::string why;
    const auto cycles = cycles_of(unit_, roles_, task.of, task.cover, tiling, why);
    if (declined) *declined = why;
    if (cycles && *cycles < task.best_cycles) task.best_cycles = *cycles, task.best = tiling;
    return cycles.value_or(-1);
  }

  void count(UnitTask& task, int64_t cycles) {
    ++result_.trials;
    ++task.entry.trials;
    task.entry.trial_us.push_back(cycles > 0 ? us_of(cycles) : -1);
    task.entry.standing_us.push_back(us_of(task.best_cycles));
  }

  // A round of trials on the task from which most is expected.
  bool step() {
    const int chosen = next_task(states_);
    if (chosen < 0) return false;
    UnitTask& task = tasks_[static_cast<size_t>(chosen)];
    TaskState& state = states_[static_cast<size_t>(chosen)];
    int64_t count_of_round = options_.batch;
    if (options_.trials > 0) count_of_round = std::min(count_of_round, options_.trials - result_.trials);
    const auto points = task.search->propose(static_cast<size_t>(count_of_round), {});
    state.exhausted = points.empty();
    for (const KnobPoint& point : points) {
      if (is_stopped()) break;
      TrialRecord trial;
      const int64_t cycles = try_one(task, *tiling_at(point), &trial.detail);
      task.search->told(point, static_cast<double>(cycles));
      trial.key = key_of(task);
      trial.payload = payload_of(*tiling_at(point));
      trial.status = cycles > 0 ? "ok" : "refused";
      if (cycles > 0) trial.us = us_of(cycles);
      trial.incumbent_us = us_of(task.best_cycles);
      trial.mode = search_mode_name(options_.mode);
      trial.seed = static_cast<int64_t>(options_.seed);
      trial.number = task.entry.trials;
      trial.seconds = seconds();
      records_.add_trial(trial);
      count(task, cycles);
      ++state.trials;
    }
    state.best_us = us_of(task.best_cycles);
    state.history.push_back(state.best_us);
    log("estimate");
    say("searching", &task);
    return true;
  }

  void finish() {
    result_.interrupted = options_.stop && options_.stop->load();
    for (UnitTask& task : tasks_) {
      TunedTask& entry = task.entry;
      entry.best_us = us_of(task.best_cycles);
      entry.default_point = to_string(to_point(task.preferred));
      entry.best_point = to_string(to_point(task.best));
      entry.outcome = "default stays";
      if (task.best_cycles < task.default_cycles) {
        entry.outcome = "tuned";
        records_.set_choice({key_of(task), payload_of(task.best), entry.best_us, entry.default_us, 1, 1, "won", ""});
      }
      result_.tasks.push_back(entry);
    }
    std::sort(result_.tasks.begin(), result_.tasks.end(),
              [](const TunedTask& a, const TunedTask& b) { return a.share > b.share; });
    result_.tasks.insert(result_.tasks.end(), left_out_.begin(), left_out_.end());
    result_.default_ms = default_cycles() / unit_.clock_mhz / 1e3;
    result_.tuned_ms = model_us() / 1e3;
    result_.rounds = result_.wins = result_.tuned_ms < result_.default_ms ? 1 : 0;
    log("estimate");
    result_.verdict =
        tasks_.empty() ? fmt::format("there is nothing to tune: {} takes no kernel", unit_.name)
        : result_.tuned_ms < result_.default_ms
            ? fmt::format("{:.0f} cycles of {} instead of {:.0f}: {:.3f} times as fast", model_us() * unit_.clock_mhz,
                          unit_.name, default_cycles(), result_.default_ms / result_.tuned_ms)
            : "no tiling was found that takes fewer cycles than the default";
    result_.seconds = seconds();
  }

  double default_cycles() const {
    double sum = 0;
    for (const UnitTask& task : tasks_) sum += static_cast<double>(task.entry.calls * task.default_cycles);
    return sum;
  }
  double model_us() const {
    double sum = 0;
    for (const UnitTask& task : tasks_) sum += static_cast<double>(task.entry.calls) * us_of(task.best_cycles);
    return sum;
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool is_stopped() const {
    return (options_.stop && options_.stop->load()) ||
           (options_.budget_seconds > 0 && seconds() >= options_.budget_seconds) ||
           (options_.trials > 0 && result_.trials >= options_.trials);
  }

  void log(const char* what) {
    result_.log.push_back(
        {run_, options_.model, search_mode_name(options_.mode), seconds(), result_.trials, model_us(), what});
    records_.add_progress(result_.log.back());
  }

  void say(const char* doing, const UnitTask* task) const {
    if (!options_.on_status) return;
    TuneStatus status;
    status.doing = doing;
    status.tasks = tasks_.size();
    status.trials = result_.trials;
    status.seconds = seconds();
    status.model_us = model_us();
    status.model_default_us = default_us_;
    if (task) {
      status.task = task->entry.name;
      status.task_us = us_of(task->best_cycles);
      status.task_default_us = task->entry.default_us;
      status.task_percent_of_peak = task->entry.percent_of_bound * status.task_default_us / status.task_us;
    }
    options_.on_status(status);
  }

  const TuneOptions& options_;
  const Accelerator& unit_;
  const Target target_;
  std::string why_no_unit_;
  const UnitRoles roles_;
  RecordFile records_;
  Clock::time_point begin_ = Clock::now();
  std::string run_;
  int64_t machine_ = 0;
  double default_us_ = 0;
  std::vector<UnitTask> tasks_;
  std::vector<TaskState> states_;  // of the same tasks
  std::vector<TunedTask> left_out_;
  TuneResult result_;
};

}  // namespace

TuneResult tune_unit(const TuneOptions& options) { return UnitTuner(options).run(); }

}  // namespace tessera::inline tune
