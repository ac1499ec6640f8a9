// The sizes that a module leaves open, chosen for one run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "driver/engine/model.h"
#include "tessera/compiler.h"

namespace tessera {

class OpenSizes {
 public:
  OpenSizes(std::vector<TensorInfo> inputs, std::vector<OpenDim> dims);

  // As --dim and --shape say. With `strict` UserError TSR-4061 for sizes that the module does not have, for ranges (a
  // run has one size), and for shapes that are fixed otherwise; without, what does not fit was for the compile.
  void follow(const CompileOptions& sizes, bool strict);
  // As the tensor for input number `input` has them, where nothing has chosen them before.
  void take(size_t input, const std::optional<std::vector<int64_t>>& shape);

  // The inputs with the sizes that are chosen; others stay open.
  const std::vector<TensorInfo>& infos() const { return infos_; }

 private:
  void choose(size_t symbol, int64_t size);

  std::vector<TensorInfo> declared_, infos_;
  std::vector<OpenDim> dims_;
  std::vector<std::optional<int64_t>> sizes_;  // of dims_
};

}  // namespace tessera
