// Training by compiled steps for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void add_train(nanobind::module_& m);

}  // namespace tessera::python
