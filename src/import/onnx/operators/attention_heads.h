// Attention heads as importers build them.
#pragma once

#include <optional>
#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// [B, S, heads * D] as [B, heads, S, D].
ValueId split_heads(NodeContext& c, ValueId x, int64_t heads);
// [B, heads, S, D] as [B, S, heads * D].
ValueId merge_heads(NodeContext& c, ValueId x);
// 0 where `allowed`, else -infinity.
ValueId minus_infinity_unless(NodeContext& c, ValueId allowed, DType dtype);
// softmax over the last dimension in which a row without any finite score gives zeros.
ValueId guarded_softmax(NodeContext& c, ValueId scores);

// What is added to scores; broadcasts to [B, heads, queries, keys].
struct ScoreBias {
  std::optional<ValueId> value;

  void add(NodeContext& c, ValueId more) { value = value ? c.add(*value, more) : more; }
};

// x [B, heads, S, D] with pairs of its first 2 * half features turned by angles: cosine and sine [B or 1, 1, S, half].
ValueId rotated(NodeContext& c, ValueId x, ValueId cosine, ValueId sine, bool interleaved);

}  // namespace tessera::inline onnx_import
