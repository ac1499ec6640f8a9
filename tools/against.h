// A compiled model beside other engines, in alternating rounds, so that what else the machine does falls on all of
// them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "driver/engine/model.h"
#include "peer_process.h"

namespace tessera {

struct AgainstOptions {
  std::string model_path;  // ONNX
  int repeat = 0;  // runs a round; 0: as many as take about a fifth of a second, for each engine by its own speed
  int rounds = 5;
  double tolerance = 0;  // of our outputs, where that is wider than the peer's: what our own precision asks for
  std::optional<double> asked_tolerance = {};  // replaces that and the peers'
  // The outputs as the interpreter has them, for saying who is nearer to them when outputs differ; may be null, and may
  // give nothing.
  std::function<std::vector<Tensor>()> reference = {};
  double limit_seconds = 120;  // for a peer to be ready, and for each of its rounds; 0: none
  std::function<void(std::string_view what)> on_step = {};
};

// One engine, ours among them.
struct AgainstTimes {
  int repeat = 0;                 // runs a round
  std::vector<double> rounds_ms;  // the median of each round
  double median_ms = 0;           // of those
  double min_ms = 0;              // of all runs
};

struct AgainstPeer {
  const PeerKind* kind = nullptr;
  std::string reason;  // why it could not be measured; the rest is empty then
  std::string version;
  PeerProcess::Costs costs;
  AgainstTimes times;
  bool agrees = true;
  std::vector<std::string> comparisons;  // of each output
  std::string nearer;                    // where they differ: who is nearer to the interpreter, in words
};

struct AgainstResult {
  AgainstTimes ours;
  std::vector<AgainstPeer> peers;
  bool agrees() const;  // with every peer that was measured
};

// The engines that a list separated by commas names. UserError TSR-4045 for one that does not exist or stands there
// twice.
std::vector<const PeerKind*> parse_peers(std::string_view list);

// Compares the outputs (max|d| <= 1e-6 + 1e-4 max|ref|, or the wider bound of either side; integers exactly), then
// times. An
// engine that takes more than two seconds for a run gets one run in each of two rounds, without a warm-up. REQUIRES:
// `model` is bound to `inputs`. PeerError when no engine can be used.
AgainstResult run_against(Model& model, const std::vector<Tensor>& inputs, const std::vector<const PeerKind*>& kinds,
                          const AgainstOptions& options);

nlohmann::json against_json(const AgainstResult& result, const Model& model);
std::string against_text(const AgainstResult& result, const Model& model);

}  // namespace tessera
