// ONNX Runtime as a process beside us, for comparing answers and times: `bench --against onnxruntime`.
#pragma once

#include <string>
#include <vector>

#include "types/tensor.h"

namespace tessera {

// A Python process (`python3`, or what TESSERA_PYTHON names) with ONNX Runtime's Python package. It ends, and its
// temporary folder goes away, with this object or when this process dies.
class OnnxRuntimePeer {
 public:
  // Loads the model and runs it once on `inputs`. UserError TSR-4044 when Python or its package is missing, or ONNX
  // Runtime refuses the model.
  OnnxRuntimePeer(const std::string& model_path, const std::vector<std::string>& input_names,
                  const std::vector<Tensor>& inputs, int threads);
  ~OnnxRuntimePeer();
  OnnxRuntimePeer(const OnnxRuntimePeer&) = delete;
  OnnxRuntimePeer& operator=(const OnnxRuntimePeer&) = delete;

  const std::string& version() const { return version_; }
  // Of the run in the constructor, in the model's order.
  const std::vector<Tensor>& outputs() const { return outputs_; }
  // Milliseconds of `repeat` runs, after two that only warm up.
  std::vector<double> time_round(int repeat);

 private:
  std::string ask(const std::string& line);  // one line there, one line back
  void start(const std::string& model_path, int threads);
  void stop() noexcept;

  std::string folder_;  // for tensors
  std::string version_;
  std::vector<Tensor> outputs_;
  int to_ = -1, from_ = -1;
  int process_ = -1;
  std::string unread_;
};

}  // namespace tessera
