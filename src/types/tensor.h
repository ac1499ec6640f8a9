// A tensor in host memory: what constants hold and what the interpreters compute on. Row-major, dense.
// The bytes are shared and immutable once shared; a Tensor may also point into memory kept alive by `owner`
// (a mapped model file), so weights are not copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "types/dtype.h"

namespace tessera::inline types {

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled.
  Tensor(DType dtype, std::vector<int64_t> dims);
  // Borrows `data`, which `owner` keeps alive.
  Tensor(DType dtype, std::vector<int64_t> dims, std::shared_ptr<const void> owner, const void* data);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t num_elements() const;
  int64_t num_bytes() const { return dtype_bytes(dtype_, num_elements()); }
  const std::byte* bytes() const { return data_; }
  // REQUIRES: made by the zero-filling constructor and not shared with another Tensor.
  std::byte* mutable_bytes() { return mutable_data_; }

  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), static_cast<size_t>(num_bytes()) / sizeof(T)};
  }
  template <typename T>
  std::span<T> as_mutable() {
    return {reinterpret_cast<T*>(mutable_data_), static_cast<size_t>(num_bytes()) / sizeof(T)};
  }

  // Element `index` (row-major) converted to double or int64, and back with rounding to the element type (floats:
  // nearest even; integers: wrap modulo 2^bits, after a double beyond the range of int64, or uint64 for a u64, became
  // the range's end and NaN 0). Every dtype but string.
  double get_double(int64_t index) const;
  int64_t get_int(int64_t index) const;
  void set_double(int64_t index, double value);
  void set_int(int64_t index, int64_t value);

  // A tensor whose elements were left out of a text (`elided<...>`): it has a type and the hash of its contents, but
  // nothing to read. Whoever reads elements of a tensor that may come from a text checks has_data() first.
  static Tensor without_data(DType dtype, std::vector<int64_t> dims, uint64_t content_hash);
  bool has_data() const { return data_ != nullptr; }
  // Of dtype, dims and elements; the same on every machine.
  uint64_t content_hash() const;

  // A tensor of dtype string, which has no bytes; one text for each element, row-major.
  static Tensor of_strings(std::vector<std::string> texts, std::vector<int64_t> dims);
  const std::vector<std::string>& strings() const;  // none when it has another dtype

  // The same elements, shared, with other dimensions. REQUIRES: as many elements.
  Tensor with_dims(std::vector<int64_t> dims) const;

  static Tensor scalar_f32(float value);
  static Tensor from_ints(std::vector<int64_t> values);  // i64[n]

 private:
  DType dtype_ = DType::kF32;
  std::vector<int64_t> dims_;
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  std::byte* mutable_data_ = nullptr;
  uint64_t elided_hash_ = 0;  // of the contents, when data_ is null
  std::shared_ptr<const std::vector<std::string>> strings_;
};

using TensorPtr = std::shared_ptr<const Tensor>;

// Rounding conversions between double and the small float formats, bit pattern in the low bits.
uint32_t encode_float(DType dtype, double value);
double decode_float(DType dtype, uint32_t bits);

}  // namespace tessera::inline types
