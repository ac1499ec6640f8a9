// The element types of GGUF tensors. Quantised ones are blocks: some elements of a row with the scale that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::inline gguf {

// The numbers are the format's.
enum class BlockType : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

std::optional<BlockType> block_type(uint32_t number);  // empty for types that are not read
std::string gguf_type_name(uint32_t number);           // of all that the format has; the number of others

int64_t block_elements(BlockType type);  // 1 for floats
size_t block_bytes(BlockType type);
std::string_view block_format(BlockType type);  // the `format` of dequantize_blocks; empty for F32

// `count` elements as floats, exactly as the format defines them: products and sums rounded to f32 one by one.
// REQUIRES: whole blocks.
void dequantize(BlockType type, const std::byte* blocks, int64_t count, float* out);

}  // namespace tessera::inline gguf
