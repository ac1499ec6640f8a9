// Schedules written by people: what `tessera schedule` does.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/description.h"
#include "diagnose/compare.h"
#include "driver/analysis/cache_sim.h"
#include "driver/options.h"
#include "loop/intrinsic.h"
#include "loop/stmt.h"
#include "schedule/primitives/schedule.h"
#include "schedule/primitives/trace_step.h"
#include "target/target.h"

namespace tessera::inline driver {

struct ScheduleJob {
  std::string text, file;  // of the loop program
  std::string kernel;      // its name, where the text has several; empty: the only one
  // Texts that declare tensor intrinsics (loop/intrinsic_text.h), and their files.
  std::vector<std::pair<std::string, std::string>> intrinsics;
  // Whose instructions are intrinsics, too.
  std::shared_ptr<const Accelerator> accelerator;
  // Texts of schedules and their files, applied one after another.
  std::vector<std::pair<std::string, std::string>> traces;
  CompileOptions compile;  // target and threads
};

// All intrinsics that the texts declare. UserError TSR-3130, TSR-3131; TSR-3132 for a body that does not compute what
// its pattern does, tried on random numbers.
Intrinsics declared_intrinsics(const std::vector<std::pair<std::string, std::string>>& texts);

// The program of the job and the target it names, ready to be scheduled; the job's traces are not applied.
struct OpenedSchedule {
  Target target;
  Schedule schedule;
};
OpenedSchedule open_schedule(const ScheduleJob& job);

struct ScheduledLoops {
  LoopProgram original, scheduled;
  std::vector<TraceStep> steps;
  Target target;
  int num_threads = 1;
};

// UserError TSR-30xx and 31xx (the texts of the loop program and of intrinsics), TSR-3300 (its rules), TSR-3420 (which
// kernel), TSR-34xx (the schedule).
ScheduledLoops apply_schedules(const ScheduleJob& job);

enum class ScheduleEmit : uint8_t { kLoop, kTrace, kLlvm, kAsm, kMca, kCache, kOpenCl, kCuda };
// The scheduled program at a level; kMca: what llvm-mca says about its innermost loop (UserError TSR-3422 when there is
// no llvm-mca, TSR-3423 when it fails); kCache: misses of simulated caches (cache_sim.h), of those sizes (defaults: the
// target's, 8-way) and up to 2e9 accesses; kOpenCl, kCuda: as the threads of a GPU run it (UserError TSR-3427 when they
// cannot).
std::string emit_scheduled(const ScheduledLoops& loops, ScheduleEmit emit, const std::optional<CacheShape>& l1 = {},
                           const std::optional<CacheShape>& l2 = {});

// One comparison of the scheduled program with the original on random inputs.
struct ScheduleCheck {
  std::string how;  // "scheduled, compiled, against the original in the interpreter"
  std::string output;
  Comparison result;
};
// What the original computes, in the interpreter where it is small, and compiled otherwise.
std::vector<Tensor> outputs_of_original(const ScheduledLoops& loops, const std::vector<Tensor>& inputs);
// In the interpreter both where the program is small (at most 20 million stores), and compiled where the target runs
// here; a larger original is compiled, too. Bounds: integers equal; floats differ by at most 1e-4 (f16 and bf16: 2e-2)
// of the output's largest value, since schedules may change the order of sums. A small program with loops that are
// bound to a GPU's axes runs as its threads, too, in three orders of them.
std::vector<ScheduleCheck> check_schedule(const ScheduledLoops& loops);

struct ScheduleBench {
  double original_ms = 0, scheduled_ms = 0;  // medians
  double flops = 0;                          // of the original
  double peak_gflops = 0;                    // multiply-adds of f32 on as many threads, measured between the runs
  int rounds = 0;
  std::vector<std::string> remarks;  // what code generation did not do
};
// Runs take turns; about `seconds` in all unless single runs take longer. With `only_scheduled` the original is not
// run.
ScheduleBench bench_schedule(const ScheduledLoops& loops, double seconds, bool only_scheduled);

}  // namespace tessera::inline driver
