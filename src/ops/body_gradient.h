// The gradient of a body, derived from its expression.
#pragma once

#include "graph/adjoint.h"

namespace tessera::inline ops {

// The rule of any operator that has a body. For each load of the value, `compute` nodes say for every index of the
// result (and every place of the reduction) how much a change of the loaded element changes what is differentiated;
// these are summed over the axes by which the load is not indexed where it is indexed by axes alone, and added at the
// places that were read where it is not. A load in the arm of a select counts where the arm was taken, and only there
// anything of it is computed.
std::vector<ValueId> body_gradient(Adjoint& a);

}  // namespace tessera::inline ops
