// A compiled model beside another runtime, in alternating rounds, so that what else the machine does falls on both.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "driver/model.h"

namespace tessera {

struct AgainstOptions {
  std::string model_path;  // ONNX
  int repeat = 0;          // runs a round; 0: as many as take about a fifth of a second
  int rounds = 5;
};

struct AgainstResult {
  std::string peer, version;
  int repeat = 0;                                   // runs a round
  std::vector<double> ours_ms, theirs_ms;           // the median of each round
  double ours_median_ms = 0, theirs_median_ms = 0;  // of those
  bool agrees = true;
  std::vector<std::string> comparisons;  // of each output
};

// Compares the outputs (max|d| <= 1e-4 max|ref|, integers exactly), then times. REQUIRES: `model` is bound to `inputs`.
// UserError TSR-4044 when ONNX Runtime cannot be used.
AgainstResult run_against_onnxruntime(Model& model, const std::vector<Tensor>& inputs, const AgainstOptions& options);

nlohmann::json against_json(const AgainstResult& result, const Model& model);
std::string against_text(const AgainstResult& result, const Model& model);

}  // namespace tessera
