#include "tune/tuned_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/network/unit_roles.h"
#include "codegen/llvm/target.h"
#include "diagnose/machine_probe.h"
#include "driver/accelerators.h"
#include "schedule/sketches/sketch.h"
#include "support/hash.h"
#include "te/canonical.h"
#include "tune/task_kernel.h"

namespace tessera::inline tune {

namespace {

constexpr std::string_view kTracePayload = "trace";
constexpr int kGraphFormat = 1;

// Where the machine of a record is another one than the target, in brackets; empty when its facts cannot be read.
std::string difference(const std::string& facts, const Target& target) {
  const auto there = target_of_facts(facts);
  if (!there) return "";
  if (there->triple != target.triple) return fmt::format(" ({}, not {})", there->triple, target.triple);
  std::vector<std::string> features;
  for (const std::string& feature : there->features)
    if (!target.has(feature)) features.push_back("+" + feature);
  for (const std::string& feature : target.features)
    if (!there->has(feature)) features.push_back("-" + feature);
  constexpr size_t kMost = 4;
  if (features.size() > kMost) {
    const size_t more = features.size() - kMost;
    features.resize(kMost);
    features.push_back(fmt::format("and {} more", more));
  }
  if (!features.empty()) return fmt::format(" (features there: {})", fmt::join(features, " "));
  if (there->cpu != target.cpu) return fmt::format(" ({}, not {})", there->cpu, target.cpu);
  return fmt::format(" (caches of {}, {} and {} kB, not {}, {} and {})", there->l1_bytes >> 10, there->l2_bytes >> 10,
                     there->l3_bytes >> 10, target.l1_bytes >> 10, target.l2_bytes >> 10, target.l3_bytes >> 10);
}

// What a file says of the machine's kernels, used or not.
struct Known {
  std::set<std::string> tried, alone, reverted;  // for the number of threads: trials, candidates, choices that lost
  std::map<std::string, std::set<int>> other_threads;  // with anything of these for others
};

Known known_of(const RecordFile& records, int64_t machine, int threads) {
  Known known;
  const auto add = [&](const RecordKey& key, std::set<std::string>& to) {
    if (key.machine != machine) return;
    if (key.threads == threads) to.insert(key.kernel);
    else known.other_threads[key.kernel].insert(key.threads);
  };
  for (const RecordKey& key : records.tried()) add(key, known.tried);
  for (const ChoiceRecord& candidate : records.candidates()) add(candidate.key, known.alone);
  for (const ChoiceRecord& choice : records.choices())
    add(choice.key, choice.state == "reverted" ? known.reverted : known.tried);
  return known;
}

std::string why_none(const Known& known, int threads, const std::set<std::string>& hashes) {
  std::set<int> others;
  std::set<std::string> ours;
  const auto any = [&](const std::set<std::string>& kernels) {
    bool found = false;
    for (const std::string& hash : hashes)
      if (kernels.contains(hash)) {
        found = true;
        ours.insert(hash);
      }
    return found;
  };
  const bool alone = any(known.alone), reverted = any(known.reverted);
  any(known.tried);
  if (!ours.empty()) {
    const char* why = alone      ? "what was faster alone was not compared in a model yet: 'tessera tune --resume' does"
                      : reverted ? "what was faster alone was not in the model, and reverted"
                                 : "its search found nothing that is faster than the default";
    return ours.size() == hashes.size()
               ? why
               : fmt::format("{} (its records are of {} of this model's {} kernels)", why, ours.size(), hashes.size());
  }
  for (const std::string& hash : hashes)
    if (const auto found = known.other_threads.find(hash); found != known.other_threads.end())
      others.insert(found->second.begin(), found->second.end());
  if (others.empty())
    return "its records for this machine are of other kernels (another model, other shapes, another --precision)";
  return fmt::format("its records are for {} thread{}, and this compile is for {}", fmt::join(others, ", "),
                     others == std::set{1} ? "" : "s", threads);
}

}  // namespace

SchedulePayload payload_of(const KnobPoint& point) {
  if (is_trace(point)) return {std::string(kTracePayload), trace_point_text(point), kTraceFormat, 0};
  const ScheduleRule* rule = find_schedule_rule(point.rule);
  const JoiningStep* step = find_joining_step(point.rule);
  return {"rule point", to_string(point), kKnobFormat, rule ? rule->version : step ? step->version : 0};
}

std::optional<KnobPoint> usable_point(const SchedulePayload& payload, std::string& why) {
  if (payload.kind == kTracePayload) {
    if (payload.knob_format == kTraceFormat) return parse_trace_point(payload.text, why);
    why = fmt::format("a record has a trace of form {}; this version reads form {}", payload.knob_format, kTraceFormat);
    return std::nullopt;
  }
  if (payload.kind != "rule point") {
    why = fmt::format("a record holds a '{}', of which this version knows nothing", payload.kind);
    return std::nullopt;
  }
  if (payload.knob_format != kKnobFormat) {
    why = fmt::format("a record has knobs of form {}; this version reads form {}", payload.knob_format, kKnobFormat);
    return std::nullopt;
  }
  auto point = parse_knob_point(payload.text, why);
  if (point && !find_schedule_rule(point->rule) && !find_joining_step(point->rule)) {
    why = fmt::format("a record names the rule '{}', which there is not", point->rule);
    return std::nullopt;
  }
  return point;
}

SchedulePayload payload_of(const UnitTiling& tiling) {
  return {std::string(kUnitTiling), to_string(to_point(tiling)), kKnobFormat, 0};
}

std::optional<KnobPoint> usable_tiling(const SchedulePayload& payload, std::string& why) {
  if (payload.kind != kUnitTiling || payload.knob_format != kKnobFormat) {
    why = fmt::format("a record holds a '{}' of form {}, of which this version knows nothing", payload.kind,
                      payload.knob_format);
    return std::nullopt;
  }
  auto point = parse_knob_point(payload.text, why);
  if (point && tiling_at(*point)) return point;
  if (point) why = fmt::format("a record has '{}', which is no tiling", payload.text);
  return std::nullopt;
}

MachineRecord unit_machine(const Accelerator& unit) {
  std::string why;
  const UnitRoles roles = roles_of(unit, why);
  const auto lanes = static_cast<double>(roles.product.in * roles.product.out);
  // Exact numbers: records of a unit are found again.
  return {0, accelerator_facts(unit), 2e-3 * unit.clock_mhz * std::max(lanes, 1.0),
          1e-3 * unit.clock_mhz * static_cast<double>(unit.dram_bytes_per_cycle)};
}

SchedulePayload payload_of(const GraphChoice& choice) {
  return {std::string(kGraphPayload), to_string(choice), kGraphFormat, 0};
}

std::optional<GraphChoice> usable_graph(const SchedulePayload& payload, std::string& why) {
  if (payload.knob_format == kGraphFormat) return parse_graph_choice(payload.text, why);
  why = fmt::format("a record has a graph's choice of form {}; this version reads form {}", payload.knob_format,
                    kGraphFormat);
  return std::nullopt;
}

std::optional<int64_t> find_machine(const RecordFile& records, const Target& target, std::string& why,
                                    Fp32Products fp32) {
  const std::vector<MachineRecord> machines = records.machines();
  std::vector<MachineRecord> alike;
  for (const MachineRecord& machine : machines)
    if (machine.facts == machine_facts(target, fp32)) alike.push_back(machine);
  if (alike.empty()) {
    why = machines.empty() ? "it is empty" : "its records are of another machine";
    if (machines.size() == 1) why += difference(machines[0].facts, target);
    return std::nullopt;
  }
  if (!runs_here(target))
    return std::max_element(alike.begin(), alike.end(),
                            [](const auto& a, const auto& b) { return a.peak_gflops < b.peak_gflops; })
        ->id;
  constexpr int kMostTries = 10;
  const ProbeOptions probe{.seconds = 0.002, .rounds = 1, .only_floats = true, .memory = false};
  double peak = 0;
  const auto distance = [&](const MachineRecord& machine) { return std::fabs(std::log(machine.peak_gflops / peak)); };
  // A processor that others use, too, may seem too slow at first, and never too fast.
  for (int tries = 1;; ++tries) {
    peak = std::max(peak, measure_machine(probe).fma_f32.one_thread / 1e9);
    const auto nearest = std::min_element(alike.begin(), alike.end(),
                                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    if (same_peak(nearest->peak_gflops, peak)) return nearest->id;
    if (tries < kMostTries && nearest->peak_gflops > peak) continue;
    why = fmt::format("its records are of a machine like this one with a peak of {:.3g} GFLOP/s, and here it is {:.3g}",
                      nearest->peak_gflops, peak);
    return std::nullopt;
  }
}

TunedKernels tuned_kernels(const std::string& path, const Target& target, Fp32Products fp32) {
  const RecordFile records(path, RecordFile::Open::kRead);
  std::string unfit;
  const auto machine = find_machine(records, target, unfit, fp32);
  TunedKernels result = tuned_kernels(records, machine, target);
  if (result.choices == 0) result.unfit = std::move(unfit);
  return result;
}

namespace {

// What records hold for one machine and number of threads.
class RecordedDecisions : public Decisions {
 public:
  void add(const ChoiceRecord& choice, const KernelRecord& kernel) {
    digest_.add(choice.key.kernel);
    digest_.add(choice.payload.text);
    if (choice.payload.kind == kGraphPayload) graphs_[choice.key.kernel] = choice.payload;
    else kernels_[choice.key.kernel] = {kernel.text, choice.payload};
  }
  void add_tiling(const std::string& unit, const ChoiceRecord& choice, const KernelRecord& kernel) {
    digest_.add(unit);
    digest_.add(choice.key.kernel);
    digest_.add(choice.payload.text);
    tilings_[{unit, choice.key.kernel}] = {kernel.text, choice.payload};
  }
  size_t size() const { return kernels_.size() + graphs_.size() + tilings_.size(); }

  std::string digest() const override { return fmt::format("{:016x}", digest_.value()); }

  std::optional<TunedGraph> choose_graph(const std::function<std::string()>& model_hash) override {
    if (graphs_.empty()) return std::nullopt;
    TunedGraph tuned;
    if (const auto found = graphs_.find(model_hash()); found != graphs_.end())
      if (auto choice = usable_graph(found->second, tuned.refused)) tuned.choice = std::move(*choice);
    return tuned;
  }

  TunedChoice choose_schedule(const Kernel& kernel) override {
    TunedChoice choice;
    const TaskKernel task(kernel);
    if (!task || kernels_.empty()) return choice;
    const std::string text = task.text();
    const auto found = kernels_.find(structural_hash(text));
    if (found == kernels_.end() || found->second.text != text) return choice;
    choice.point = usable_point(found->second.payload, choice.refused);
    return choice;
  }

  TunedChoice choose_tiling(const Accelerator& unit, const std::shared_ptr<const TensorProgram>& kernel) override {
    TunedChoice choice;
    if (tilings_.empty()) return choice;
    const std::string text = TaskKernel(kernel).text();
    const auto found = tilings_.find({accelerator_facts(unit), structural_hash(text)});
    if (found == tilings_.end() || found->second.text != text) return choice;
    choice.point = usable_tiling(found->second.payload, choice.refused);
    return choice;
  }

 private:
  struct Stored {
    std::string text;
    SchedulePayload payload;
  };
  std::map<std::string, Stored> kernels_;                          // by structural hash
  std::map<std::string, SchedulePayload> graphs_;                  // by model hash
  std::map<std::pair<std::string, std::string>, Stored> tilings_;  // by the unit's facts and structural hash
  Hasher digest_;
};

}  // namespace

TunedKernels tuned_kernels(const RecordFile& records, std::optional<int64_t> machine, const Target& target) {
  const auto decisions = std::make_shared<RecordedDecisions>();
  std::map<int64_t, std::string> units;
  for (const MachineRecord& known : records.machines())
    if (known.facts.starts_with(kAcceleratorFacts)) units[known.id] = known.facts;
  for (const ChoiceRecord& choice : records.choices()) {
    if (choice.state != "won") continue;
    const auto kernel = records.kernel(choice.key.kernel);
    if (!kernel) continue;
    if (const auto unit = units.find(choice.key.machine); unit != units.end())
      decisions->add_tiling(unit->second, choice, *kernel);
    else if (choice.key.machine == machine && choice.key.threads == target.num_threads) decisions->add(choice, *kernel);
  }
  TunedKernels result;
  result.choices = decisions->size();
  result.decisions = decisions;
  if (machine)
    result.why_none = [all = known_of(records, *machine, target.num_threads), threads = target.num_threads](
                          const std::set<std::string>& hashes) { return why_none(all, threads, hashes); };
  return result;
}

}  // namespace tessera::inline tune
