// The sizes of a language model, out of its metadata, held against each other.
#pragma once

#include <cstdint>
#include <optional>

#include "import/gguf/architecture.h"
#include "import/gguf/gguf_file.h"

namespace tessera::inline gguf {

struct Hyperparameters {
  const LanguageArchitecture* architecture = nullptr;
  int64_t layers = 0, features = 0, vocabulary = 0, context = 0;
  int64_t heads = 0, key_heads = 0, depth = 0, value_depth = 0;  // of attention
  int64_t turned = 0;                                            // features of a head that rotary positions turn
  double rotary_base = 10000, rotary_scale = 1;                  // positions are divided by the scale
  double epsilon = 1e-5;
  std::optional<int64_t> window;
};

// UserError TSR-1072 for an architecture that is not read, TSR-1073 where the metadata lack something or contradict
// each other.
Hyperparameters hyperparameters_of(const GgufFile& file);

}  // namespace tessera::inline gguf
