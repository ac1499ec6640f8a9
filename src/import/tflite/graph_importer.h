// The walk over a model's operators.
#pragma once

#include "graph/evaluator.h"
#include "graph/op_def.h"
#include "import/common/options.h"
#include "import/tflite/read/model_file.h"

namespace tessera::inline tflite_import {

ReadOutcome build_graph(const TfliteModel& model, const ImportOptions& options, const OpTable& ops,
                        Evaluator& evaluator);

}  // namespace tessera::inline tflite_import
