// Models that are read once for ranges of their dimensions, compared with the same models read at fixed sizes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "import/onnx/onnx_import.h"

namespace tessera {

using Sizes = std::map<std::string, int64_t>;
using Reader = std::function<ReadOutcome(const ImportOptions&)>;
using Ranges = std::vector<std::pair<std::string, DimRange>>;

// Dimensions with these ranges are symbols.
ImportOptions symbolic(const Ranges& ranges);

// The graph that was read, which must be a sound one.
Graph sound_graph(ReadOutcome outcome);

// The model with symbols.
Graph import_once(const Reader& read, const Ranges& ranges);

// `graph`, which is the model with symbols, computes for `sizes` what the model read at these sizes computes. `sizes`
// has every name of a dimension, those that are no symbols of the graph too.
void expect_same(const Graph& graph, const Reader& read, const Sizes& sizes, double tolerance);

}  // namespace tessera
