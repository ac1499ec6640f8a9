#include "tune/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "records/records.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "te/canonical.h"
#include "tune/tuned_kernels.h"

namespace tessera::inline tune {

namespace {

struct Sample {
  LoopProgram program;
  double gain = 0;  // the default's time over its own; 0 for what failed
};

struct Samples {
  std::string name;
  std::vector<Sample> samples;
};

// Records that gave no sample.
struct Skipped {
  size_t unusable = 0, without_default = 0;
};

// Adds the samples of one file, by kernel. The first trial of each search is the default, which gives its times a unit.
void read_samples(const std::string& path, std::map<std::string, Samples>& to, Skipped& skipped) {
  const RecordFile records(path, RecordFile::Open::kRead);
  std::map<int64_t, std::optional<Target>> targets;
  for (const MachineRecord& machine : records.machines()) targets[machine.id] = target_of_facts(machine.facts);
  std::map<std::string, std::unique_ptr<TensorProgram>> kernels;
  std::map<std::string, std::string> names;
  for (const KernelRecord& kernel : records.kernels()) {
    names[kernel.hash] = kernel.name;
    try {
      kernels[kernel.hash] = std::make_unique<TensorProgram>(parse_canonical_text(kernel.text));
    } catch (const UserError&) {
      kernels[kernel.hash] = nullptr;
    }
  }
  std::map<std::tuple<std::string, int64_t, int>, double> default_us;
  for (const TrialRecord& trial : records.trials()) {
    const auto unit = std::tuple(trial.key.kernel, trial.key.machine, trial.key.threads);
    if (trial.number == 0 && trial.status == "ok") default_us[unit] = trial.us;
    std::string why;
    const auto kernel = kernels.find(trial.key.kernel);
    const auto point = usable_point(trial.payload, why);
    const std::optional<Target>& machine = targets[trial.key.machine];
    if (!machine || kernel == kernels.end() || !kernel->second || !point) {
      ++skipped.unusable;
      continue;
    }
    if (!default_us.contains(unit)) {
      ++skipped.without_default;
      continue;
    }
    Target own = *machine;
    own.num_threads = trial.key.threads;
    auto answer = apply_point(*point, *kernel->second, own, Fp32Products::kPieces);
    if (std::holds_alternative<Declined>(answer)) {
      ++skipped.unusable;
      continue;
    }
    Samples& samples = to[trial.key.kernel];
    samples.name = names[trial.key.kernel];
    samples.samples.push_back({std::move(std::get<ScheduledKernel>(answer).program),
                               trial.status == "ok" && trial.us > 0 ? default_us[unit] / trial.us : 0});
  }
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return ranks;
}

}  // namespace

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size(), "ranks of different lists");
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double middle = (static_cast<double>(a.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - middle) * (y[i] - middle);
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

Training train_cost_model(const std::vector<std::string>& files, const std::vector<std::string>& tests,
                          CostModel& model) {
  constexpr size_t kLeastTrials = 16;
  constexpr int kRounds = 120;
  Training result;
  std::map<std::string, Samples> kernels, unseen;
  Skipped skipped, skipped_of_tests;
  for (const std::string& file : files) read_samples(file, kernels, skipped);
  for (const std::string& file : tests) read_samples(file, unseen, skipped_of_tests);
  for (const Skipped& some : {skipped, skipped_of_tests}) result.skipped += some.unusable + some.without_default;
  for (const auto& [hash, samples] : kernels) {
    result.trials += samples.samples.size();
    for (const Sample& sample : samples.samples) model.add(hash, sample.program, sample.gain);
  }
  result.kernels = kernels.size();
  if (result.trials < kLeastTrials)
    throw UserError(
        {.id = "TSR-6411",
         .message = fmt::format("there are {} trials to learn from; {} cannot be used by this version, and "
                                "{} have no trial of their kernel's default before them",
                                result.trials, skipped.unusable, skipped.without_default),
         .node = {},
         .legal = fmt::format("at least {} trials that this version can replay, with their default's", kLeastTrials),
         .hint = "tune a model first"});
  model.fit(kRounds);
  using Clock = std::chrono::steady_clock;
  const auto micros = [](Clock::time_point begin, size_t count) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / static_cast<double>(count);
  };
  double together = 0, alone = 0;
  size_t predictions = 0;
  for (const auto& [hash, samples] : unseen) {
    if (kernels.contains(hash) || samples.samples.size() < kLeastTrials) {
      ++(kernels.contains(hash) ? result.trained_on : result.too_few);
      continue;
    }
    std::vector<const LoopProgram*> programs;
    std::vector<double> gains;
    for (const Sample& sample : samples.samples) {
      programs.push_back(&sample.program);
      gains.push_back(sample.gain);
    }
    const auto begin = Clock::now();
    const std::vector<double> scores = model.predict(programs);
    together += micros(begin, 1);
    const auto again = Clock::now();
    for (const LoopProgram* program : programs) model.predict({program});
    alone += micros(again, 1);
    predictions += programs.size();
    result.test.push_back({hash, samples.name, programs.size(), spearman(scores, gains)});
  }
  std::sort(result.test.begin(), result.test.end(),
            [](const TestedKernel& a, const TestedKernel& b) { return a.name < b.name; });
  if (predictions > 0) {
    result.prediction_us = together / static_cast<double>(predictions);
    result.single_prediction_us = alone / static_cast<double>(predictions);
  }
  return result;
}

}  // namespace tessera::inline tune
