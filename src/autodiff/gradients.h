// Reverse-mode differentiation of a graph.
//
// Loops are gone through backwards by what they keep (control_flow.h).
//
// The sweep runs over primitives and those composites that have a rule of their own (CompositeDef::gradient); other
// composites, groups and calls are opened first. Gradients of one value are added in
// the reverse order of its readers. What the wanted values do not influence is left out, and so is what passes through
// integers and bools.
#pragma once

#include <vector>

#include "autodiff/control_flow.h"
#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline autodiff {

// `graph` with further outputs, behind its own and before states' and checks': for each value in `wrt`, in order, the
// gradient of the sum of the elements of `output`. Each has the type of its value, and the name "NAME.gradient" unless
// that is taken; without influence it is zeros.
// REQUIRES: `output` and `wrt` are values of `graph` of real element types (f64, f32, f16, bf16).
// UserError TSR-2072 where the gradient passes operators that have none; all are named.
Graph gradients(const Graph& graph, ValueId output, const std::vector<ValueId>& wrt, const OpTable& ops,
                const SweepOptions& options = {});

}  // namespace tessera::inline autodiff
