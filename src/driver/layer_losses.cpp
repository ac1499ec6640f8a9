#include "driver/layer_losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace tessera::inline driver {
namespace {

// Results are the model's own memory, which the next run writes.
std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) {
    Tensor copy(tensor.dtype(), tensor.dims());
    std::copy_n(tensor.bytes(), tensor.num_bytes(), copy.mutable_bytes());
    result.push_back(std::move(copy));
  }
  return result;
}

LayerSelection selection_of(const std::vector<OutputReport>& outputs, size_t layers, double estimated_ms) {
  LayerSelection selection{layers, estimated_ms, std::numeric_limits<double>::infinity(), 0};
  for (const OutputReport& output : outputs) {
    selection.sqnr_db = std::min(selection.sqnr_db, output.sqnr_db);
    selection.drop = std::max(selection.drop, output.drop);
  }
  return selection;
}

bool fits(const LayerSelection& selection, const LossLimits& limits) {
  return selection.drop <= limits.most_drop && selection.sqnr_db >= limits.least_sqnr;
}

}  // namespace

LayerLosses::LayerLosses(std::unique_ptr<Model> switched, const SampleSource& samples, size_t layers)
    : model_(std::move(switched)), samples_(samples), layers_(layers) {
  const size_t count = std::min(samples.count, kMostSamples);
  for (size_t i = 0; i < count; ++i) places_.push_back(i * samples.count / count);
  constexpr int64_t kMostBytes = int64_t{32} << 20;
  int64_t bytes = 0;
  for (const size_t place : places_) {
    run(place, std::vector<bool>(layers_, false));
    real_.push_back(copies(model_->results()));
    for (const Tensor& tensor : real_.back()) bytes += tensor.num_bytes();
    if (bytes <= kMostBytes || real_.size() == 1) continue;
    places_.resize(real_.size());
    break;
  }
}

void LayerLosses::run(size_t sample, const std::vector<bool>& layers) {
  std::vector<Tensor> inputs = samples_.at(sample);
  Tensor switches(DType::kBool, {static_cast<int64_t>(layers_)});
  for (size_t i = 0; i < layers_; ++i) switches.set_int(static_cast<int64_t>(i), layers[i]);
  inputs.push_back(std::move(switches));
  model_->bind(std::move(inputs));
  model_->run();
}

std::vector<OutputReport> LayerLosses::measure(const std::vector<bool>& layers) {
  std::vector<OutputComparison> outputs;
  for (const TensorInfo& output : model_->outputs()) outputs.emplace_back(output.name);
  for (size_t i = 0; i < places_.size(); ++i) {
    run(places_[i], layers);
    for (size_t o = 0; o < outputs.size(); ++o)
      outputs[o].add(real_[i][o], model_->results()[o],
                     o == 0 && !samples_.labels.empty() ? std::optional(samples_.labels[places_[i]]) : std::nullopt);
  }
  std::vector<OutputReport> reports;
  for (const OutputComparison& output : outputs) reports.push_back(output.report());
  return reports;
}

ChosenLayers choose_layers(const std::vector<LayerGain>& gains, double real_ms, const LossLimits& limits,
                           const std::function<std::vector<OutputReport>(const std::vector<bool>&)>& measure) {
  std::vector<size_t> order(gains.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // What gains nothing goes first, then what loses most for its gain.
  const auto price = [&](size_t i) {
    return gains[i].saved_ms > 0 ? gains[i].loss / gains[i].saved_ms : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return price(a) > price(b); });
  ChosenLayers chosen;
  std::vector<bool> layers(gains.size(), true);
  double estimated_ms = real_ms;
  for (const LayerGain& gain : gains) estimated_ms -= gain.saved_ms;
  for (size_t out = 0; out <= gains.size(); ++out) {
    if (out > 0) {
      layers[order[out - 1]] = false;
      estimated_ms += gains[order[out - 1]].saved_ms;
    }
    const LayerSelection selection = selection_of(measure(layers), gains.size() - out, estimated_ms);
    if (chosen.layers.empty() && fits(selection, limits)) chosen.layers = layers;
    chosen.selections.push_back(selection);
  }
  // A slower one has to lose less than all that are faster.
  std::stable_sort(chosen.selections.begin(), chosen.selections.end(),
                   [](const LayerSelection& a, const LayerSelection& b) { return a.estimated_ms < b.estimated_ms; });
  double most = -std::numeric_limits<double>::infinity();
  std::erase_if(chosen.selections, [&](const LayerSelection& selection) {
    const bool is_beaten = !(selection.sqnr_db > most);
    most = std::max(most, selection.sqnr_db);
    return is_beaten;
  });
  if (chosen.layers.empty()) chosen.layers.assign(gains.size(), false);
  return chosen;
}

}  // namespace tessera::inline driver
