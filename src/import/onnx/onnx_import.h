// ONNX model -> graph. The graph has the model's input and output names, static shapes, and for each node the name of
// the ONNX node that it came from.
#pragma once

#include <string>
#include <string_view>

#include "graph/evaluator.h"
#include "graph/flow.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "import/common/options.h"

namespace tessera::inline onnx_import {

// UserError TSR-1xxx for files that are no models, models that are malformed, and options that do not fit; all nodes
// that cannot be imported are in one UserError TSR-1040. With `options.symbols` the model is one graph with symbolic
// shapes, or NeedsFixedSizes says why there is none. `evaluator` computes shape arithmetic; it is used during the
// call only. External data is read from the folder of `path`, and only from there.
// The graph's constants borrow from the model in memory and from the mapped files, and keep both alive.
ImportedModel import_onnx_model(const std::string& path, const ImportOptions& options, const OpTable& ops,
                                Evaluator& evaluator);
ImportedModel import_onnx_model_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops,
                                      Evaluator& evaluator, const std::string& folder = "");

// The graph of a model that is one; UserError TSR-1046 when it takes a flow to say what the model does.
Graph graph_alone(ImportedModel model);
// Both steps in one.
Graph import_onnx_file(const std::string& path, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator);

// The same for a model in memory, which is copied; it may have no external data unless `folder` is given.
Graph import_onnx_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator,
                        const std::string& folder = "");

}  // namespace tessera::inline onnx_import
