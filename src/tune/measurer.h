// Whoever builds and times candidates: this machine, or workers elsewhere (remote_measurer.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "records/records.h"
#include "tune/kernel_bench.h"

namespace tessera::inline tune {

// What a measurer needs to know of a kernel.
struct MeasuredKernel {
  std::string hash;  // structural
  TaskKernel definition;
  std::vector<int64_t> reuse = {};  // reuse_distances of its call (program/reuse_distance.h); empty: operands stay near
};

struct MeasuredTrial {
  std::string status;  // as TrialRecord::status
  std::string detail;
  PairedTimes times;  // of status "ok"
  int machine = -1;   // who measured it: an index of machines(), or -1 for this machine
};

class Measurer {
 public:
  virtual ~Measurer() = default;
  // Each candidate against the incumbent. `thorough`: all rounds, whatever the first ones say.
  virtual std::vector<MeasuredTrial> measure(const MeasuredKernel& kernel, const KnobPoint& incumbent,
                                             const std::vector<KnobPoint>& candidates, bool thorough) = 0;
  // The other machines that measure; without numbers.
  virtual std::vector<MachineRecord> machines() const { return {}; }
};

class LocalMeasurer : public Measurer {
 public:
  // With a runner (runner_process.h) this machine builds, and the runner's runs and times.
  LocalMeasurer(Target target, BenchLimits limits, RunnerCommand runner = {})
      : target_(std::move(target)), limits_(limits), runner_(std::move(runner)) {}
  std::vector<MeasuredTrial> measure(const MeasuredKernel& kernel, const KnobPoint& incumbent,
                                     const std::vector<KnobPoint>& candidates, bool thorough) override;

 private:
  struct Known {
    KernelBench bench;
    std::vector<int64_t> reuse;
    std::map<std::string, BuiltKernel> incumbents;  // by the point; a few
    double build_seconds = 0;                       // of the slowest of them
  };

  Target target_;
  BenchLimits limits_;
  RunnerCommand runner_;
  std::string current_;  // one kernel's operands are held at a time
  Known known_;
};

}  // namespace tessera::inline tune
