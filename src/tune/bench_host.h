// Where the modules of one comparison run: in this process, or in a runner (runner_process.h).
#pragma once

#include <cstddef>
#include <memory>

#include "tune/kernel_bench.h"

namespace tessera::inline tune {

class BenchHost {
 public:
  virtual ~BenchHost() = default;
  // Loads a module, binds the operands and runs it once; its number, from 0 on.
  virtual size_t load(const BuiltKernel& built) = 0;
  // Of the last run.
  virtual Tensor result(size_t module) = 0;
  // Runs it; the median time of its calls in microseconds, above 0.
  virtual double timed_run(size_t module) = 0;
};

// BenchFailure or RunnerFailure (std::runtime_error) from all of it where something does not run.
std::unique_ptr<BenchHost> make_bench_host(const KernelBench& bench, const BenchLimits& limits);

}  // namespace tessera::inline tune
