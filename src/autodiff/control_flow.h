// Gradients through regions.
//
// `if`: another `if` on the same condition, whose regions compute again what the region that was taken computed, as far
// as its gradients need it. What the other one would compute is never computed, so that nothing of it leaks.
//
// `loop`: a loop backwards. The loop itself is given further stacked results, which are what an iteration backwards
// reads: the carried values as the iteration got them, and results that are dear to compute again. What is cheap
// (element by element, or moves) is computed again from those. A loop that may end early stacks besides which of its
// iterations ran; the others are passed over backwards.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/adjoint.h"
#include "graph/control_flow.h"
#include "support/error.h"

namespace tessera::inline autodiff {

struct SweepOptions {
  // Of what the iterations of one loop keep for its gradient; a loop that would keep more is nested (nest_loops.h).
  int64_t most_kept_bytes = int64_t{1} << 30;
};

// Results that cost as little to compute again as to read: element by element without functions, and moves.
bool is_cheap_again(const Node& node);

// As a rule answers (graph/adjoint.h). Operators of the regions without a gradient are added to `refused`.
std::vector<ValueId> if_gradient(Adjoint& a, const Node& node, const SweepOptions& options,
                                 std::vector<Diagnostic>& refused);

// A region with the gradients of some of its inputs: nodes of the region, opened, then those of the gradients.
struct Pullback {
  Graph graph;                  // its inputs are the region's, then one for each gradient that is given
  std::vector<ValueId> values;  // of each value of the region
  NodeId first_of_gradients = 0;
  std::vector<ValueId> gradients;  // of each wanted input; Adjoint::kNone where it is zero
  std::vector<Diagnostic> refused;
};

// What there is to know of a loop before its gradient.
struct LoopPlan {
  Node forward;                         // with a region that gives further stacked results
  std::vector<TensorType> added_types;  // of these results
  std::vector<std::string> added_names;
  LoopParts parts;          // of the loop as it was
  std::string no_gradient;  // why there is none; empty: there is one, and the rest of the plan
  Expr trip = 0;
  // Numbers among carried values, stacked results, scanned operands and invariants: those whose gradients pass.
  std::vector<size_t> live, stacked, slices, invariants;
  Pullback pullback;                            // of the region
  std::vector<NodeId> again;                    // nodes of the pullback that iterations backwards have
  std::vector<size_t> used_inputs;              // of the region
  std::vector<ValueId> saved;                   // values of the pullback that are stacked
  std::vector<std::pair<size_t, bool>> stacks;  // for each the loop's result, and whether it is stacked backwards
  int ran = -1;                                 // the result that says which iterations ran; -1: all
};

// `given`: for each result of the loop whether its gradient may be given; `wanted`: as of Adjoint. `again`: nothing of
// an iteration is kept but what it was given.
LoopPlan plan_loop(const Graph& graph, const Node& loop, const std::vector<bool>& given,
                   const std::vector<bool>& wanted, bool again, const SweepOptions& options, const OpTable& ops);
// REQUIRES: the node of `a` is `plan.forward`. NoGradientError where nothing bounds its iterations.
std::vector<ValueId> loop_gradient(Adjoint& a, const LoopPlan& plan, std::vector<Diagnostic>& refused);

}  // namespace tessera::inline autodiff
