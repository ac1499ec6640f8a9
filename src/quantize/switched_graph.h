// A graph in which each product is quantised or not as a switch says that comes with the other inputs, so that one
// compiled model shows what any choice of layers does to the outputs. Products stay in f32 and read numbers that were
// made integers and real again: what they compute is that of the quantised graph but for the rounding of sums.
#pragma once

#include <string_view>
#include <vector>

#include "quantize/quantize_graph.h"

namespace tessera::inline quantize {

inline constexpr std::string_view kSwitches = "tessera.switches";

// One input more, the last of the graph's own: kSwitches, bool[number of products].
Graph switched_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                     const OpTable& ops);

}  // namespace tessera::inline quantize
