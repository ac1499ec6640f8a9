// The values inside a model as ONNX Runtime computes them: the reference of `diff --against onnxruntime`.
#pragma once

#include <memory>
#include <vector>

#include "driver/analysis/diff.h"

namespace tessera {

// Values are made outputs, as many at a time as fit `batch_bytes`, of a copy of the model in a temporary folder. Its
// run throws UserError TSR-4044 when ONNX Runtime cannot be used. `parts` must outlive it.
std::unique_ptr<ValueSource> onnxruntime_values(const ModelParts& parts, const std::vector<TensorInfo>& infos,
                                                const std::vector<Tensor>& inputs,
                                                const std::vector<TensorInfo>& values, int threads,
                                                int64_t batch_bytes = int64_t{128} << 20);

}  // namespace tessera
