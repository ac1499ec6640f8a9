// Builds the graph, or the flow, of a loaded model; the order of the steps of an import stands in its `run`.
#pragma once

#include <memory>
#include <variant>

#include "import/onnx/onnx_import.h"
#include "import/onnx/read/model_file.h"

namespace tessera::inline onnx_import {

// What of the file's model is asked for.
enum class Wanted : uint8_t {
  kModel,       // whatever it is
  kFixedGraph,  // NoGraph as soon as a node needs a step of a run; of one that is a flow by its inputs and outputs,
                // that
};

// EqualSizes: the model is read again with that among the options.
using BuildOutcome = std::variant<ImportedModel, NoGraph, NodesRefused, EqualSizes>;
BuildOutcome build_model(std::shared_ptr<LoadedModel> model, const ImportOptions& options, Wanted wanted,
                         const OpTable& ops, Evaluator& evaluator);

}  // namespace tessera::inline onnx_import
