// The graph behind a builder::Graph, for the other files of the public API.
#pragma once

#include <memory>

#include "driver/formats.h"
#include "tessera/graph.h"

namespace tessera::inline driver {

// The graph as a model. UserError TSR-2069 for one without outputs.
ModelReader reader_of(const builder::Graph& graph);

}  // namespace tessera::inline driver
