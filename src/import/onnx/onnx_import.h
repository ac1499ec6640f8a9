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
// that cannot be imported are in one NodesRefused (TSR-1040). `evaluator` computes shape arithmetic; it is used during
// the call only. External data is read from the folder of `path`, and only from there. The graph's constants borrow
// from the model in memory and from the mapped files, and keep both alive.
ReadOutcome read_onnx_model(const std::string& path, const ImportOptions& options, const OpTable& ops,
                            Evaluator& evaluator);
ReadOutcome read_onnx_model_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops,
                                  Evaluator& evaluator, const std::string& folder = "");

// The model that was read; UserError for NodesRefused. REQUIRES: no NoGraph.
ImportedModel imported(ReadOutcome outcome);

// The graph of a model that is one; UserError TSR-1046 when it takes a flow to say what the model does.
Graph graph_alone(ImportedModel model);
// All steps in one.
Graph import_onnx_file(const std::string& path, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator);

// The same for a model in memory, which is copied; it may have no external data unless `folder` is given.
Graph import_onnx_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator,
                        const std::string& folder = "");

}  // namespace tessera::inline onnx_import
