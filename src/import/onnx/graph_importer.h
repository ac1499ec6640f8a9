// Builds the graph, or the flow, of a loaded model; the order of the steps of an import stands in its `run`.
#pragma once

#include <memory>

#include "import/onnx/onnx_import.h"
#include "import/onnx/read/model_file.h"

namespace tessera::inline onnx_import {

ImportedModel build_model(std::shared_ptr<LoadedModel> model, const ImportOptions& options, const OpTable& ops,
                          Evaluator& evaluator);

}  // namespace tessera::inline onnx_import
