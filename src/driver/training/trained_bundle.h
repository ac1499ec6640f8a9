// A trained model and its training step in one file, and the model alone out of it.
#pragma once

#include <string>
#include <vector>

#include "driver/options.h"
#include "driver/training/learner.h"
#include "driver/training/whole_states.h"
#include "graph/graph.h"

namespace tessera::inline driver {

// Writes the request's output: the modules "infer" and "step", whose states have the values of now, and the model as a
// graph. `learnt`: the names of the states that are the model's, which come first.
void write_bundle(const TrainingRequest& request, const Graph& step, const WholeStates& states,
                  const std::vector<std::string>& learnt);

// The model of the bundle at `path`, with what its "infer" begins with, or what a checkpoint says, as constants.
// UserError TSR-6104 for a file that is none, TSR-6214 and TSR-6234 for the checkpoint.
Graph stripped(const std::string& path, const std::string& checkpoint);

}  // namespace tessera::inline driver
