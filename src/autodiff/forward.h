// The forward sweep: derivatives along a direction (tangents), as further nodes of the same graph.
//
// A node's tangents come out of its gradient's rule: that is linear in the gradients of the results, and the gradient
// of <rule(g), tangents of the operands> with respect to g is what is sought, whatever g. So an operator has one rule
// for both directions, and <J t, g> = <t, J' g> holds by construction. `if` and `loop` carry tangents beside their
// values.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "support/error.h"

namespace tessera::inline autodiff {

class ForwardSweep {
 public:
  ForwardSweep(GraphBuilder& builder, const OpTable& ops) : builder_(builder), ops_(ops) {}

  struct Values {
    std::vector<ValueId> values, tangents;  // by value of the part; Adjoint::kNone for tangents that are zero
  };
  // Adds the nodes of `part`, composites opened as by copy_opened, and what the tangents need. `tangents`: of each
  // input.
  Values run(const Graph& part, const std::vector<ValueId>& inputs, const std::vector<ValueId>& tangents);
  // Operators without a gradient, from the last to the first.
  std::vector<Diagnostic> refused() const { return {refused_.rbegin(), refused_.rend()}; }

 private:
  std::vector<ValueId> results_of(const Node& node, const std::vector<ValueId>& tangents);
  void add_if(const Node& node, const std::vector<ValueId>& tangents, std::vector<ValueId>& results,
              std::vector<ValueId>& result_tangents);
  void add_loop(const Node& node, const std::vector<ValueId>& tangents, std::vector<ValueId>& results,
                std::vector<ValueId>& result_tangents);
  ValueId zeros(const TensorType& type);

  GraphBuilder& builder_;
  const OpTable& ops_;
  std::vector<Diagnostic> refused_;
};

}  // namespace tessera::inline autodiff
