// The handlers, by family, and what several families use.
#pragma once

#include <span>

#include "import/caffe/layer_context.h"
#include "import/caffe/layer_table.h"
#include "import/common/functions.h"

namespace tessera::inline caffe {

std::span<const CaffeLayer> box_layers();
std::span<const CaffeLayer> contraction_layers();
std::span<const CaffeLayer> elementwise_layers();
std::span<const CaffeLayer> normalization_layers();
std::span<const CaffeLayer> pooling_layers();
std::span<const CaffeLayer> shape_layers();

// `value`, whose dimensions are those of x from `axis` on, as an operand that broadcasts to x.
ValueId along(LayerContext& c, ValueId value, ValueId x, int64_t axis);

}  // namespace tessera::inline caffe
