#include "train.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "tessera/train.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

namespace {

// An array with the number of its dtype.
using Numbered = std::pair<InputArray, int>;

TrainRows rows_of(const std::vector<Numbered>& arrays) {
  if (arrays.size() != 2) throw nb::value_error("samples and targets are needed");
  return {describe_array(arrays[0].first, arrays[0].second), describe_array(arrays[1].first, arrays[1].second)};
}

// `data`: samples and targets, of training and then of testing, where something is tested. `on_epoch` hears of each
// epoch, and what it raises ends the training.
std::string train(const std::string& model, const std::string& output, const TrainSettings& settings,
                  const std::vector<Numbered>& data, const nb::object& on_epoch, const std::string& target, int threads,
                  const std::map<std::string, std::array<int64_t, 3>>& dims,
                  const std::map<std::string, std::vector<int64_t>>& shapes, int64_t max_memory,
                  const std::optional<PipelineSettings>& processes) {
  CompileOptions options;
  options.target = target;
  options.num_threads = threads;
  options.max_memory = max_memory;
  for (const auto& [name, bounds] : dims) options.dims[name] = {bounds[0], bounds[1], bounds[2]};
  options.shapes = shapes;
  std::optional<nb::python_error> raised;
  const auto ask = [&](const auto& work) {
    const nb::gil_scoped_acquire acquire;
    if (raised) return false;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return work();
    } catch (nb::python_error& error) {
      raised.emplace(std::move(error));
      return false;
    }
  };
  options.is_cancelled = [&] { return !ask([] { return true; }); };
  const auto hear = [&](const TrainEpoch& epoch) {
    return ask([&] {
      if (on_epoch.is_none()) return true;
      nb::dict told;
      told["epoch"] = epoch.epoch;
      told["loss"] = epoch.loss;
      told["accuracy"] = epoch.accuracy;
      told["test_right"] = epoch.test_right;
      told["test_total"] = epoch.test_total;
      told["test_loss"] = epoch.test_loss;
      told["steps_per_second"] = epoch.steps_per_second;
      const nb::object answer = on_epoch(told);
      return !answer.is(nb::bool_(false));
    });
  };
  const TrainRows rows = rows_of({data.begin(), data.begin() + std::min<std::ptrdiff_t>(2, std::ssize(data))});
  std::optional<TrainRows> test;
  if (data.size() > 2) test = rows_of({data.begin() + 2, data.end()});
  std::string report;
  try {
    const nb::gil_scoped_release release;
    report = train_file(model, output, settings, rows, test ? &*test : nullptr, hear, options,
                        processes ? &*processes : nullptr);
  } catch (const CompileError&) {
    if (!raised) throw;
  }
  if (raised) throw nb::python_error(std::move(*raised));
  return report;
}

}  // namespace

void add_train(nb::module_& m) {
  nb::class_<TrainSettings>(m, "TrainSettings", "How a model is trained; include/tessera/train.h says what each is.")
      .def(nb::init<>())
      .def_rw("loss", &TrainSettings::loss)
      .def_rw("label_smoothing", &TrainSettings::label_smoothing)
      .def_rw("ignored", &TrainSettings::ignored, nb::arg().none())
      .def_rw("classes_last", &TrainSettings::classes_last)
      .def_rw("optimizer", &TrainSettings::optimizer)
      .def_rw("rate", &TrainSettings::rate)
      .def_rw("schedule", &TrainSettings::schedule)
      .def_rw("warmup", &TrainSettings::warmup)
      .def_rw("momentum", &TrainSettings::momentum)
      .def_rw("nesterov", &TrainSettings::nesterov)
      .def_rw("weight_decay", &TrainSettings::weight_decay)
      .def_rw("clip_norm", &TrainSettings::clip_norm)
      .def_rw("frozen", &TrainSettings::frozen)
      .def_rw("epochs", &TrainSettings::epochs)
      .def_rw("batch", &TrainSettings::batch)
      .def_rw("seed", &TrainSettings::seed)
      .def_rw("in_order", &TrainSettings::in_order)
      .def_rw("leaves", &TrainSettings::leaves)
      .def_rw("zero", &TrainSettings::zero)
      .def_rw("products", &TrainSettings::products)
      .def_rw("loss_scale", &TrainSettings::loss_scale)
      .def_rw("teacher", &TrainSettings::teacher)
      .def_rw("distill_weight", &TrainSettings::distill_weight)
      .def_rw("temperature", &TrainSettings::temperature)
      .def_rw("features", &TrainSettings::features)
      .def_rw("feature_weight", &TrainSettings::feature_weight)
      .def_rw("prune", &TrainSettings::prune)
      .def_rw("importance", &TrainSettings::importance)
      .def_rw("qat", &TrainSettings::qat)
      .def_rw("qat_bits", &TrainSettings::qat_bits)
      .def_rw("with_step", &TrainSettings::with_step)
      .def_rw("checkpoint", &TrainSettings::checkpoint)
      .def_rw("checkpoint_steps", &TrainSettings::checkpoint_steps)
      .def_rw("resume", &TrainSettings::resume)
      .def_rw("step", &TrainSettings::step);
  nb::class_<PipelineSettings>(m, "PipelineSettings", "The stages that processes are; include/tessera/train.h.")
      .def(nb::init<>())
      .def_rw("stages", &PipelineSettings::stages)
      .def_rw("micro_batches", &PipelineSettings::micro_batches)
      .def_rw("kind", &PipelineSettings::kind)
      .def_rw("chunks", &PipelineSettings::chunks)
      .def_rw("tensor", &PipelineSettings::tensor);
  m.def("train", &train, "model"_a, "output"_a, "settings"_a, "data"_a, "on_epoch"_a.none(), "target"_a, "threads"_a,
        "dims"_a, "shapes"_a, "max_memory"_a, "processes"_a.none(),
        "Trains a model file, and returns the report as JSON.");
}

}  // namespace tessera::python
