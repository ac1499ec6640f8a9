// Builds the graph, or the flow, of a loaded model; the order of the steps of an import stands in its `run`.
#pragma once

#include <memory>

#include "import/onnx/model_file.h"
#include "import/onnx/onnx_import.h"

namespace tessera {

ImportedModel build_model(std::shared_ptr<LoadedModel> model, const OnnxImportOptions& options, const OpTable& ops,
                          Evaluator& evaluator);

}  // namespace tessera
