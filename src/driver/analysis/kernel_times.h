// How long each kernel of a model takes and where that stands under the machine's roofline: the rows of `bench`.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/machine_probe.h"
#include "diagnose/text_table.h"
#include "driver/engine/model.h"

namespace tessera::inline driver {

struct KernelTime {
  int32_t kernel = 0;
  int64_t calls = 0;     // in one run
  double median_us = 0;  // of one run: all calls together
};

// In order of the kernels' numbers, those that ran. `runs` traced runs of the bound model; empty for the interpreter.
std::vector<KernelTime> time_kernels(Model& model, int runs);

// The mean of a run's calls; 0 of none.
double seconds_of_a_call(const std::vector<KernelTime>& times);

// Quick: about half a second. For `threads` threads and for one. Peaks of other arithmetic than multiply-adds of f32
// are measured where one of `kernels` has such.
MachinePeaks measure_roofline(int threads, const std::vector<KernelInfo>& kernels = {});

// One entry for each kernel: index, nodes, rule, calls, us, percent (of the sum), flops, bytes (of all calls), gflops,
// gbytes, unit (whose peak is the measure), percent_of_peak, percent_of_bound, bound ("compute", or "memory"), level.
// device ("cpu", or the device's name). What follows from counts that the module does not have (sizes that only a run
// knows), or from a peak that was not measured, as those of devices, is null.
nlohmann::json kernels_json(const Model& model, const std::vector<KernelTime>& times, const MachinePeaks& peaks);
// The machine's side of it: threads, peak_gflops (of f32), the peaks of other units, and the bandwidth of each level.
nlohmann::json roofline_json(const MachinePeaks& peaks, int threads);

// The table that people read, slowest kernel first, of what the two above returned.
std::string kernels_text(const nlohmann::json& kernels, const nlohmann::json& roofline, const TextStyle& style);

}  // namespace tessera::inline driver
