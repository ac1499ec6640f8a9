// The meaning of flows (graph/flow.h): steps one after another on values of the standard library, pieces by the graph
// interpreter. It knows nothing of the runtime, which does the same steps in compiled models.
#pragma once

#include <vector>

#include "graph/flow.h"
#include "types/run_value.h"

namespace tessera::inline interp {

// `inputs` in the flow's order; answers its outputs. UserError in the runtime's words: TSR-7040 for a check that does
// not hold, TSR-7041 for a step that cannot do what it should, TSR-7033 for an input of another shape.
std::vector<RunValue> run_flow(const Flow& flow, const std::vector<RunValue>& inputs);

// UserError TSR-7040 unless the check that a graph has computed holds.
void require_check(const RuntimeCheck& check, const Tensor& values);

}  // namespace tessera::inline interp
