#include "parallel.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>
#include <vector>

#include "tessera/parallel.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

void add_parallel(nb::module_& m) {
  m.def(
      "this_process",
      [] {
        const ThisProcess process = this_process();
        return std::tuple(process.rank, process.ranks, process.communicator);
      },
      "Its rank, how many there are, and the device that their collectives run on.");
  m.def("checked_mesh", &checked_mesh, "text"_a, "The text of a mesh, once it is one.");
  nb::class_<ShardedModel>(m, "ShardedModel",
                           "A plan for several processes; include/tessera/parallel.h says what it does.")
      .def(
          "__init__",
          [](ShardedModel* self, const builder::Graph& model, const std::string& mesh,
             const std::vector<std::pair<std::string, std::vector<int>>>& places, double bytes_per_second,
             double latency_seconds) {
            ShardingSettings settings{mesh, {}, bytes_per_second, latency_seconds};
            for (const auto& [name, dims] : places) settings.places.push_back({name, dims});
            const nb::gil_scoped_release release;
            new (self) ShardedModel(model, settings);
          },
          "model"_a, "mesh"_a, "places"_a, "bytes_per_second"_a, "latency_seconds"_a)
      .def("text", &ShardedModel::text, "values"_a, "As `tessera parallelize` prints it.")
      .def("json", &ShardedModel::json, "As --json prints it.")
      .def_prop_ro("ranks", &ShardedModel::ranks, "How many processes it is for.")
      .def("sharding", &ShardedModel::sharding, "value"_a, "How a value lies; empty: there is none of this name.")
      .def("graph", &ShardedModel::graph, "rank"_a, nb::call_guard<nb::gil_scoped_release>(), "What a rank runs.")
      .def("save", &ShardedModel::save, "folder"_a, nb::call_guard<nb::gil_scoped_release>(), "Writes it to a folder.");
}

}  // namespace tessera::python
