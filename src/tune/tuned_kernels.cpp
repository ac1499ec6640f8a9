#include "tune/tuned_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "codegen/llvm/target.h"
#include "driver/kernel_times.h"
#include "expr/canonical.h"
#include "schedule/sketch.h"
#include "support/hash.h"

namespace tessera {

namespace {

constexpr std::string_view kTracePayload = "trace";

}  // namespace

SchedulePayload payload_of(const KnobPoint& point) {
  if (is_trace(point)) return {std::string(kTracePayload), trace_point_text(point), kTraceFormat, 0};
  const ScheduleRule* rule = find_schedule_rule(point.rule);
  return {"rule point", to_string(point), kKnobFormat, rule ? rule->version : 0};
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
  if (point && !find_schedule_rule(point->rule)) {
    why = fmt::format("a record names the rule '{}', which there is not", point->rule);
    return std::nullopt;
  }
  return point;
}

std::optional<int64_t> find_machine(const RecordFile& records, const Target& target) {
  std::vector<MachineRecord> alike;
  for (MachineRecord& machine : records.machines())
    if (machine.facts == machine_facts(target)) alike.push_back(std::move(machine));
  if (alike.empty()) return std::nullopt;
  if (alike.size() == 1) return alike[0].id;
  if (!runs_here(target))
    return std::max_element(alike.begin(), alike.end(),
                            [](const auto& a, const auto& b) { return a.peak_gflops < b.peak_gflops; })
        ->id;
  const double peak = measure_roofline(1).fma_f32.one_thread / 1e9;
  const auto distance = [&](const MachineRecord& machine) { return std::fabs(std::log(machine.peak_gflops / peak)); };
  const auto nearest = std::min_element(alike.begin(), alike.end(),
                                        [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  return nearest->id;
}

TunedKernels tuned_kernels(const std::string& path, const Target& target) {
  struct Known {
    std::string text;
    SchedulePayload payload;
  };
  const auto known = std::make_shared<std::map<std::string, Known>>();
  TunedKernels result;
  Hasher digest;
  {
    const RecordFile records(path, RecordFile::Open::kRead);
    const auto machine = find_machine(records, target);
    for (const ChoiceRecord& choice : records.choices()) {
      if (choice.key.machine != machine || choice.key.threads != target.num_threads || choice.state != "won") continue;
      const auto kernel = records.kernel(choice.key.kernel);
      if (!kernel) continue;
      digest.add(choice.key.kernel);
      digest.add(choice.payload.text);
      (*known)[choice.key.kernel] = {kernel->text, choice.payload};
    }
  }
  result.kernels = known->size();
  result.digest = fmt::format("{:016x}", digest.value());
  result.choose = [known](const Kernel& kernel) {
    TunedChoice choice;
    if (!kernel.definition || known->empty()) return choice;
    const std::string text = canonical_text(*kernel.definition);
    const auto found = known->find(structural_hash(text));
    if (found == known->end() || found->second.text != text) return choice;
    choice.point = usable_point(found->second.payload, choice.refused);
    return choice;
  };
  return result;
}

}  // namespace tessera
