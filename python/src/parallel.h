// Processes that share a model, for Python (tessera/parallel.h).
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// REQUIRES: add_graph has been called.
void add_parallel(nanobind::module_& m);

}  // namespace tessera::python
