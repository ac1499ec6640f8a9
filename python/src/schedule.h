// Schedules for Python (tessera/schedule.h).
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// Adds the class LoopSchedule to the extension module.
void add_schedule(nanobind::module_& m);

}  // namespace tessera::python
