#include "quantize.h"

#include <array>
#include <utility>

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "tessera/quantize.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

namespace {

// `sample(number)` gives (array, dtype number) for each input.
std::string quantize(const std::string& model, const std::string& output, const QuantizeSettings& settings,
                     const nb::callable& sample, size_t count, const std::string& target, int threads,
                     const std::map<std::string, std::array<int64_t, 3>>& dims,
                     const std::map<std::string, std::vector<int64_t>>& shapes, std::vector<int64_t> labels) {
  CompileOptions options;
  options.target = target;
  options.num_threads = threads;
  for (const auto& [name, bounds] : dims) options.dims[name] = {bounds[0], bounds[1], bounds[2]};
  options.shapes = shapes;
  bool interrupted = false;
  // Between steps: an interrupt from the keyboard ends the work.
  options.is_cancelled = [&] {
    const nb::gil_scoped_acquire acquire;
    interrupted = interrupted || PyErr_CheckSignals() != 0;
    return interrupted;
  };
  std::vector<std::pair<InputArray, int>> held;  // what the last sample's tensors borrow
  QuantizeSamples samples;
  samples.count = count;
  samples.labels = std::move(labels);
  samples.at = [&](size_t number) {
    const nb::gil_scoped_acquire acquire;
    held = nb::cast<std::vector<std::pair<InputArray, int>>>(sample(number));
    std::vector<tessera_tensor> tensors;
    for (const auto& [array, dtype] : held) tensors.push_back(describe_array(array, dtype));
    return tensors;
  };
  std::string report;
  try {
    const nb::gil_scoped_release release;
    report = quantize_file(model, output, settings, samples, options);
  } catch (const CompileError&) {
    if (interrupted) throw nb::python_error();
    throw;
  }
  return report;
}

}  // namespace

void add_quantize(nb::module_& m) {
  nb::class_<QuantizeSettings>(m, "QuantizeSettings",
                               "How a model is quantised; include/tessera/quantize.h says what each is.")
      .def(nb::init<>())
      .def_rw("scheme", &QuantizeSettings::scheme)
      .def_rw("method", &QuantizeSettings::method)
      .def_rw("activations", &QuantizeSettings::activations)
      .def_rw("granularity", &QuantizeSettings::granularity)
      .def_rw("bits", &QuantizeSettings::bits)
      .def_rw("group", &QuantizeSettings::group)
      .def_rw("zero_points", &QuantizeSettings::zero_points)
      .def_rw("percentile", &QuantizeSettings::percentile)
      .def_rw("keep", &QuantizeSettings::keep)
      .def_rw("per_layer", &QuantizeSettings::per_layer)
      .def_rw("per_layer_source", &QuantizeSettings::per_layer_source)
      .def_rw("all", &QuantizeSettings::all)
      .def_rw("equalize", &QuantizeSettings::equalize)
      .def_rw("ada_round", &QuantizeSettings::ada_round)
      .def_rw("correct_bias", &QuantizeSettings::correct_bias)
      .def_rw("sensitivity", &QuantizeSettings::sensitivity)
      .def_rw("max_drop", &QuantizeSettings::max_drop)
      .def_rw("min_sqnr", &QuantizeSettings::min_sqnr)
      .def_rw("min_speedup", &QuantizeSettings::min_speedup);
  m.def("quantize", &quantize, "model"_a, "output"_a, "settings"_a, "sample"_a, "count"_a, "target"_a, "threads"_a,
        "dims"_a, "shapes"_a, "labels"_a, "Quantises a model file, and returns the report as JSON.");
}

}  // namespace tessera::python
