// Post-training quantisation of a model: what its values are is seen on samples, and what a layer gains by bytes is
// measured in the network. A layer stays in f32 where its kernel is not faster in bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "driver/options.h"
#include "graph/graph.h"
#include "quantize/quantize_graph.h"
#include "quantize/range.h"
#include "types/tensor.h"

namespace tessera::inline driver {

// Samples of a model's inputs, one at a time, so that memory does not grow with their number.
struct SampleSource {
  size_t count = 0;
  std::function<std::vector<Tensor>(size_t sample)> at;  // one tensor for each input
};

struct QuantizationOptions {
  RangeOptions range;
  QuantizeOptions form;
  std::vector<std::string> keep;  // patterns with * and ? of the names of layers that stay in f32
  bool contest = true;            // leave layers in f32 whose kernels are not faster in bytes
};

enum class LayerChoice : uint8_t {
  kBytes,
  kKept,    // asked for
  kSlower,  // its kernel takes at least as long in bytes
  kUnseen,  // no finite value of its data was seen
  kNoForm,  // the scheme has none for it
};
std::string_view layer_choice_text(LayerChoice choice);  // "bytes", "f32: kept", ...

struct LayerReport {
  WeightedProduct product;
  LayerChoice choice = LayerChoice::kBytes;
  Range range;
  double real_us = -1, byte_us = -1;  // of the kernels that it is part of; -1: not measured
};

// Over all samples: the ratio of the squares of the f32 model's values to those of the differences, in dB.
struct OutputReport {
  std::string name;
  double sqnr_db = 0;    // infinity: equal
  double agreement = 1;  // of the places of the largest element along the last dimension, the share that is equal
};

struct QuantizationReport {
  std::vector<LayerReport> layers;
  std::vector<OutputReport> outputs;
  double real_ms = 0, byte_ms = 0;  // the least of runs in turn
  size_t samples = 0;
  int threads = 0;

  double speedup() const { return byte_ms > 0 ? real_ms / byte_ms : 0; }
};

struct QuantizedModel {
  Graph graph;  // the model, with its constants folded as far as quantisation asks, and its pairs
  QuantizationReport report;
};

// `model` as layers are quantised in it: products alone, constants and batch normalisations folded into their weights.
Graph quantizable(const Graph& model, const DriverOptions& driver);

// `model` has sizes that are all known, and one sample's tensors fit its inputs. UserError TSR-2091 (weights that are
// not finite), TSR-2092 (no layer to quantise), TSR-2093 (samples that make values that are not finite, named), and
// what `samples` throws. `on_step` is told what is going on.
QuantizedModel quantize_model(const Graph& model, const SampleSource& samples, const QuantizationOptions& options,
                              const DriverOptions& driver, const std::function<void(std::string_view)>& on_step);

}  // namespace tessera::inline driver
