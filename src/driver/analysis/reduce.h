// The smallest model that fails as a given one does: the analysis behind `tessera reduce`. A model is cut as the graph
// that it is imported as; an ONNX model that cannot be imported, or that no longer fails when its graph is written as
// ONNX again, is cut as the file that it is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "diagnose/compare.h"
#include "driver/analysis/diff.h"
#include "driver/options.h"

namespace tessera::inline driver {

struct ReduceRequest {
  std::string model;               // of any format of formats.h
  std::string output;              // where the smallest model so far always is; text of a graph if it ends with .graph
  std::string command;             // for the shell, with {model}; empty: compile, run and compare with `against`
  std::string against = "interp";  // or O0
  DriverOptions driver;
  int num_threads = 0;
  MakeInputs make_inputs;  // tried first; inputs of other shapes, and a second trial, get random numbers
  Tolerance tolerance;
  double seconds = 60;                           // for everything
  double timeout = 20;                           // for one trial
  std::function<void(const std::string&)> step;  // told of every smaller model; may be null
};

struct ReduceResult {
  std::string failure;  // "differs", "error TSR-1040", "bug: ...", "crash: Segmentation fault", "timeout", "exit 3"
  std::string cut;      // "graph" or "onnx": what was made smaller
  int nodes_before = 0, nodes = 0;
  int64_t elements_before = 0, elements = 0;  // of weights
  int trials = 0;
  bool time_is_up = false;
};

// UserError TSR-4046 when the model does not fail, TSR-4047 for a command without {model}, TSR-4043 for a module,
// TSR-1060 when the graph has no ONNX form and `output` is no .graph, what importing throws for graphs as text,
// TSR-10xx when the file is no ONNX model, TSR-61xx when `output` cannot be written.
ReduceResult reduce_failure(const ReduceRequest& request);

}  // namespace tessera::inline driver
