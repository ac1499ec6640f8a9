// What quantised layers cost a model's outputs: each alone, and any choice of them together, from one compiled model
// whose layers have switches (quantize/switched_graph.h).
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "driver/engine/model.h"
#include "driver/output_comparison.h"
#include "driver/sample_source.h"

namespace tessera::inline driver {

class LayerLosses {
 public:
  // `switched` has a switch for each of `layers` layers. At most kMostSamples of the samples are run, evenly taken.
  LayerLosses(std::unique_ptr<Model> switched, const SampleSource& samples, size_t layers);

  static constexpr size_t kMostSamples = 32;

  // For each output, with the layers quantised that are set.
  std::vector<OutputReport> measure(const std::vector<bool>& layers);

 private:
  void run(size_t sample, const std::vector<bool>& layers);

  std::unique_ptr<Model> model_;
  const SampleSource& samples_;
  size_t layers_;
  std::vector<size_t> places_;             // of the samples
  std::vector<std::vector<Tensor>> real_;  // for each of them, the outputs with no layer set; empty where they are many
};

// A choice of layers in bytes.
struct LayerSelection {
  size_t layers = 0;        // in bytes
  double estimated_ms = 0;  // of a run: that of f32 less what each layer gains
  double sqnr_db = 0;       // of the output that has least
  double drop = 0;          // of the output that has most
};

// A layer that may become bytes, as far as choosing asks.
struct LayerGain {
  double saved_ms = 0;
  double loss = 0;  // noise over signal when it alone is quantised, of the output that has most
};

struct LossLimits {
  double most_drop = std::numeric_limits<double>::infinity();    // in percent
  double least_sqnr = -std::numeric_limits<double>::infinity();  // in dB
};

struct ChosenLayers {
  std::vector<bool> layers;  // the first choice that fits, all of them to begin with; none where none does
  std::vector<LayerSelection> selections;  // that no other one beats in time and in SQNR, slowest last
};

// Takes layers out one by one, the one first that loses most for what it gains, and measures what is left each time.
ChosenLayers choose_layers(const std::vector<LayerGain>& gains, double real_ms, const LossLimits& limits,
                           const std::function<std::vector<OutputReport>(const std::vector<bool>&)>& measure);

}  // namespace tessera::inline driver
