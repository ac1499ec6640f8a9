// Tensors of which a file has only the elements that are not zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model_generated.h"

namespace tessera::inline tflite_import {

// Where each of the stored elements stands in the dense tensor, in their order; empty when the description contradicts
// itself, or describes another number of elements than `stored`.
std::optional<std::vector<int64_t>> sparse_places(const tflite::SparsityParameters& sparsity,
                                                  const std::vector<int64_t>& dims, int64_t stored);

}  // namespace tessera::inline tflite_import
