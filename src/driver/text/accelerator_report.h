// What a network does on an accelerator, layer by layer: cycles, the share of what the unit could do, what bounds it;
// and what stays on the host. What `tessera bench --target unit.json` prints.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "accel/description.h"
#include "program/program.h"

namespace tessera::inline driver {

struct UnitLayer {
  std::string nodes;
  int64_t multiply_adds = 0;  // of the model: empty lanes count nothing
  int64_t cycles = 0, dram_bytes = 0, instructions = 0;
  double percent_of_peak = 0;
  // Of the roofline at its multiply-adds for each byte of DRAM, in percent of the peak.
  double roof = 0;
  bool bound_by_dram = false;
};

struct HostKernel {
  std::string nodes;
  int64_t multiply_adds = 0;
  double milliseconds = 0;  // 0: not measured
};

struct AcceleratorReport {
  const Accelerator* unit = nullptr;
  int64_t peak_per_cycle = 0;
  std::vector<UnitLayer> layers;
  std::vector<HostKernel> host;
  double seconds_to_simulate = 0;  // all cycles

  int64_t cycles() const;
  int64_t multiply_adds_on_unit() const;
  int64_t multiply_adds() const;
  double unit_ms() const;
  double host_ms() const;
};

// Of a program that runs kernels on an accelerator. `host_ms`: of a call, by the kernel's nodes and rule, where it was
// measured.
using HostTimes = std::map<std::pair<std::string, std::string>, double>;
AcceleratorReport accelerator_report(const Program& program, const HostTimes& host_ms);

std::string report_text(const AcceleratorReport& report);
nlohmann::json report_json(const AcceleratorReport& report);
// A roofline with a point for each layer (SVG).
std::string roofline_picture(const AcceleratorReport& report);

// By file name: the roofline, and for each of the unit's kernels its queues over time (SVG).
std::map<std::string, std::string> accelerator_pictures(const Program& program, const AcceleratorReport& report);

// How many multiply-adds a kernel of the host has: sums of products.
int64_t multiply_adds_of(const Kernel& kernel);

}  // namespace tessera::inline driver
