// How a compile uses tuning records: the schedules that won on this machine, by what a kernel computes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "driver/decisions.h"
#include "driver/graph_choice.h"
#include "driver/unit_tilings.h"
#include "records/records.h"
#include "schedule/choose.h"
#include "target/target.h"

namespace tessera::inline tune {

// The payload of a point of this compiler's rules ("rule point"), or of a sketch ("trace": the schedule as a whole,
// which needs no sketch to be replayed).
SchedulePayload payload_of(const KnobPoint& point);

// The point that a payload names, in this compiler; a reason when it cannot be used: another kind of schedule, another
// form of knobs, no such rule. A point of another version of its rule is kept, and checked where it is applied: a rule
// that still has those knobs does with them what it says, and whatever it does is right.
std::optional<KnobPoint> usable_point(const SchedulePayload& payload, std::string& why);

// The same for what is done to a model as a whole: a record of its own kind, under the model's hash.
inline constexpr std::string_view kGraphPayload = "graph";
SchedulePayload payload_of(const GraphChoice& choice);
std::optional<GraphChoice> usable_graph(const SchedulePayload& payload, std::string& why);

// The same for tilings of an accelerator's kernels (driver/unit_tilings.h). Records of them belong to the unit: a
// machine of its own, whose threads are the virtual ones.
SchedulePayload payload_of(const UnitTiling& tiling);
std::optional<KnobPoint> usable_tiling(const SchedulePayload& payload, std::string& why);
MachineRecord unit_machine(const Accelerator& unit);

// The machine's number in the records: that with the target's facts and the peak that is measured here (some ms),
// within the records' tolerance, of several the nearest. For code that does not run here that with the highest peak: it
// is the hardware, and others emulate it. Nothing, with a reason, when there is none.
std::optional<int64_t> find_machine(const RecordFile& records, const Target& target, std::string& why,
                                    Fp32Products fp32 = Fp32Products::kFma);

struct TunedKernels {
  std::shared_ptr<Decisions> decisions;  // for DriverOptions: what the records say; null without records
  size_t choices = 0;                    // of the file, for the machine and the number of threads
  std::string unfit;  // why no model has any, after "no choice for this model: "; empty when there are some
  // Why kernels with these hashes, none of which has a choice, have none: after "no choice for this model: ".
  std::function<std::string(const std::set<std::string>& hashes)> why_none;
};

// Reads all of it at once; the file is closed then. UserError as RecordFile.
TunedKernels tuned_kernels(const std::string& path, const Target& target, Fp32Products fp32 = Fp32Products::kFma);
// The same of an open file, for a machine of it; nothing: `unfit` stays empty.
TunedKernels tuned_kernels(const RecordFile& records, std::optional<int64_t> machine, const Target& target);

}  // namespace tessera::inline tune
