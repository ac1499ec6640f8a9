// How compile-time code runs something: folding, calibration, tuning, diff and self-test receive one of these from
// the driver and do not know whether the interpreter or compiled code answers.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "types/tensor.h"

namespace tessera::inline graph {

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // Evaluates `graph` on `inputs` (its inputs in order, row-major); returns its outputs in order.
  virtual std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) = 0;
};

}  // namespace tessera::inline graph
