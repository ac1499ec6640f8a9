#include "against.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "diagnose/compare.h"
#include "support/error.h"

namespace tessera {

namespace {

constexpr double kRoundMs = 200, kLongRunMs = 500, kSlowRunMs = 2000;
constexpr int kWarmUp = 2, kSlowRounds = 2;
// Probabilities near 0 are nothing but rounding: what is below this says nothing about either side.
constexpr double kFloor = 1e-6;

// The median of `samples`, which is added as a round.
void add_round(AgainstTimes& times, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  times.min_ms = times.rounds_ms.empty() ? samples.front() : std::min(times.min_ms, samples.front());
  const size_t middle = samples.size() / 2;
  times.rounds_ms.push_back(samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2);
}

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

int runs_a_round(double run_ms, int repeat) {
  if (run_ms > kSlowRunMs) return 1;
  if (repeat > 0) return repeat;
  return std::clamp(static_cast<int>(kRoundMs / std::max(run_ms, 1e-3)), run_ms > kLongRunMs ? 1 : 3, 1000);
}

void compare_outputs(const Model& model, const PeerProcess& process, double tolerance, AgainstPeer& peer) {
  for (size_t i = 0; i < model.results().size(); ++i) {
    const Comparison comparison =
        compare(model.results()[i], process.outputs()[i], {.rtol = 0, .atol = kFloor, .mtol = tolerance});
    peer.agrees = peer.agrees && comparison.agrees;
    peer.comparisons.push_back(comparison.text);
  }
}

// The largest difference of any element of any output, relative to the output's largest magnitude; infinite where a
// shape or dtype is another.
double distance(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (i >= got.size() || got[i].dims() != want[i].dims() || got[i].dtype() != want[i].dtype()) return HUGE_VAL;
    if (want[i].dtype() == DType::kString) continue;
    double largest = 0, difference = 0;
    for (int64_t k = 0; k < want[i].num_elements(); ++k) {
      largest = std::max(largest, std::abs(want[i].get_double(k)));
      difference = std::max(difference, std::abs(got[i].get_double(k) - want[i].get_double(k)));
    }
    worst = std::max(worst, largest > 0 ? difference / largest : difference);
  }
  return worst;
}

std::string nearer_text(const std::vector<Tensor>& ours, const std::vector<Tensor>& theirs,
                        const std::vector<Tensor>& reference, std::string_view peer) {
  if (reference.empty()) return "";
  const double our_distance = distance(ours, reference), their_distance = distance(theirs, reference);
  return fmt::format("{} is nearer to the interpreter: {:.2g} off, {} {:.2g} (of the largest magnitude)",
                     our_distance <= their_distance ? std::string_view("tessera") : peer,
                     std::min(our_distance, their_distance), our_distance <= their_distance ? peer : "tessera",
                     std::max(our_distance, their_distance));
}

double speedup(const AgainstResult& result, const AgainstPeer& peer) {
  return peer.times.median_ms / result.ours.median_ms;
}

}  // namespace

bool AgainstResult::agrees() const {
  return std::all_of(peers.begin(), peers.end(), [](const AgainstPeer& peer) { return peer.agrees; });
}

std::vector<const PeerKind*> parse_peers(std::string_view list) {
  std::vector<const PeerKind*> kinds;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const PeerKind* kind = &find_peer_kind(list.substr(begin, end - begin));
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) {
      throw UserError({.id = "TSR-4045",
                       .message = fmt::format("--against names '{}' twice", kind->name),
                       .node = {},
                       .legal = "each engine once",
                       .hint = {}});
    }
    kinds.push_back(kind);
    begin = end + 1;
  }
  return kinds;
}

AgainstResult run_against(Model& model, const std::vector<Tensor>& inputs, const std::vector<const PeerKind*>& kinds,
                          const AgainstOptions& options) {
  std::vector<std::string> names;
  for (const TensorInfo& input : model.inputs()) names.push_back(input.name);
  std::vector<DType> types;
  for (const TensorInfo& output : model.outputs()) types.push_back(output.dtype);
  const auto step = [&](const std::string& what) {
    if (options.on_step) options.on_step(what);
  };

  AgainstResult result;
  model.run();
  const double our_run_ms = milliseconds_of(model);
  std::vector<std::unique_ptr<PeerProcess>> processes;
  std::vector<Tensor> reference;
  // Its reason becomes a row, unless there would be no other row.
  const auto fail = [&](size_t i, const PeerError& error) {
    result.peers[i].reason = error.reason();
    processes[i].reset();
    if (std::all_of(result.peers.begin(), result.peers.end(), [](const auto& peer) { return !peer.reason.empty(); }) &&
        result.peers.size() == kinds.size())
      throw PeerError(error);
  };
  for (size_t i = 0; i < kinds.size(); ++i) {
    step(fmt::format("starting {}", kinds[i]->name));
    AgainstPeer& peer = result.peers.emplace_back();
    peer.kind = kinds[i];
    processes.emplace_back();
    try {
      processes[i] = std::make_unique<PeerProcess>(
          *kinds[i], options.model_path, names, inputs, types,
          PeerProcess::Options{.threads = model.num_threads(), .limit_seconds = options.limit_seconds});
      peer.version = processes[i]->version();
      peer.costs = processes[i]->costs();
      peer.times.repeat = runs_a_round(peer.costs.run_ms, options.repeat);
      compare_outputs(model, *processes[i],
                      options.asked_tolerance.value_or(std::max(kinds[i]->tolerance, options.tolerance)), peer);
      if (!peer.agrees && options.reference) {
        step("asking the interpreter");
        if (reference.empty()) reference = options.reference();
        peer.nearer = nearer_text(model.results(), processes[i]->outputs(), reference, kinds[i]->name);
      }
    } catch (const PeerError& error) {
      fail(i, error);
    }
  }
  result.ours.repeat = options.repeat > 0 ? options.repeat : runs_a_round(our_run_ms, 0);
  for (int round = 0; round < options.rounds; ++round) {
    step(fmt::format("round {} of {}: tessera", round + 1, options.rounds));
    std::vector<double> samples;
    model.run();
    for (int run = 0; run < result.ours.repeat; ++run) samples.push_back(milliseconds_of(model));
    add_round(result.ours, samples);
    for (size_t i = 0; i < kinds.size(); ++i) {
      AgainstPeer& peer = result.peers[i];
      const bool slow = peer.costs.run_ms > kSlowRunMs;
      if (!processes[i] || (slow && round >= kSlowRounds)) continue;
      step(fmt::format("round {} of {}: {}", round + 1, options.rounds, kinds[i]->name));
      try {
        const int warm_up = slow ? 0 : peer.costs.run_ms > kRoundMs ? 1 : kWarmUp;
        add_round(peer.times, processes[i]->time_round(warm_up, peer.times.repeat));
      } catch (const PeerError& error) {
        fail(i, error);
      }
      // Its threads go on polling for a moment; what follows is not to share the machine with them.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  result.ours.median_ms = median(result.ours.rounds_ms);
  for (AgainstPeer& peer : result.peers) {
    if (peer.reason.empty()) peer.times.median_ms = median(peer.times.rounds_ms);
    if (!peer.reason.empty()) peer.agrees = true;  // it has no say
  }
  return result;
}

nlohmann::json against_json(const AgainstResult& result, const Model& model) {
  nlohmann::json peers = nlohmann::json::array();
  for (const AgainstPeer& peer : result.peers) {
    nlohmann::json json = {{"peer", peer.kind->name}};
    if (!peer.reason.empty()) {
      json["reason"] = peer.reason;
      peers.push_back(std::move(json));
      continue;
    }
    nlohmann::json outputs = nlohmann::json::array();
    for (size_t i = 0; i < peer.comparisons.size(); ++i)
      outputs.push_back({{"name", model.outputs()[i].name}, {"comparison", peer.comparisons[i]}});
    json.update({{"version", peer.version},
                 {"repeats", peer.times.repeat},
                 {"peer_ms", peer.times.median_ms},
                 {"peer_min_ms", peer.times.min_ms},
                 {"peer_rounds_ms", peer.times.rounds_ms},
                 {"speedup", speedup(result, peer)},
                 {"ratio", 1 / speedup(result, peer)},
                 {"import_s", peer.costs.import_seconds},
                 {"open_s", peer.costs.open_seconds},
                 {"first_ms", peer.costs.first_ms},
                 {"peak_bytes", peer.costs.peak_bytes},
                 {"agrees", peer.agrees},
                 {"outputs", std::move(outputs)}});
    if (!peer.nearer.empty()) json["nearer"] = peer.nearer;
    peers.push_back(std::move(json));
  }
  nlohmann::json json = {{"rounds", result.ours.rounds_ms.size()},     {"repeats", result.ours.repeat},
                         {"tessera_ms", result.ours.median_ms},        {"tessera_min_ms", result.ours.min_ms},
                         {"tessera_rounds_ms", result.ours.rounds_ms}, {"agrees", result.agrees()}};
  if (result.peers.size() == 1) json.update(peers[0]);
  else json["peers"] = std::move(peers);
  return json;
}

std::string against_text(const AgainstResult& result, const Model& model) {
  std::string text;
  if (result.peers.size() == 1) {
    const AgainstPeer& peer = result.peers[0];
    text = fmt::format("tessera {:.3f} ms, {} {} {:.3f} ms: {:.2f} times as fast ({} rounds of {} runs, in turn)\n",
                       result.ours.median_ms, peer.kind->name, peer.version, peer.times.median_ms,
                       speedup(result, peer), peer.times.rounds_ms.size(), peer.times.repeat);
  } else {
    const auto row = [](std::string_view name, const AgainstTimes& times, double times_as_fast,
                        std::string_view version) {
      return fmt::format("{:<14} {:>10.3f} {:>10.3f} {:>12.2f}  {}\n", name, times.median_ms, times.min_ms,
                         times_as_fast, version);
    };
    text = fmt::format("{:<14} {:>10} {:>10} {:>12}  version ({} rounds, in turn)\n", "engine", "median ms", "min ms",
                       "theirs/ours", result.ours.rounds_ms.size());
    text += row("tessera", result.ours, 1, "");
    while (text.ends_with(" \n")) text.erase(text.size() - 2, 1);
    const AgainstPeer* fastest = nullptr;
    std::string differing;
    for (const AgainstPeer& peer : result.peers) {
      text += peer.reason.empty() ? row(peer.kind->name, peer.times, speedup(result, peer), peer.version)
                                  : fmt::format("{:<14} not measured: {}\n", peer.kind->name, peer.reason);
      if (!peer.reason.empty()) continue;
      if (!peer.agrees)
        differing += fmt::format("; {}, whose outputs differ: {:.2f}", peer.kind->name, speedup(result, peer));
      else if (!fastest || peer.times.median_ms < fastest->times.median_ms) fastest = &peer;
    }
    if (fastest)
      text += fmt::format("tessera is {:.2f} times as fast as the fastest of them, {}{}\n", speedup(result, *fastest),
                          fastest->kind->name, differing);
  }
  for (const AgainstPeer& peer : result.peers) {
    const std::string who = result.peers.size() == 1 ? "" : std::string(peer.kind->name) + ", ";
    for (size_t i = 0; i < peer.comparisons.size() && peer.reason.empty(); ++i)
      text += fmt::format("{}output '{}': {}\n", who, model.outputs()[i].name, peer.comparisons[i]);
    if (!peer.nearer.empty()) text += peer.nearer + "\n";
    if (!peer.agrees)
      text +=
          result.peers.size() == 1 ? "OUTPUTS DIFFER\n" : fmt::format("OUTPUTS DIFFER from {}'s\n", peer.kind->name);
  }
  return text;
}

}  // namespace tessera
