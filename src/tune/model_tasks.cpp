#include "tune/model_tasks.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include <fmt/format.h>

#include "driver/engine/native_model.h"
#include "program/reuse_distance.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "support/mapped_file.h"
#include "te/canonical.h"

namespace tessera::inline tune {

namespace {

using Clock = std::chrono::steady_clock;

// Of each call's kernel.
std::vector<std::string> hashes_of(const Program& program) {
  std::vector<std::string> kernels, calls;
  for (const Kernel& kernel : program.kernels) {
    const TaskKernel task(kernel);
    kernels.push_back(task ? task.hash() : "");
  }
  for (const KernelCall& call : program.calls) calls.push_back(kernels[static_cast<size_t>(call.kernel)]);
  return calls;
}

// Of one traced run: microseconds by structural hash.
std::map<std::string, double> kernel_times(RunningModel& running, const std::vector<std::string>& hashes) {
  std::map<std::string, double> sums;
  for (const KernelSpan& span : running.model->run_traced())
    if (span.worker == 0 && !span.is_of_device())
      sums[hashes[static_cast<size_t>(span.kernel)]] += static_cast<double>(span.end_ns - span.begin_ns) / 1e3;
  return sums;
}

// A mask, whose elements decide which columns a joined kernel computes (schedule/fusion/masked_columns.h).
bool reads_constant_matrix(const JoinedProgram& kernel) {
  return kernel.result().layout.row_major() &&
         std::any_of(kernel.members.begin(), kernel.members.end(), [](const JoinedMember& member) {
           const auto& params = member.program.params;
           return !member.program.reduction() &&
                  std::any_of(params.begin(), params.end(), [](const TensorParam& param) {
                    const Shape& shape = param.buffer->shape;
                    return param.is_constant() && std::count_if(shape.begin(), shape.end(),
                                                                [](const Expr& dim) { return as_int(dim) != 1; }) > 1;
                  });
         });
}

}  // namespace

double microseconds_of(Model& model) {
  const Clock::time_point begin = Clock::now();
  model.run();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::vector<int64_t> distances_of(const std::vector<CallTraffic>& traffic) {
  std::vector<int64_t> distances;
  for (const CallTraffic& argument : traffic) distances.push_back(argument.distance);
  return distances;
}

ModelTasks model_tasks(const Program& program, const std::vector<KernelTime>& times, const MachinePeaks& peaks) {
  constexpr double kLeastShare = 0.002;  // of the model's time
  ModelTasks result;
  std::map<std::string, ModelTask> by_hash;
  const auto traffic = known_traffic(program);
  const double call_seconds = seconds_of_a_call(times);
  for (const KernelTime& time : times) {
    // A module counts its calls, each as a kernel of its own.
    const KernelCall& call = program.calls[static_cast<size_t>(time.kernel)];
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    result.run_us += time.median_us;
    ModelTask task;
    task.name = call.loc.empty() ? kernel.program.name : call.loc;
    task.calls = time.calls;
    task.run_us = time.median_us;
    task.definition = TaskKernel(program, kernel);
    if (!task.definition) {
      result.left_out.emplace_back(
          std::move(task), kernel.rule == "pack" ? "it packs weights: no schedule rule is asked"
                                                 : "its loops are the operator's own: no schedule rule is asked");
      continue;
    }
    if (kernel.joined && reads_constant_matrix(*kernel.joined)) {
      result.left_out.emplace_back(std::move(task),
                                   "it may be faster by what its constants are, which a task does not know");
      continue;
    }
    if (kernel.definition && !kernel.definition->is_single()) {
      result.left_out.emplace_back(std::move(task), "it has several results, and the tuner compares one");
      continue;
    }
    task.work = {kernel.flops, kernel.bytes, task.definition.constant_bytes()};
    result.constant_bytes += std::max<int64_t>(0, task.work.constant_bytes);
    if (!task.definition.may_be_measured()) {
      result.left_out.emplace_back(std::move(task), "a run decides about its sizes; fix them with --dim to tune it");
      continue;
    }
    task.text = task.definition.text();
    task.hash = structural_hash(task.text);
    const auto [entry, is_new] = by_hash.try_emplace(task.hash, task);
    if (is_new) {
      entry->second.work.traffic = aged(traffic[static_cast<size_t>(time.kernel)], call_seconds, peaks);
      entry->second.reuse = distances_of(entry->second.work.traffic);
      continue;
    }
    entry->second.calls += task.calls;
    entry->second.run_us += task.run_us;
  }
  for (auto& [hash, task] : by_hash) {
    if (task.run_us <= 0 || task.run_us < kLeastShare * result.run_us) {
      result.left_out.emplace_back(std::move(task),
                                   fmt::format("less than {:.1f}% of the model's time each", 100 * kLeastShare));
    } else {
      result.tasks.push_back(std::move(task));
    }
  }
  std::sort(result.tasks.begin(), result.tasks.end(),
            [](const ModelTask& a, const ModelTask& b) { return a.run_us > b.run_us; });
  std::sort(result.left_out.begin(), result.left_out.end(),
            [](const auto& a, const auto& b) { return a.first.run_us > b.first.run_us; });
  return result;
}

void RunningModel::place_anew() {
  AnonymousFile copy("tessera-tune");
  {
    const auto bytes = MappedFile::open(module->path(), "module", "TSR-6101");
    write_fully(copy.fd(), {bytes->data(), bytes->size()}, "a copy of the module");
  }
  std::unique_ptr<Model> again = load_module(std::move(copy), name, num_threads);
  if (bind) bind(*again);
  model = std::move(again);  // the old one was there until now: nothing lies where it lay
}

RunningModel compile_and_load(const std::string& path, const DriverOptions& options,
                              const std::function<void(Model& model)>& bind) {
  RunningModel running;
  running.compiled = compile_model(path, options);
  running.module = module_in_memory(running.compiled);
  running.name = path;
  running.num_threads = resolve_target(options.compile).num_threads;
  running.bind = bind;
  running.compiled.code.clear();
  running.place_anew();
  return running;
}

PairedTimes ModelTimes::whole(size_t incumbent, size_t candidate) const {
  PairedTimes times;
  for (size_t round = 0; round < runs[incumbent].size(); ++round)
    times.rounds.emplace_back(runs[incumbent][round], runs[candidate][round]);
  return times;
}

PairedTimes ModelTimes::kernel(const std::string& hash, size_t incumbent, size_t candidate) const {
  PairedTimes times;
  const auto found = kernels.find(hash);
  if (found == kernels.end()) return times;
  const std::vector<double>&a = found->second[incumbent], &b = found->second[candidate];
  for (size_t round = 0; round < a.size(); ++round)
    if (!std::isnan(a[round]) && !std::isnan(b[round])) times.rounds.emplace_back(a[round], b[round]);
  return times;
}

namespace {

// Some memory that is there while modules are loaded, so that they do not get the pages again that they gave back.
class Spacer {
 public:
  explicit Spacer(std::mt19937_64& random) : bytes_(random() % (uint64_t{32} << 20), std::byte{1}) {}

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

ModelTimes compare_models(const std::vector<RunningModel*>& models, double seconds, bool anew,
                          const std::function<bool(const ModelTimes& so_far)>& decided) {
  constexpr double kSlowUs = 50e3;
  constexpr int64_t kRoundsOfSlow = 4;  // in one place
  constexpr int kRunsOfFast = 3;        // of a round
  const size_t count = models.size();
  std::vector<std::vector<std::string>> hashes;
  ModelTimes result;
  result.runs.resize(count);
  for (const RunningModel* model : models) {
    hashes.push_back(hashes_of(model->compiled.program));
    for (const std::string& hash : hashes.back()) result.kernels[hash].resize(count);
    model->model->run();
  }
  const bool is_slow = microseconds_of(*models[0]->model) > kSlowUs;
  const int64_t rounds_in_place = is_slow ? kRoundsOfSlow : 1;
  const int runs = anew && !is_slow ? kRunsOfFast : 1;
  std::mt19937_64 random(count);
  const Clock::time_point begin = Clock::now();
  for (int64_t round = 0; round < kMostRounds; ++round) {
    // Who is first changes with every round, and then in which direction it goes.
    const auto cycle = static_cast<size_t>(round) / count, first = static_cast<size_t>(round) % count;
    const auto place_of = [&](size_t turn) {
      return cycle % 2 == 0 ? (first + turn) % count : (first + count - turn) % count;
    };
    if (anew && round % rounds_in_place == 0) {
      const Spacer spacer(random);
      for (size_t turn = 0; turn < count; ++turn) {
        models[place_of(turn)]->place_anew();
        models[place_of(turn)]->model->run();
      }
    }
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t place = place_of(turn);
      std::vector<double> us;
      for (int run = 0; run < runs; ++run) us.push_back(microseconds_of(*models[place]->model));
      result.runs[place].push_back(median_of(std::move(us)));
      const auto times = kernel_times(*models[place], hashes[place]);
      for (auto& [hash, by_model] : result.kernels) {
        const auto found = times.find(hash);
        by_model[place].push_back(found == times.end() ? std::numeric_limits<double>::quiet_NaN() : found->second);
      }
    }
    if (round + 1 < kFirstLook) continue;
    const bool is_look = std::has_single_bit(static_cast<uint64_t>(round + 1));
    if ((is_look && decided(result)) || std::chrono::duration<double>(Clock::now() - begin).count() > seconds) break;
  }
  return result;
}

PairedTimes compare_whole(RunningModel& before, RunningModel& after, double seconds,
                          const std::function<bool()>& stopped) {
  return compare_models({&before, &after}, seconds, /*anew=*/false,
                        [&](const ModelTimes& so_far) {
                          return (stopped && stopped()) || verdict_of(so_far.whole(0, 1)) != Verdict::kUndecided;
                        })
      .whole(0, 1);
}

}  // namespace tessera::inline tune
