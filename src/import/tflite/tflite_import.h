// TFLite model -> graph. The graph has the model's names of tensors; a node's location is the name of the tensor that
// its operator makes, since operators have no names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/evaluator.h"
#include "graph/op_def.h"
#include "import/common/options.h"
#include "import/tflite/read/tensor_info.h"

namespace tessera::inline tflite_import {

// Whether a file that begins so is a FlatBuffer of the kind.
bool looks_like_tflite(std::string_view beginning);

// The tensors that a caller gives and gets.
struct TfliteBorder {
  std::vector<TfliteTensor> inputs, outputs;
};
TfliteBorder read_tflite_border(std::string_view bytes);

// UserError TSR-11xx for files that are damaged, TSR-102x for options that do not fit; all operators that cannot be
// imported are in one NodesRefused. `evaluator` is used during the call only. The graph's constants borrow from the
// mapped file and keep it mapped. Dimensions that a model leaves open have the value that it declares for them, which
// is what its own runtime takes without being told another.
ReadOutcome read_tflite_model(const std::string& path, const ImportOptions& options, const OpTable& ops,
                              Evaluator& evaluator);
// The bytes are copied.
ReadOutcome read_tflite_model_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops,
                                    Evaluator& evaluator);

}  // namespace tessera::inline tflite_import
