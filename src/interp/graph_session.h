// A graph and the values of its states, from call to call.
#pragma once

#include <utility>
#include <vector>

#include "graph/evaluator.h"
#include "graph/graph.h"

namespace tessera::inline interp {

class GraphSession {
 public:
  // Both must outlive the session. UserError TSR-2050 for a state without an initial value whose shape is symbolic.
  GraphSession(const Graph& graph, Evaluator& evaluator);

  // Evaluates the graph on its own inputs and on the states, which then have their new values. The answer is the
  // graph's own outputs, then its checks. A call that throws, or a check of which does not hold, changes no state.
  std::vector<Tensor> call(std::vector<Tensor> inputs);
  // The states go back to their initial values.
  void reset();
  const std::vector<Tensor>& states() const { return states_; }
  // REQUIRES: a value of the state's type.
  void set_state(size_t index, Tensor value) { states_.at(index) = std::move(value); }

 private:
  const Graph& graph_;
  Evaluator& evaluator_;
  std::vector<Tensor> states_;
};

}  // namespace tessera::inline interp
