// Saving a float tensor in numpy's .npy format, so that another program can be given the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace example {

// Throws std::runtime_error when the file cannot be written. `values` are in row-major order.
void save_npy(const std::string& path, std::span<const float> values, std::span<const std::int64_t> dims);

}  // namespace example
