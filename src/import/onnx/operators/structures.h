// What handlers of sequences, optionals, blocks and strings share.
#pragma once

#include <optional>
#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// Dimensions that hold for both: -1 where they differ, none when the ranks do.
std::optional<std::vector<int64_t>> common_dims(const std::optional<std::vector<int64_t>>& a,
                                                const std::optional<std::vector<int64_t>>& b);

// Result `i`: as many of the first elements of `value` along `axis` as the slot `count`, one i64, says. A run that says
// more than there are fails.
void give_first(NodeContext& c, int i, ValueId value, int64_t axis, SlotId count);

}  // namespace tessera::inline onnx_import
