#include "interp/graph_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace tessera::inline interp {

GraphSession::GraphSession(const Graph& graph, Evaluator& evaluator) : graph_(graph), evaluator_(evaluator) { reset(); }

void GraphSession::reset() {
  states_.clear();
  for (size_t i = 0; i < graph_.states.size(); ++i) {
    const State& state = graph_.states[i];
    const TensorType& type = graph_.type(graph_.state_input(i));
    if (!state.initial && !type.is_static())
      throw UserError({"TSR-2050", fmt::format("state {} is {} and has no initial value", state.name, type.to_string()),
                       "", "a fixed shape, or an initial value", ""});
    states_.push_back(state.initial ? *state.initial : Tensor(type.dtype, type.dims()));
  }
}

std::vector<Tensor> GraphSession::call(std::vector<Tensor> inputs) {
  inputs.insert(inputs.end(), states_.begin(), states_.end());
  std::vector<Tensor> results = evaluator_.evaluate(graph_, inputs);
  const auto first = results.begin() + static_cast<ptrdiff_t>(graph_.num_own_outputs());
  const auto last = first + static_cast<ptrdiff_t>(states_.size());
  if (std::all_of(last, results.end(), [](const Tensor& check) { return check.get_int(0) != 0; }))
    std::copy(first, last, states_.begin());
  results.erase(first, last);
  return results;
}

}  // namespace tessera::inline interp
