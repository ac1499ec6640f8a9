#include "import/gguf/blocks.h"

#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "types/tensor.h"

namespace tessera::inline gguf {
namespace {

constexpr int64_t kBlock = 32, kSuperblock = 256;

const uint8_t* bytes_at(const std::byte* at) { return reinterpret_cast<const uint8_t*>(at); }

float half_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return static_cast<float>(decode_float(DType::kF16, bits));
}

uint32_t word_at(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Element i of a block of 32 nibbles: the low halves of 16 bytes, then their high ones.
int nibble(const uint8_t* nibbles, int64_t i) {
  return i < kBlock / 2 ? nibbles[i] & 15 : nibbles[i - kBlock / 2] >> 4;
}

void block_q4_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int64_t i = 0; i < kBlock; ++i) out[i] = d * static_cast<float>(nibble(b + 2, i) - 8);
}

void block_q4_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int64_t i = 0; i < kBlock; ++i) {
    const float product = d * static_cast<float>(nibble(b + 4, i));
    out[i] = product + m;
  }
}

int five_bits(const uint8_t* nibbles, uint32_t high, int64_t i) {
  return nibble(nibbles, i) | static_cast<int>((high >> i) & 1) << 4;
}

void block_q5_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  const uint32_t high = word_at(b + 2);
  for (int64_t i = 0; i < kBlock; ++i) out[i] = d * static_cast<float>(five_bits(b + 6, high, i) - 16);
}

void block_q5_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = word_at(b + 4);
  for (int64_t i = 0; i < kBlock; ++i) {
    const float product = d * static_cast<float>(five_bits(b + 8, high, i));
    out[i] = product + m;
  }
}

void block_q8_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int64_t i = 0; i < kBlock; ++i) out[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * d;
}

// The factors of sub-block i, of which a superblock has 8, each in 6 bits: of the elements, and of what is taken away.
std::array<int, 2> six_bit_scales(const uint8_t* scales, int64_t i) {
  if (i < 4) return {scales[i] & 63, scales[i + 4] & 63};
  return {(scales[i + 4] & 15) | (scales[i - 4] >> 6) << 4, (scales[i + 4] >> 4) | (scales[i] >> 6) << 4};
}

// Q4_K; with `high`, the fifth bits, Q5_K.
void block_q45_k(const uint8_t* b, const uint8_t* high, const uint8_t* nibbles, float* out) {
  const float d = half_at(b), least = half_at(b + 2);
  for (int64_t i = 0; i < 8; ++i) {
    const auto [scale, min] = six_bit_scales(b + 4, i);
    const float factor = d * static_cast<float>(scale), below = least * static_cast<float>(min);
    for (int64_t j = 0; j < kBlock; ++j) {
      const uint8_t pair = nibbles[i / 2 * kBlock + j];
      int q = i % 2 == 0 ? pair & 15 : pair >> 4;
      if (high) q |= ((high[j] >> i) & 1) << 4;
      const float product = factor * static_cast<float>(q);
      out[i * kBlock + j] = product - below;
    }
  }
}

void block_q4_k(const uint8_t* b, float* out) { block_q45_k(b, nullptr, b + 16, out); }
void block_q5_k(const uint8_t* b, float* out) { block_q45_k(b, b + 16, b + 48, out); }

void block_q6_k(const uint8_t* b, float* out) {
  const uint8_t *low = b, *high = b + 128, *scales = b + 192;
  const float d = half_at(b + 208);
  for (int64_t i = 0; i < kSuperblock; ++i) {
    const int64_t half = i / 128, quarter = i % 128 / 32, j = i % 32;
    const uint8_t pair = low[half * 64 + quarter % 2 * 32 + j];
    const int nibble = quarter < 2 ? pair & 15 : pair >> 4;
    const int q = (nibble | ((high[half * 32 + j] >> (2 * quarter)) & 3) << 4) - 32;
    const float factor = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = factor * static_cast<float>(q);
  }
}

void one_f32(const uint8_t* b, float* out) { std::memcpy(out, b, sizeof *out); }
void one_f16(const uint8_t* b, float* out) { *out = half_at(b); }
void one_bf16(const uint8_t* b, float* out) {
  *out = std::bit_cast<float>(static_cast<uint32_t>(b[0]) << 16 | static_cast<uint32_t>(b[1]) << 24);
}

struct Row {
  BlockType type;
  int64_t elements;
  size_t bytes;
  std::string_view format;
  void (*decode)(const uint8_t* block, float* out);
};

constexpr std::array kRows = {
    Row{BlockType::kF32, 1, 4, "", one_f32},
    Row{BlockType::kF16, 1, 2, "f16", one_f16},
    Row{BlockType::kBF16, 1, 2, "bf16", one_bf16},
    Row{BlockType::kQ4_0, kBlock, 18, "q4_0", block_q4_0},
    Row{BlockType::kQ4_1, kBlock, 20, "q4_1", block_q4_1},
    Row{BlockType::kQ5_0, kBlock, 22, "q5_0", block_q5_0},
    Row{BlockType::kQ5_1, kBlock, 24, "q5_1", block_q5_1},
    Row{BlockType::kQ8_0, kBlock, 34, "q8_0", block_q8_0},
    Row{BlockType::kQ4_K, kSuperblock, 144, "q4_k", block_q4_k},
    Row{BlockType::kQ5_K, kSuperblock, 176, "q5_k", block_q5_k},
    Row{BlockType::kQ6_K, kSuperblock, 210, "q6_k", block_q6_k},
};

const Row& row_of(BlockType type) {
  for (const Row& row : kRows)
    if (row.type == type) return row;
  return kRows[0];
}

constexpr std::array<std::string_view, 40> kNames = {
    "F32",    "F16",   "Q4_0",  "Q4_1",   "",      "",      "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
    "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
    "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
    "BF16",   "",      "",      "",       "TQ1_0", "TQ2_0", "",        "",       "",        "MXFP4"};

}  // namespace

std::optional<BlockType> block_type(uint32_t number) {
  for (const Row& row : kRows)
    if (static_cast<uint32_t>(row.type) == number) return row.type;
  return std::nullopt;
}

std::string gguf_type_name(uint32_t number) {
  if (number < kNames.size() && !kNames[number].empty()) return std::string(kNames[number]);
  return std::to_string(number);
}

int64_t block_elements(BlockType type) { return row_of(type).elements; }
size_t block_bytes(BlockType type) { return row_of(type).bytes; }
std::string_view block_format(BlockType type) { return row_of(type).format; }

void dequantize(BlockType type, const std::byte* blocks, int64_t count, float* out) {
  const Row& row = row_of(type);
  const uint8_t* at = bytes_at(blocks);
  for (int64_t i = 0; i < count; i += row.elements, at += row.bytes) row.decode(at, out + i);
}

}  // namespace tessera::inline gguf
