// Which tensors are images, whose channels kernels want in blocks: what the passes about layouts share.
#pragma once

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

// A batch of channels of one to three further dimensions, of f32; where kernels multiply bytes, also of bytes and
// their sums.
inline bool is_image(const TensorType& type, const PassContext& ctx) {
  if (type.rank() < 3 || type.rank() > 5) return false;
  if (type.dtype == DType::kF32) return true;
  const bool small = type.dtype == DType::kI8 || type.dtype == DType::kU8 || type.dtype == DType::kI32;
  return small && ctx.family.multiplies_bytes();
}

// Channels in a block.
inline int64_t channel_block(const PassContext& ctx) { return ctx.family.channel_block(); }

}  // namespace tessera::inline graph_passes
