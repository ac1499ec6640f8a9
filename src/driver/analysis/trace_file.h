// A run as a Chrome trace: what chrome://tracing, Perfetto and other viewers open.
#pragma once

#include <string>
#include <vector>

#include "driver/analysis/kernel_trace.h"
#include "driver/engine/model.h"

namespace tessera::inline driver {

// The trace as JSON text: one slice for each kernel call and thread, named by the model's nodes, times in microseconds.
std::string chrome_trace(const Model& model, const std::vector<KernelSpan>& spans);

// Runs the bound model once to warm up and once recorded, and writes the trace to `path`, which appears whole or not at
// all. UserError TSR-4042 for a model that the interpreter runs, which has no kernels; TSR-6102 when the file cannot be
// written.
void profile_run(Model& model, const std::string& path);

}  // namespace tessera::inline driver
