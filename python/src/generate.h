// Text of language models for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void add_generate(nanobind::module_& m);

}  // namespace tessera::python
