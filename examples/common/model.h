// A compiled model with f32 and i32 inputs and outputs of fixed shapes: the C API of tessera.h with C++ lifetimes.
#pragma once

#include "tessera/tessera.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
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

  // The memory of an input, to be filled before run(); of an output, valid until the next run(). T is float or
  // std::int32_t, whichever the model has there.
  template <typename T = float>
  std::span<T> input(int index) {
    Values& values = input_values_.at(index);
    return {static_cast<T*>(data_of(inputs_.at(index), values, dtype_of<T>())), values.count};
  }
  template <typename T = float>
  std::span<const T> output(int index) {
    Values& values = output_values_.at(index);
    return {static_cast<const T*>(data_of(outputs_.at(index), values, dtype_of<T>())), values.count};
  }

  void run();

 private:
  struct Values {
    std::vector<std::byte> bytes;
    std::size_t count = 0;
  };

  template <typename T>
  static constexpr tessera_dtype dtype_of() {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, std::int32_t>);
    return std::is_same_v<T, float> ? TESSERA_F32 : TESSERA_I32;
  }
  static std::vector<std::int64_t> dims_of(const tessera_tensor_info& info);
  static void* data_of(const tessera_tensor_info& info, Values& values, tessera_dtype wanted);
  static tessera_tensor bind(const tessera_tensor_info& info, Values& values);

  std::unique_ptr<tessera_module, decltype(&tessera_module_free)> module_;
  std::unique_ptr<tessera_session, decltype(&tessera_session_free)> session_;
  std::vector<tessera_tensor_info> inputs_, outputs_;
  std::vector<Values> input_values_, output_values_;
  std::vector<tessera_tensor> input_tensors_, output_tensors_;  // point into the values above
};

}  // namespace example
