// Object files compiled with this test.
#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

inline std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline std::vector<std::byte> scale_kernel() { return read_bytes(SCALE_KERNEL_OBJECT); }
inline std::vector<std::byte> undefined_symbol() { return read_bytes(UNDEFINED_SYMBOL_OBJECT); }
