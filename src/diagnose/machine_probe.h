// How fast this machine is, measured: peaks of arithmetic and memory, for `doctor` and for rooflines.
//
// Rates are the best of several short measurements, so that other programs disturb them little. Instructions are
// measured only where the processor and its operating system have them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tessera::inline diagnose {

// One kind of arithmetic. Operations count multiply and add separately.
struct ArithmeticPeak {
  std::string name;          // "f32 multiply-add"
  std::string instructions;  // "avx512f"
  double one_thread = 0;     // operations a second
  double all_threads = 0;
};

struct MemoryLevel {
  std::string name;         // "L1", "L2", "L3", "memory"
  int64_t capacity = 0;     // bytes; of one core for L1 and L2, of L3 what it was seen to hold; INT64_MAX for memory
  int64_t working_set = 0;  // bytes that were read over and over, by each thread
  double one_thread = 0;    // bytes a second
  double all_threads = 0;
  // Seconds that data stays which is not touched. Not for ever in a last cache that other machines fill, too.
  double keeps = std::numeric_limits<double>::infinity();
};

struct MachinePeaks {
  int threads = 1;                       // of the figures for all threads
  ArithmeticPeak fma_f32;                // always there
  std::optional<ArithmeticPeak> vnni;    // 8-bit dot products
  std::optional<ArithmeticPeak> amx_i8;  // 8-bit tiles
  std::optional<ArithmeticPeak> amx_bf16;
  std::vector<MemoryLevel> levels;  // nearest first, memory last; empty when not asked for
};

struct ProbeOptions {
  int threads = 1;
  double seconds = 0.02;     // of each single measurement
  int rounds = 5;            // the best of so many counts
  bool only_floats = false;  // leave VNNI and AMX out
  // Cache sizes in bytes; 0: that level is left out.
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;
  bool memory = true;
};

MachinePeaks measure_machine(const ProbeOptions& options);

}  // namespace tessera::inline diagnose
