// Steps of softmax that other composites share.
#pragma once

#include "ops/composites/composites.h"

namespace tessera::inline ops {

// exps / total, with one division for each total and a product for each element: an error of 1.5 ulp instead of 0.5.
// `total` is a sum of exponentials the largest of which is 1, so that its reciprocal neither overflows nor vanishes.
// Floats of 16 bits and fewer are divided one by one: their reciprocal would have too few digits.
ValueId divide_by_total(CompositeBody& b, ValueId exps, ValueId total);

// The logarithm of the softmax of x along `axis`.
ValueId log_softmax(CompositeBody& b, ValueId x, int64_t axis);

}  // namespace tessera::inline ops
