// Graphs for Python (tessera/graph.h).
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// Adds the classes Graph and GraphValue and the function operators to the extension module.
void add_graph(nanobind::module_& m);

}  // namespace tessera::python
