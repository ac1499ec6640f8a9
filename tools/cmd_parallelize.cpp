// tessera parallelize MODEL --mesh data=2,model=2
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "driver/parallelize.h"
#include "graph/printer.h"
#include "package/atomic_file.h"
#include "process_rank.h"
#include "progress.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

namespace {

struct ParallelizeCommand {
  CompileFlags flags;
  ParallelOptions options;
  std::string model, mesh, output;
  double gigabytes = 5, microseconds = 20;
  bool values = false, json = false;
};

Graph read_graph(const ParallelizeCommand& command) {
  const DriverOptions options = driver_options(command.flags), nobody;
  PassRunner unwatched(nobody);
  ImportedModel model = read_model(command.model, options, unwatched);
  if (!model.symbols.empty()) refuse_ranges(model, "parallelize");
  return graph_alone(std::move(model));
}

void write_plan(const ParallelizeCommand& command, const ParallelPlan& plan) {
  std::filesystem::create_directories(command.output);
  const int64_t ranks = plan.shardings.mesh.ranks();
  const auto graph_file = [&](int64_t rank) {
    return std::filesystem::path(command.output) / fmt::format("rank{}.graph", rank);
  };
  for (int64_t rank = 0; rank < ranks; ++rank)
    write_file(graph_file(rank).string(), "output", print(graph_of_rank(plan, rank)));
  // Of a plan for more ranks that was here before.
  std::error_code ignored;
  for (int64_t rank = ranks; std::filesystem::remove(graph_file(rank), ignored);) ++rank;
  const nlohmann::json about = {{"mesh", plan.shardings.mesh.to_string()}, {"ranks", ranks}};
  write_file((std::filesystem::path(command.output) / "plan.json").string(), "output", json_line(about));
}

int parallelize(ParallelizeCommand& command) {
  if (const std::string wrong = parse_mesh(command.mesh, command.options.mesh); !wrong.empty())
    throw UserError({.id = "TSR-2110",
                     .message = fmt::format("--mesh {}: {}", command.mesh, wrong),
                     .node = {},
                     .legal = "axes with extents, such as data=2,model=2",
                     .hint = {}});
  command.options.speed.bytes_per_second = command.gigabytes * 1e9;
  command.options.speed.latency_seconds = command.microseconds * 1e-6;
  ParallelPlan plan;
  {
    Progress progress("planning " + std::filesystem::path(command.model).filename().string());
    DriverOptions options = driver_options(command.flags);
    options.compile.dims.clear();  // the graph has no open sizes any more
    options.compile.shapes.clear();
    plan = make_parallel_plan(read_graph(command), command.options, options);
  }
  if (!command.output.empty()) write_plan(command, plan);
  if (command.json) {
    nlohmann::json collectives = nlohmann::json::array();
    for (const PlannedMove& move : plan.collectives)
      collectives.push_back({{"kind", move_kind_name(move.move.kind)},
                             {"value", move.value},
                             {"axis", move.move.axis},
                             {"bytes", move.bytes}});
    std::cout << json_line({{"model", command.model},
                            {"mesh", plan.shardings.mesh.to_string()},
                            {"weight_bytes", plan.rank.weight_bytes},
                            {"arena_bytes", plan.rank.arena_bytes},
                            {"weight_bytes_alone", plan.alone.weight_bytes},
                            {"arena_bytes_alone", plan.alone.arena_bytes},
                            {"collectives", collectives},
                            {"compute_seconds", plan.rank.compute_seconds},
                            {"collective_seconds", plan.collective_seconds},
                            {"compute_seconds_alone", plan.alone.compute_seconds}});
  } else {
    std::cout << to_text(plan, command.values);
  }
  return kExitOk;
}

}  // namespace

Command add_parallelize_command(CLI::App& root) {
  const auto command = std::make_shared<ParallelizeCommand>();
  ParallelizeCommand& c = *command;
  CLI::App* app = root.add_subcommand("parallelize", "Plan how several processes run a model together");
  app->add_option("MODEL", c.model, "The model: ONNX, TFLite, or a graph as text")->required()->type_name("");
  app->add_option("--mesh", c.mesh,
                  "The processes, as a grid: axes with extents. The axis `data` cuts inputs along "
                  "dimension 0")
      ->required()
      ->type_name("data=2,model=2");
  app->add_option("--pin", c.options.pins, "How an input or a constant lies: one mesh axis, or _, for each dimension")
      ->allow_extra_args(false)
      ->type_name("NAME=@{data,_}");
  app->add_option("-o,--output", c.output, "Write the graph of each process here: mpirun -n N tessera run FOLDER")
      ->type_name("FOLDER");
  app->add_option("--bandwidth", c.gigabytes, "Of the predicted links: billions of bytes a second that a process sends")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->type_name("GB/S");
  app->add_option("--latency", c.microseconds, "Of a collective, in microseconds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("US");
  app->add_flag("--values", c.values, "Print the sharding of each value, and why nodes are not divided");
  app->add_flag("--json", c.json, "Print one line of JSON instead of text");
  add_compile_flags(*app, c.flags);
  app->footer(
      "Examples:\n"
      "  tessera parallelize gpt.graph --mesh data=2,model=2\n"
      "  tessera parallelize mlp.onnx --dim batch=32 --mesh model=4 --pin w1=@{_,model} --values\n"
      "  tessera parallelize gpt.graph --mesh data=2,model=2 -o plan && mpirun -n 4 tessera run plan");
  return {app, [command] { return parallelize(*command); }};
}

}  // namespace tessera
