// An imported graph, run by the interpreter: slow, obvious, and what compiled code is compared with.
#pragma once

#include <memory>
#include <string>

#include "driver/engine/model.h"
#include "graph/flow.h"

namespace tessera::inline driver {

// REQUIRES: static shapes of inputs and outputs.
std::unique_ptr<Model> interpret_graph(Graph graph, const std::string& name);
std::unique_ptr<Model> interpret_flow(Flow flow, const std::string& name);

}  // namespace tessera::inline driver
