// How a compile uses tuning records: the schedules that won on this machine, by what a kernel computes.
#pragma once

#include <string>
#include <vector>

#include "records/records.h"
#include "schedule/schedule.h"
#include "types/target.h"

namespace tessera {

// The payload of a point of this compiler's rules ("rule point"), or of a sketch ("trace": the schedule as a whole,
// which needs no sketch to be replayed).
SchedulePayload payload_of(const KnobPoint& point);

// The point that a payload names, in this compiler; a reason when it cannot be used: another kind of schedule, another
// form of knobs, no such rule. A point of another version of its rule is kept, and checked where it is applied: a rule
// that still has those knobs does with them what it says, and whatever it does is right.
std::optional<KnobPoint> usable_point(const SchedulePayload& payload, std::string& why);

// The machine's number in the records: that with the target's facts. Of several the one with the nearest measured peak,
// or, for code that does not run here, with the highest: it is the hardware, and others emulate it. Empty when there is
// none.
std::optional<int64_t> find_machine(const RecordFile& records, const Target& target);

struct TunedKernels {
  ChoosePoint choose;  // for DriverOptions::tuned
  std::string digest;  // for DriverOptions::tuned_digest
  size_t kernels = 0;  // that have a choice for the machine and the number of threads
};

// Reads all of it at once; the file is closed then. UserError as RecordFile.
TunedKernels tuned_kernels(const std::string& path, const Target& target);

}  // namespace tessera
