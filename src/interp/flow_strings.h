// Steps of a flow that make strings or look into them.
#pragma once

#include <string>
#include <vector>

#include "graph/flow.h"
#include "types/run_value.h"

namespace tessera::inline interp {

// The results of the step; `strings` are those that the model knows, by number.
std::vector<RunValue> string_results(const FlowStep& step, const std::vector<const RunValue*>& operands,
                                     const std::vector<std::string>& strings);

}  // namespace tessera::inline interp
