// How compile-time code measures something: tuning, calibration and mixed precision receive one of these from the
// driver, as they receive an Evaluator (evaluator.h).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "loop/stmt.h"
#include "types/tensor.h"

namespace tessera::inline graph {

// Of one evaluation, in seconds.
struct Duration {
  double median = 0, least = 0;
  int64_t runs = 0;  // that were measured
};

class GraphTimer {
 public:
  virtual ~GraphTimer() = default;
  // Measures `graph` on `inputs` (in order, row-major) for about `seconds` after a warm-up, at least three times.
  virtual Duration time(const Graph& graph, const std::vector<Tensor>& inputs, double seconds) = 0;
  // The same of one kernel: `inputs` are the program's inputs in order.
  virtual Duration time(const LoopProgram& kernel, const std::vector<Tensor>& inputs, double seconds) = 0;
};

}  // namespace tessera::inline graph
