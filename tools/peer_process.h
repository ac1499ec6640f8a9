// Another engine as a process beside us, for comparing answers and times: `bench --against`, `diff --against`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/error.h"
#include "types/tensor.h"

namespace tessera {

// An engine that has a Python package and an adapter in tools/peers.
struct PeerKind {
  std::string_view name;      // on the command line
  std::string_view label;     // in messages
  std::string_view packages;  // "onnxruntime and numpy"
  std::string_view install;   // for pip
  std::string_view adapter;   // Python
  double tolerance = 1e-4;    // of its outputs, relative to the largest magnitude
};

const std::vector<PeerKind>& peer_kinds();
// UserError TSR-4045 for an unknown name.
const PeerKind& find_peer_kind(std::string_view name);
// "onnxruntime, openvino, ..."
std::string peer_names();

// TSR-4044: Python or a package is missing, the engine refuses the model, gives something else, or takes too long.
class PeerError : public UserError {
 public:
  PeerError(const PeerKind& kind, std::string reason);
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// A Python process (`python3`, or what TESSERA_PYTHON names) with the engine. It ends, with all that it started, and
// its temporary folder goes away, with this object or when this process dies.
// Thread safety: one thread at a time per object.
class PeerProcess {
 public:
  struct Options {
    int threads = 1;
    double limit_seconds = 0;  // for each answer; 0: none
  };
  // What getting ready took: importing packages, compiling the model, the first run.
  struct Costs {
    double import_seconds = 0;
    double open_seconds = 0;
    double first_ms = 0;     // the first run
    double run_ms = 0;       // a later one; of slow engines the first
    int64_t peak_bytes = 0;  // resident, after the first run
  };

  // Opens the ONNX model and runs it once on `inputs`; `output_types` are the model's. PeerError.
  PeerProcess(const PeerKind& kind, const std::string& model_path, const std::vector<std::string>& input_names,
              const std::vector<Tensor>& inputs, const std::vector<DType>& output_types, const Options& options);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const PeerKind& kind() const { return kind_; }
  const std::string& version() const { return version_; }
  // Of the run in the constructor, in the model's order.
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const Costs& costs() const { return costs_; }
  // Milliseconds of `repeat` runs, after `warm_up` others. PeerError when it ends or takes too long.
  std::vector<double> time_round(int warm_up, int repeat);

 private:
  std::string ask(const std::string& line);  // one line there, one line back
  void start(const std::string& model_path);
  void stop() noexcept;

  const PeerKind& kind_;
  Options options_;
  std::string version_;
  std::vector<Tensor> outputs_;
  Costs costs_;
  int to_ = -1, from_ = -1;
  int process_ = -1;
  std::string unread_;
};

}  // namespace tessera
