// Where a kernel stands between what the machine can compute and what its memory can deliver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/machine_probe.h"
#include "program/reuse_distance.h"

namespace tessera::inline diagnose {

// What one call of a kernel does; -1: not known, which counts as 0.
struct KernelWork {
  int64_t flops = -1;
  int64_t bytes = -1;                     // of operands and result
  int64_t constant_bytes = -1;            // of them: weights
  std::vector<CallTraffic> traffic = {};  // the same, argument by argument; empty: not known
  std::string unit = {};                  // what its products go through; empty: multiply-adds of f32
};

// The measured peak of a unit; null where there is none, or it was not measured.
const ArithmeticPeak* peak_of(const MachinePeaks& peaks, const std::string& unit);

struct Roofline {
  double gflops = 0;            // billions of floating-point operations a second
  double gbytes = 0;            // billions of bytes a second, each byte of operands and result counted once
  bool has_peak = true;         // false: the unit's was not measured, and the bound is that of memory alone
  double percent_of_peak = 0;   // of the measured peak of the kernel's unit
  double percent_of_bound = 0;  // of what the bound below allows; above 100 where caches hold more than was assumed
  bool compute_bound = false;   // else memory-bound
  std::string level;            // where the bytes come from that take longest: "L2", "memory"
};

// Traffic of a run whose calls take `call_seconds` each: what was touched longer ago than the last cache keeps it
// counts as far away as memory.
std::vector<CallTraffic> aged(std::vector<CallTraffic> traffic, double call_seconds, const MachinePeaks& peaks);

// Of one call that takes `seconds`. Each argument comes from the first level that holds it and what was touched since
// its last use. Where that is not known, in a model whose kernels read `model_constants` bytes of weights in a run:
// when no cache holds those, the kernel's weights come from memory, and the rest from the level that it fits. With
// `threads` 1 the peaks of one thread are the measure, else those of all. REQUIRES: seconds > 0 and peaks with levels.
Roofline roofline_of(const KernelWork& work, int64_t model_constants, double seconds, const MachinePeaks& peaks,
                     int threads);

}  // namespace tessera::inline diagnose
