// Limits of what a model may ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::inline import_common {

// No tensor of a model may have more elements: no machine could hold it, and sizes in bits still fit an int64.
constexpr int64_t kMaxTensorElements = int64_t{1} << 40;

// Nor more dimensions.
constexpr size_t kMostDims = 64;

// The product of `dims`; empty when one is negative or the product exceeds kMaxTensorElements.
std::optional<int64_t> checked_num_elements(const std::vector<int64_t>& dims);

}  // namespace tessera::inline import_common
