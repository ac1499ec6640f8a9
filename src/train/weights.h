// The weights of a model, which are constants as readers make them: which of them are one, and models with others.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline train {

// `model` with constants of their own for the running mean and variance of a batch normalisation whose numbers
// something else reads, too: exporters keep equal initializers once, ones for a new scale and a new variance, which
// training moves apart.
Graph with_own_statistics(const Graph& model, const OpTable& ops);

// `model` with one constant for those that are the same numbers in memory, whatever their shapes: importers give a
// weight that is read in several shapes a constant for each, and it is one weight still.
Graph with_shared_constants(const Graph& model, const OpTable& ops);

// `model` with these constants as states that no call changes: what a training step has learnt is given to it.
Graph with_states(const Graph& model, const std::vector<std::string>& names);

// The other way round: states that no call changes as constants of these values, in their order. REQUIRES: a call
// leaves all of them what they are.
Graph without_states(const Graph& model, const std::vector<TensorPtr>& values, const OpTable& ops);

// `model` with these constants in place of its own of the same names, and of those that are the same numbers in
// memory. Values of another type are rounded to the constant's. REQUIRES: it has them, of these shapes.
Graph with_constants(const Graph& model, const std::vector<std::string>& names, const std::vector<TensorPtr>& values);

// `model` without its dropouts, which inference has no use for.
Graph without_dropouts(const Graph& model);

// The same numbers in another type.
TensorPtr as_dtype(const TensorPtr& tensor, DType dtype);

}  // namespace tessera::inline train
