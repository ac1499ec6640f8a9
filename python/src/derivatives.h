// Derivatives of graphs, and graphs node by node, for Python (tessera/derivatives.h).
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// REQUIRES: add_graph has been called.
void add_derivatives(nanobind::module_& m);

}  // namespace tessera::python
