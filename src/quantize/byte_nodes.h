// Nodes that the graphs of quantisation have in common: the quantised one, and those by which losses are measured.
#pragma once

#include <string>

#include "graph/graph.h"
#include "quantize/quantize_graph.h"

namespace tessera::inline quantize {

// A constant, in the graph and at the place in the model that the builder is at.
ValueId constant_node(GraphBuilder& builder, const OpTable& ops, Tensor value, const std::string& name = "");

// `x`, which is the product's data, as bytes and made real again: of the range that samples have shown, or, where the
// scheme is dynamic, of the one that it has in a run. `name` is that of the scale and of the zero point.
ValueId through_bytes(GraphBuilder& builder, const OpTable& ops, const QuantizedProduct& product,
                      const QuantizeOptions& options, ValueId x, const std::string& name = "");

}  // namespace tessera::inline quantize
