// What an ONNX file declares at its border, read without its weights: inputs, outputs, and the files beside it. For
// whoever asks before importing; a file of hundreds of megabytes takes about a millisecond.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "types/dtype.h"

namespace tessera::inline onnx_import {

// A dimension as the model states it.
struct DeclaredDim {
  int64_t value = -1;  // < 0: open
  std::string name;    // of an open one; may be empty
};

struct DeclaredTensor {
  std::string name;
  std::optional<DType> dtype;  // none: no tensor, or of a type that we do not have
  bool has_rank = false;
  std::vector<DeclaredDim> dims;

  // How --dim and the symbols of a module call the dimension: by its name, or "x[0]" where it has none.
  std::string dim_name(size_t axis) const;
  // "f32[batch,3,?,?]"; "f32[...]" without a rank.
  std::string type_text() const;
};

struct ModelDeclarations {
  std::vector<DeclaredTensor> inputs;  // those that a caller provides: without the ones that have an initializer
  std::vector<DeclaredTensor> outputs;
  std::vector<std::string> external_files;  // of initializers, as the model writes them: relative to its folder
};

// None when `bytes` are not a serialised ONNX model; saying why is the importer's business.
std::optional<ModelDeclarations> read_declarations(std::string_view bytes);

}  // namespace tessera::inline onnx_import
