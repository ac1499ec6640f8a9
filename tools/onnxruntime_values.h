// The values inside a model as ONNX Runtime computes them: the reference of `diff --against onnxruntime`.
#pragma once

#include <memory>
#include <string>

#include "driver/analysis/diff.h"

namespace tessera {

// Values are made outputs, as many at a time as fit `batch_bytes`, of a copy of the model in a temporary folder: of the
// ONNX file `model`, or, where that is none, of the subject's graph as ONNX. Its run throws UserError TSR-4044 when
// ONNX Runtime cannot be used. `subject` must outlive it.
std::unique_ptr<ValueSource> onnxruntime_values(const std::string& model, const DiffSubject& subject, int threads,
                                                int64_t batch_bytes = int64_t{128} << 20);

}  // namespace tessera
