// Post-training quantisation for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void add_quantize(nanobind::module_& m);

}  // namespace tessera::python
