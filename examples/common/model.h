// A compiled model with float inputs and outputs of fixed shapes: the C API of tessera.h with C++ lifetimes.
#pragma once

#include "tessera/tessera.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace example {

// Used by one thread at a time. Every function throws std::runtime_error with the runtime's own message.
class Model {
 public:
  // `num_threads` 0: as many as the runtime finds fit.
  Model(const std::string& path, int num_threads);

  int num_threads() const;
  std::string input_name(int index) const { return inputs_.at(index).name; }
  std::vector<std::int64_t> input_dims(int index) const { return dims_of(inputs_.at(index)); }
  std::vector<std::int64_t> output_dims(int index) const { return dims_of(outputs_.at(index)); }

  // The memory of an input, to be filled before run(); of an output, valid until the next run().
  std::span<float> input(int index) { return input_values_.at(index); }
  std::span<const float> output(int index) const { return output_values_.at(index); }

  void run();

 private:
  static std::vector<std::int64_t> dims_of(const tessera_tensor_info& info);
  static tessera_tensor bind(const tessera_tensor_info& info, std::vector<float>& values);

  std::unique_ptr<tessera_module, decltype(&tessera_module_free)> module_;
  std::unique_ptr<tessera_session, decltype(&tessera_session_free)> session_;
  std::vector<tessera_tensor_info> inputs_, outputs_;
  std::vector<std::vector<float>> input_values_, output_values_;
  std::vector<tessera_tensor> input_tensors_, output_tensors_;  // point into the values above
};

}  // namespace example
