// A family of kernels: what runs on one kind of machine, and what those who decide before there are kernels ask it.
// Layouts and precision of a graph suit whatever will compute it, so passes ask the family of the place and no machine.
// What becomes of a kernel, its schedule rules say (schedule/choose.h). To add a family is to add a row.
#pragma once

#include <cstdint>
#include <optional>

#include "target/target.h"
#include "types/dtype.h"

namespace tessera::inline family {

// How products of narrow factors are summed.
struct NarrowProducts {
  bool in_tiles = false;     // in tiles of two dimensions, which are filled up
  bool in_vectors = false;   // in lanes of vectors
  int64_t depth = 1;         // products that belong together, side by side in memory; of tiles where there are some
  int64_t vector_depth = 1;  // the same of vectors
};

// The answers of one family. Factors: bf16 or f16 twice, or i8 or u8 each.
struct FamilyAnswers {
  const char* name;
  int64_t (*channel_block)(const Target& target);
  int64_t (*least_summed_channels)(const Target& target);
  std::optional<NarrowProducts> (*narrow_products)(const Target& target, DType first, DType second);
};

// The family that a machine's kernels are of. Outlived by the target.
class KernelFamily {
 public:
  KernelFamily(const Target& target);  // NOLINT: a machine stands for the family of its kernels

  const char* name() const { return answers_->name; }
  // Channels of an image that are stored side by side.
  int64_t channel_block() const { return answers_->channel_block(*target_); }
  // With fewer channels than this, sums of neighbours are taken along a window's columns instead.
  int64_t least_summed_channels() const { return answers_->least_summed_channels(*target_); }
  // Empty when the family multiplies no such factors as they are.
  std::optional<NarrowProducts> narrow_products(DType first, DType second) const {
    return answers_->narrow_products(*target_, first, second);
  }
  bool multiplies_bytes() const {
    return narrow_products(DType::kU8, DType::kI8) || narrow_products(DType::kI8, DType::kI8);
  }
  bool multiplies_in_tiles(DType first, DType second) const {
    const auto products = narrow_products(first, second);
    return products && products->in_tiles;
  }

 private:
  const FamilyAnswers* answers_;
  const Target* target_;
};

}  // namespace tessera::inline family
