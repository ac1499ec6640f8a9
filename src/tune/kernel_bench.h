// One kernel as a module of its own, built and timed in processes of their own: a candidate that crashes the code
// generator, or crashes or hangs when it runs, costs one trial and nothing else.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "package/anonymous_file.h"
#include "runner/bench_module.h"
#include "schedule/kernel/knobs.h"
#include "target/target.h"
#include "tune/runner_process.h"
#include "tune/statistics.h"
#include "tune/task_kernel.h"
#include "types/tensor.h"

namespace tessera::inline tune {

// A kernel with operands to run it on.
struct KernelBench {
  TaskKernel kernel;
  Target target;
  std::vector<TensorPtr> operands;  // one for each parameter, in its physical shape
  // How far away operands are when a run begins, as their model leaves them; none: as the run before left them.
  std::optional<ReuseDistances> distances;
  RunnerCommand runner;  // that runs code for the target; empty: this machine does
};

// Operands are random, from a fixed seed. `reuse`: reuse_distances of a call (program/reuse_distance.h), or empty; what
// is farther than the target's caches reach is that far. REQUIRES: static shapes.
KernelBench make_kernel_bench(TaskKernel kernel, const Target& target, const std::vector<int64_t>& reuse = {});

struct BuiltKernel {
  std::string failure;                  // empty: `module` is there. "refused: ...", "build failed: ...", "timeout"
  std::shared_ptr<AnonymousFile> file;  // the module
};

struct BenchLimits {
  double build_seconds = 20;
  double run_seconds = 10;     // of one comparison
  double most_seconds = 0.25;  // after which a comparison is cut short
  int64_t least_rounds = 7, most_rounds = 30;
  int64_t memory_bytes = 0;  // of a runner; 0: none
  int jobs = 2;              // builds at a time
};

// `point` null: what the rules choose.
BuiltKernel build_kernel(const KernelBench& bench, const KnobPoint* point, const BenchLimits& limits);
// The same for many, limits.jobs at a time.
std::vector<BuiltKernel> build_kernels(const KernelBench& bench, const std::vector<KnobPoint>& points,
                                       const BenchLimits& limits);

struct KernelComparison {
  std::string status = "ok";  // or "crash", "timeout", "wrong result"
  std::string detail;
  PairedTimes times;
};

// A tensor for what the kernel writes, in its physical shape.
Tensor result_tensor(const KernelBench& bench);

// Runs both in turn in one process (the runner's, if there is one): rounds of one run each, until `most_rounds`, or the
// time is over, or it is clear that the candidate is slower. Results of the two must agree (1e-4 of the largest in
// floats, exactly in integers).
KernelComparison compare_kernels(const KernelBench& bench, const BuiltKernel& incumbent, const BuiltKernel& candidate,
                                 const BenchLimits& limits);

// For tests of what costs a trial: runs in the child before the candidate does. May be null.
void set_candidate_hook(std::function<void()> hook);

}  // namespace tessera::inline tune
