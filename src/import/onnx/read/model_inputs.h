// The inputs that a caller of the model provides, with every dimension fixed by the model or by an option.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "import/onnx/onnx_import.h"
#include "import/onnx/read/model_file.h"

namespace tessera::inline onnx_import {

struct ModelInput {
  std::string name;
  FlowType type;
  // With ImportOptions::symbols, for tensors of known rank: the extents, in which the symbols stand.
  std::optional<Shape> shape = {};
  std::string no_shape = "it is of unknown rank";  // why there is none
};

// `initializers` are inputs with a value in the model; they are constants, not inputs. `readers` names for an input a
// node that reads it, for messages. UserError: TSR-1020 dimensions
// without a value, TSR-1021 an option that names nothing, TSR-1022 an option that contradicts the model or another
// option, TSR-1023 dimensions out of range, TSR-1024 an input that is of no supported type, TSR-1025 a range.
// With options.symbols a dimension whose name is an expression of others ("past + length") is that expression.
// `allow_open`: dimensions of tensors may stay open (-1), and ranks; those of the elements of others always may.
std::vector<ModelInput> resolve_inputs(const onnx::GraphProto& graph, const std::set<std::string>& initializers,
                                       const ImportOptions& options, const std::map<std::string, std::string>& readers,
                                       bool allow_open);

}  // namespace tessera::inline onnx_import
