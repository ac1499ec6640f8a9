// Sizes that a model leaves open, taken from the inputs that it is to be run on; and the dimensions' names.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "import/onnx/read/declarations.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

// The shapes of the tensors that stand for a model's inputs, one for each; none where nothing is given, or something
// that fits every shape.
using GivenShapes = std::vector<std::optional<std::vector<int64_t>>>;
using ShapesOf = std::function<GivenShapes(const std::vector<DeclaredTensor>& inputs)>;

// Gives every dimension that neither the model nor `options` fix the size that it has in `given`, by a value in
// options.dims (for inputs without a rank: in options.shapes). Answers a line for each input that decided something:
// "input 'x' taken as 1x3x64x96". UserError TSR-6303 for tensors of another rank, TSR-1022 where two inputs contradict
// each other.
std::vector<std::string> take_sizes(const std::vector<DeclaredTensor>& inputs, const GivenShapes& given,
                                    CompileOptions& options);

// `options` with every "INPUT[AXIS]" among the names of options.dims changed to the dimension's own name, and left out
// where the model itself says that size. UserError TSR-1022 where two of them, or one and the model, contradict each
// other.
CompileOptions with_dim_names(const std::vector<DeclaredTensor>& inputs, CompileOptions options);
// Whether any name has that form, so that the declarations are worth reading.
bool has_axis_names(const CompileOptions& options);

}  // namespace tessera::inline driver
