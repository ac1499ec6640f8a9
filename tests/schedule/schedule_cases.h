// Random one-kernel graphs for the schedule tests: an operator with odd, tiny and border-crossing sizes, values in
// row-major or blocked layouts, and sometimes elementwise operators behind it.
#pragma once

#include <random>
#include <string>

#include "graph/graph.h"

namespace tessera {

struct ScheduleCase {
  Graph graph;       // one group or expression node besides constants
  std::string text;  // for the failure message
};

// `kind`: "conv", "conv1d", "conv3d", "depthwise", "transposed", "winograd", "conv_weights", "pool", "matmul",
// "reduce", "elementwise", "movement", "shuffle", "resize".
ScheduleCase random_case(const std::string& kind, int64_t block, std::mt19937& random);

}  // namespace tessera
