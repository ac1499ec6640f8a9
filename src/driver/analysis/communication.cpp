#include "driver/analysis/communication.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/compile.h"
#include "driver/engine/native_model.h"
#include "driver/pass_runner.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "support/refuse.h"

namespace tessera::inline driver {
namespace {

using nlohmann::json;

struct Probe {
  const char* op;
  double sent_per_byte;  // of its operand, by each of very many ranks, as rings do it; times (n - 1) / n
};
constexpr Probe kProbes[] = {{"all_reduce", 2}, {"reduce_scatter", 1}, {"all_to_all", 1}};

// Seconds of one collective of so many bytes of f32, the median of `runs`. Every process does as many.
double median_seconds(const Probe& probe, int64_t bytes, int runs, const ProcessRank& process) {
  Graph graph;
  graph.name = "probe";
  GraphBuilder builder(graph);
  const std::vector<int64_t> dims = {bytes / 4};
  const ValueId x = graph.add_input("x", {DType::kF32, make_shape(dims), {}});
  Attrs attrs = {{"axes", std::string("data")}, {"mesh", fmt::format("data={}", process.ranks)}};
  if (probe.op != std::string_view("all_to_all")) attrs.set("kind", std::string("sum"));
  builder.set_loc(probe.op);
  graph.outputs = {builder.add(standard_ops().get(probe.op), {x}, attrs, "y")};
  DriverOptions options;
  options.emit = Emit::kModule;
  options.compile.places = {"*=" + process.communicator};
  PassRunner runner(options);
  const std::unique_ptr<Model> model =
      load_module(module_in_memory(compile_graph(std::move(graph), options, runner)), "probe", 1);
  model->bind({Tensor(DType::kF32, dims)});
  constexpr int kBefore = 3;
  std::vector<double> seconds;
  for (int i = 0; i < kBefore + runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    model->run();
    if (i >= kBefore)
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
  return seconds[static_cast<size_t>(runs / 2)];
}

}  // namespace

json examine_communication(const ProcessRank& process) {
  if (process.ranks < 2)
    refuse("TSR-4080", "--comm in one process alone", "two processes or more", "mpirun -n 2 tessera doctor --comm");
  const double share = static_cast<double>(process.ranks - 1) / static_cast<double>(process.ranks);
  json collectives = json::array();
  double latency = 0, bandwidth = 0;
  for (const Probe& probe : kProbes) {
    double least = 0;
    for (const int64_t kilobytes : {0, 64, 1024, 16384}) {
      // A few elements for each rank, and a multiple of them.
      const int64_t bytes = std::max<int64_t>(kilobytes * 1024 / (4 * process.ranks), 1) * 4 * process.ranks;
      const double seconds = median_seconds(probe, bytes, kilobytes > 1024 ? 11 : 101, process);
      if (kilobytes == 0) least = seconds;
      // What is above the least collective; of a few kilobytes that may be nothing that can be measured.
      const double rate =
          seconds > 1.1 * least ? probe.sent_per_byte * share * static_cast<double>(bytes) / (seconds - least) : 0;
      if (probe.op == std::string_view("all_reduce")) {
        if (kilobytes == 0) latency = seconds;
        bandwidth = rate;  // of the largest
      }
      json one = {{"kind", probe.op}, {"bytes", bytes}, {"seconds", seconds}};
      if (rate > 0) one["sent_gbytes_per_second"] = rate / 1e9;
      collectives.push_back(std::move(one));
    }
  }
  return {{"communicator", process.communicator},
          {"ranks", process.ranks},
          {"latency_us", 1e6 * latency},
          {"bandwidth_gbytes", bandwidth / 1e9},
          {"collectives", collectives}};
}

std::string communication_text(const json& communication, const TextStyle& style) {
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"collective"}, {"bytes", kRight}, {"ms", kRight}, {"GB/s sent", kRight}});
  for (const json& one : communication.at("collectives"))
    table.add({one.at("kind").get<std::string>(), fmt::format("{}", one.at("bytes").get<int64_t>()),
               fmt::format("{:.3f}", 1e3 * one.at("seconds").get<double>()),
               one.contains("sent_gbytes_per_second")
                   ? fmt::format("{:.2f}", one.at("sent_gbytes_per_second").get<double>())
                   : ""});
  return fmt::format(
      "{} processes, by {}\n{}plans for them: tessera parallelize ... --latency {:.1f} --bandwidth {:.2f}\n",
      communication.at("ranks").get<int64_t>(), communication.at("communicator").get<std::string>(),
      table.to_string(style), communication.at("latency_us").get<double>(),
      communication.at("bandwidth_gbytes").get<double>());
}

}  // namespace tessera::inline driver
