// A GGUF file taken apart: metadata and the places of tensors. Everything is borrowed from the file's bytes, and every
// length, count and offset was held against them before it is here; nothing is allocated by a number that the file
// says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "import/gguf/blocks.h"
#include "support/error.h"

namespace tessera::inline gguf {

enum class GgufKind : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// An array of numbers or strings, as it lies in the file.
struct GgufArray {
  GgufKind kind = GgufKind::kU8;
  uint64_t count = 0;
  std::string_view bytes;  // of all elements; strings with their lengths
};

using GgufValue = std::variant<int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<int64_t> dims;  // the slowest first: a matrix [outputs, inputs]
  const std::byte* data = nullptr;

  int64_t num_elements() const;
};

class GgufFile {
 public:
  // Borrows `bytes`. UserError TSR-1070 where the file is broken or of a version that is not read, TSR-1071 for a
  // tensor of a type that is not. `place` is for messages.
  GgufFile(std::string_view bytes, const std::string& place);

  const std::string& place() const { return place_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  const GgufValue* find(std::string_view key) const;

 private:
  std::string place_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

bool looks_like_gguf(std::string_view beginning);

// The elements of an array; numbers of any kind as doubles.
std::vector<std::string_view> strings_of(const GgufArray& array);
std::vector<double> numbers_of(const GgufArray& array);

}  // namespace tessera::inline gguf
