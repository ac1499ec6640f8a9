// Post-training quantisation of a model: what its values are is seen on samples, and what a layer gains by bytes is
// measured in the network. A layer stays in f32 where its kernel is not faster in bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/layer_losses.h"
#include "driver/options.h"
#include "driver/output_comparison.h"
#include "driver/sample_source.h"
#include "graph/graph.h"
#include "quantize/quantize_graph.h"
#include "quantize/range.h"
#include "types/precision_plan.h"
#include "types/tensor.h"

namespace tessera::inline driver {

struct QuantizationOptions {
  RangeOptions range;
  QuantizeOptions form;
  std::vector<std::string> keep;  // patterns with * and ? of the names of layers that stay in f32
  PrecisionPlan plan;             // what it says of a layer holds, whatever is measured
  bool contest = true;            // leave layers in f32 whose kernels are not faster in bytes
  // Measure what each layer loses, and take layers out until no output loses more than this, those first that lose
  // most for what they gain.
  bool losses = false;
  bool equalize = false;      // scale channels between products first (quantize/equalize.h)
  bool ada_round = false;     // round weights for what the samples make of the products (round_for_data)
  bool correct_bias = false;  // take off what integers shift the products' means by
  LossLimits limits;
};

enum class LayerChoice : uint8_t {
  kBytes,
  kKept,    // asked for
  kNarrow,  // asked for: what it reads is rounded to bf16 or f16 when the model is compiled
  kSlower,  // its kernel takes at least as long in bytes
  kUnseen,  // no finite value of its data was seen
  kNoForm,  // the scheme has none for it
  kLoss,    // the outputs would lose more than the limits allow
};
std::string_view layer_choice_text(LayerChoice choice);  // "bytes", "f32: kept", ...

struct LayerReport {
  WeightedProduct product;
  LayerChoice choice = LayerChoice::kBytes;
  bool is_asked = false;  // the plan says it, whatever times and losses are
  Range range;
  int64_t vanished_outputs = 0;  // whose weights, too small for their scale, all become 0 in bytes
  bool data_vanish = false;      // what it reads is too small for a scale, and becomes 0
  double real_us = -1, byte_us = -1;  // of the kernels that it is part of; -1: not measured
  // With `losses`, of the output that loses most: signal to noise when no other layer is quantised.
  std::optional<double> sqnr_db = {};
};

struct QuantizationReport {
  std::vector<LayerReport> layers;
  std::vector<OutputReport> outputs;
  std::vector<LayerSelection> selections;  // with `losses`
  double real_ms = 0, byte_ms = 0;         // the least of runs in turn
  size_t samples = 0;
  size_t equalized_pairs = 0;
  size_t rounded_layers = 0;  // for the samples
  int threads = 0;

  double speedup() const { return byte_ms > 0 ? real_ms / byte_ms : 0; }
};

struct QuantizedModel {
  Graph graph;  // the model, with its constants folded as far as quantisation asks, and its pairs
  QuantizationReport report;
};

// `model` as layers are quantised in it: products alone, constants and batch normalisations folded into their weights.
Graph quantizable(const Graph& model, const DriverOptions& driver);

// One sample's tensors fit the model's inputs; sizes that it leaves open may differ from sample to sample, and times
// are those of the first. UserError TSR-2091 (weights that are
// not finite), TSR-2092 (no layer to quantise), TSR-2093 (samples that make values that are not finite, named), and
// what `samples` throws. `on_step` is told what is going on.
QuantizedModel quantize_model(const Graph& model, const SampleSource& samples, const QuantizationOptions& options,
                              const DriverOptions& driver, const std::function<void(std::string_view)>& on_step);

}  // namespace tessera::inline driver
