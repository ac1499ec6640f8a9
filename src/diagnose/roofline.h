// Where a kernel stands between what the machine can compute and what its memory can deliver.
#pragma once

#include <cstdint>
#include <string>

#include "diagnose/machine_probe.h"

namespace tessera {

struct Roofline {
  double gflops = 0;            // billions of floating-point operations a second
  double gbytes = 0;            // billions of bytes a second, each byte of operands and result counted once
  double percent_of_peak = 0;   // of the measured peak of arithmetic
  double percent_of_bound = 0;  // of what the bound below allows; above 100 where caches hold more than was assumed
  bool compute_bound = false;   // else memory-bound
  std::string level;            // where the kernel's bytes fit: "L2", "memory"; its bandwidth is the memory bound
};

// `flops` and `bytes` of one call that takes `seconds`; negative ones count as 0. With `threads` 1 the peaks of one
// thread are the measure, else those of all. REQUIRES: seconds > 0 and peaks with levels.
Roofline roofline_of(int64_t flops, int64_t bytes, double seconds, const MachinePeaks& peaks, int threads);

}  // namespace tessera
