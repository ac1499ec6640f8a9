#include "against.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "diagnose/compare.h"
#include "onnxruntime_peer.h"
#include "support/error.h"

namespace tessera {

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double milliseconds_of(Model& model) {
  const auto begin = std::chrono::steady_clock::now();
  model.run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

AgainstResult run_against_onnxruntime(Model& model, const std::vector<Tensor>& inputs, const AgainstOptions& options) {
  std::vector<std::string> names;
  for (const TensorInfo& input : model.inputs()) names.push_back(input.name);
  OnnxRuntimePeer peer(options.model_path, names, inputs, model.num_threads());
  AgainstResult result;
  result.peer = "onnxruntime";
  result.version = peer.version();

  model.run();
  const double first_ms = milliseconds_of(model);
  if (peer.outputs().size() != model.results().size()) {
    throw UserError(
        {.id = "TSR-4044",
         .message = fmt::format("ONNX Runtime cannot be used beside us: it gives {} outputs, the model has {}",
                                peer.outputs().size(), model.results().size()),
         .node = {},
         .legal = "the same outputs",
         .hint = {}});
  }
  for (size_t i = 0; i < model.results().size(); ++i) {
    const Comparison comparison = compare(model.results()[i], peer.outputs()[i], {.rtol = 0, .atol = 0, .mtol = 1e-4});
    result.agrees = result.agrees && comparison.agrees;
    result.comparisons.push_back(comparison.text);
  }

  constexpr double kRoundMs = 200;
  result.repeat =
      options.repeat > 0 ? options.repeat : std::clamp(static_cast<int>(kRoundMs / std::max(first_ms, 1e-3)), 3, 1000);
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<double> samples;
    model.run();
    for (int run = 0; run < result.repeat; ++run) samples.push_back(milliseconds_of(model));
    result.ours_ms.push_back(median(samples));
    result.theirs_ms.push_back(median(peer.time_round(result.repeat)));
    // Its threads go on polling for a moment; the next round is ours.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  result.ours_median_ms = median(result.ours_ms);
  result.theirs_median_ms = median(result.theirs_ms);
  return result;
}

nlohmann::json against_json(const AgainstResult& result, const Model& model) {
  nlohmann::json outputs = nlohmann::json::array();
  for (size_t i = 0; i < result.comparisons.size(); ++i)
    outputs.push_back({{"name", model.outputs()[i].name}, {"comparison", result.comparisons[i]}});
  return {{"peer", result.peer},
          {"version", result.version},
          {"rounds", result.ours_ms.size()},
          {"repeats", result.repeat},
          {"tessera_ms", result.ours_median_ms},
          {"peer_ms", result.theirs_median_ms},
          {"tessera_rounds_ms", result.ours_ms},
          {"peer_rounds_ms", result.theirs_ms},
          {"ratio", result.ours_median_ms / result.theirs_median_ms},
          {"agrees", result.agrees},
          {"outputs", std::move(outputs)}};
}

std::string against_text(const AgainstResult& result, const Model& model) {
  std::string text = fmt::format("{} {}: {:.3f} ms, tessera {:.3f} ms: ratio {:.2f} ({} rounds of {} runs, in turn)\n",
                                 result.peer, result.version, result.theirs_median_ms, result.ours_median_ms,
                                 result.ours_median_ms / result.theirs_median_ms, result.ours_ms.size(), result.repeat);
  for (size_t i = 0; i < result.comparisons.size(); ++i)
    text += fmt::format("output '{}': {}\n", model.outputs()[i].name, result.comparisons[i]);
  if (!result.agrees) text += "OUTPUTS DIFFER\n";
  return text;
}

}  // namespace tessera
