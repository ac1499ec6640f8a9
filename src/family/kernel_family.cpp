#include "family/kernel_family.h"

#include <algorithm>

#include "loop/intrinsic.h"

namespace tessera::inline family {
namespace {

// Processors with vectors: images in blocks of a vector's lanes, products in the dot products and tiles that there are.
constexpr FamilyAnswers kVectors = {
    .name = "vectors",
    .channel_block = [](const Target& target) { return int64_t{std::max(8, target.f32_lanes())}; },
    .least_summed_channels = [](const Target& target) { return int64_t{std::max(8, target.f32_lanes()) / 2}; },
    .narrow_products = [](const Target& target, DType first, DType second) -> std::optional<NarrowProducts> {
      const TensorIntrinsic* tile = best_tile_intrinsic(target, first, second);
      const TensorIntrinsic* dot = dtype_bits(first) == 8 ? byte_dot_intrinsic(target, first, second)
                                   : first == second      ? best_dot_intrinsic(target, first)
                                                          : nullptr;
      if (!tile && !dot) return std::nullopt;
      return NarrowProducts{tile != nullptr, dot != nullptr, tile ? tile->depth : dot->depth, dot ? dot->depth : 1};
    },
};

// Loops of single elements, for processors that nobody knows: bytes are multiplied as they are, in sums of i32, which
// small processors are better at than at floats.
constexpr FamilyAnswers kScalars = {
    .name = "scalars",
    .channel_block = [](const Target&) { return int64_t{1}; },
    .least_summed_channels = [](const Target&) { return int64_t{0}; },
    .narrow_products = [](const Target&, DType first, DType second) -> std::optional<NarrowProducts> {
      const auto is_byte = [](DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; };
      if (!is_byte(first) || !is_byte(second)) return std::nullopt;
      return NarrowProducts{.in_tiles = false, .in_vectors = true, .depth = 1};
    },
};

}  // namespace

KernelFamily::KernelFamily(const Target& target)
    : answers_(target.has("scalar-loops") ? &kScalars : &kVectors), target_(&target) {}

}  // namespace tessera::inline family
