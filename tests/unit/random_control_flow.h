// Random graphs of nested if, loop and call nodes over floats, integers and bools of several shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "types/tensor.h"

namespace tessera {

// Every value of the main graph that nobody reads is an output. The same seed gives the same graph everywhere.
Graph random_control_flow(uint64_t seed);
std::vector<Tensor> control_flow_inputs(const Graph& graph, uint64_t seed);

}  // namespace tessera
