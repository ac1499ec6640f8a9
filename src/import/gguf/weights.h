// The tensors of a model as constants of a graph.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "import/gguf/gguf_file.h"
#include "types/tensor.h"

namespace tessera::inline gguf {

// A matrix as a graph keeps it: floats, or rows of blocks as they lie in the file.
struct Matrix {
  Tensor rows;         // f32[rows, columns] or u8[rows, bytes]
  std::string format;  // of dequantize_blocks; empty for floats
};

class Weights {
 public:
  // `owner` keeps the file's bytes alive.
  Weights(const GgufFile& file, std::shared_ptr<const void> owner) : file_(file), owner_(std::move(owner)) {}

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  int64_t columns(std::string_view name) const;  // of a matrix; 0 when there is none of the name
  // As floats. Those that are floats in the file are borrowed from it. UserError TSR-1074 when the tensor is missing or
  // has another shape.
  Tensor get(std::string_view name, const std::vector<int64_t>& dims);
  // Rows first .. first + count of a matrix of `rows` rows, or of such elements of a vector (columns = 0), as floats.
  Tensor rows(std::string_view name, int64_t rows, int64_t first, int64_t count, int64_t columns);
  // The same of a matrix in the file's own element type.
  Matrix matrix(std::string_view name, int64_t rows, int64_t first, int64_t count, int64_t columns) const;

 private:
  const GgufTensor& require(std::string_view name, const std::vector<int64_t>& dims) const;

  const GgufFile& file_;
  std::shared_ptr<const void> owner_;
  std::mutex mutex_;
  std::map<std::string, Tensor, std::less<>> known_;  // what was dequantised before
};

}  // namespace tessera::inline gguf
