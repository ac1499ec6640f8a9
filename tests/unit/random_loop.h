// Loops of all forms with smooth bodies, for tests of gradients.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tessera {

struct RandomLoop {
  // What a loop may have: as graph/control_flow.h calls it.
  bool counted = false, constant_count = false, has_condition = false, bounded = false, reversed = false;
  // Of its body.
  bool branches = false, loops = false, uses_number = false;
  int64_t trip = 3;
};

// All forms that `seed` says.
RandomLoop random_form(uint64_t seed);

// A loop over [3]-vectors of type `dtype` in the graph that `builder` adds to. `state`: carried, [3]; `rows`: scanned,
// [trip,3]; `weights`: [3,3]; `bias`: [3]. Its results: two carried vectors, a sum without dimensions, stacked vectors.
std::vector<ValueId> add_loop(GraphBuilder& builder, const RandomLoop& form, ValueId state, ValueId rows,
                              ValueId weights, ValueId bias);

}  // namespace tessera
