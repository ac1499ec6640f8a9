// tessera.schedule.LoopSchedule for Python.
#include "schedule.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "tessera/schedule.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

namespace {

nb::list describe(const std::vector<tessera_tensor_info>& infos) {
  nb::list result;
  for (const tessera_tensor_info& info : infos) {
    nb::list dims;
    for (int32_t axis = 0; axis < info.rank; ++axis) dims.append(info.dims[axis]);
    result.append(nb::make_tuple(info.name, static_cast<int>(info.dtype), nb::tuple(dims)));
  }
  return result;
}

}  // namespace

void add_schedule(nb::module_& m) {
  nb::class_<LoopSchedule>(m, "LoopSchedule", "A loop program and its schedule.")
      .def(
          "__init__",
          [](LoopSchedule* self, const std::string& loops, const std::string& target, int threads,
             const std::string& kernel, const std::string& intrinsics, const std::string& intrinsics_file) {
            new (self) LoopSchedule(loops, {target, threads, kernel, intrinsics, intrinsics_file});
          },
          "loops"_a, "target"_a, "threads"_a, "kernel"_a, "intrinsics"_a, "intrinsics_file"_a,
          "The text of loop programs, and where one of them is to run.")
      .def(
          "apply",
          [](LoopSchedule& s, const std::string& steps) {
            LoopSchedule::Applied applied = s.apply(steps);
            return nb::make_tuple(std::move(applied.names), std::move(applied.numbers));
          },
          "steps"_a, nb::sig("def apply(self, steps: str) -> tuple[list[str], list[int]]"),
          "Lines of a schedule; names and numbers that the last of them makes.")
      .def("emit", &LoopSchedule::emit, "level"_a, "The program at a level.")
      .def_prop_ro("loops", &LoopSchedule::loops, "Names of the loops, in the order of the text.")
      .def_prop_ro("buffers", &LoopSchedule::buffers, "Names of parameters and allocations.")
      .def(
          "check",
          [](const LoopSchedule& s) {
            std::vector<LoopSchedule::Check> checks;
            {
              const nb::gil_scoped_release release;
              checks = s.check();
            }
            nb::list result;
            for (const auto& check : checks)
              result.append(nb::make_tuple(check.output, check.how, check.text, check.agrees));
            return result;
          },
          nb::sig("def check(self) -> list[tuple[str, str, str, bool]]"),
          "Output, what was compared, its result in words, and whether they agree.")
      .def(
          "time",
          [](const LoopSchedule& s, double seconds, bool with_original) {
            LoopSchedule::Times times;
            {
              const nb::gil_scoped_release release;
              times = s.time(seconds, with_original);
            }
            return nb::make_tuple(times.original_ms, times.scheduled_ms, times.gflops, times.peak_gflops);
          },
          "seconds"_a, "with_original"_a,
          nb::sig("def time(self, seconds: float, with_original: bool) -> tuple[float, float, float, float]"),
          "Milliseconds of the original and of the scheduled program, GFLOP/s, and the machine's.")
      .def_prop_ro(
          "inputs", [](const LoopSchedule& s) { return describe(s.inputs()); },
          nb::sig("def inputs(self) -> list[tuple[str, int, tuple[int, ...]]]"),
          "Name, dtype number and shape of each.")
      .def_prop_ro(
          "outputs", [](const LoopSchedule& s) { return describe(s.outputs()); },
          nb::sig("def outputs(self) -> list[tuple[str, int, tuple[int, ...]]]"), "The same of each output.")
      .def(
          "run",
          [](LoopSchedule& s, const std::vector<InputArray>& inputs, const std::vector<int>& input_dtypes,
             const std::vector<OutputArray>& outputs, const std::vector<int>& output_dtypes) {
            const auto in = describe_arrays(inputs, input_dtypes), out = describe_arrays(outputs, output_dtypes);
            const nb::gil_scoped_release release;
            s.run(in, out);
          },
          "inputs"_a, "input_dtypes"_a, "outputs"_a.noconvert(), "output_dtypes"_a,
          nb::sig("def run(self, inputs: list[numpy.typing.NDArray], input_dtypes: list[int], "
                  "outputs: list[numpy.typing.NDArray], output_dtypes: list[int]) -> None"),
          "Runs once. Arrays are C-contiguous and stand with the numbers of their dtypes.");
}

}  // namespace tessera::python
