// tessera parallelize MODEL --mesh data=2,model=2
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "diagnose/text_table.h"
#include "dist/simulate.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "driver/parallelize.h"
#include "driver/pipeline_plan.h"
#include "driver/training/stages.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "package/atomic_file.h"
#include "pipeline_flags.h"
#include "progress.h"
#include "support/error.h"
#include "support/refuse.h"
#include "terminal.h"
#include "train/weights.h"

namespace tessera {

namespace {

struct ParallelizeCommand {
  CompileFlags flags;
  ParallelOptions options;
  std::string model, mesh, output;
  double gigabytes = 5, microseconds = 20;
  PipelineFlags pipeline;
  std::string loss = "cross_entropy", optimizer = "adam";
  int64_t rows = 1, devices = 0;
  bool values = false, json = false, measured = false, classes_last = false;
  bool simulates = false;
  std::string network, trace;
};

// ---- simulation ----

Network network_of(const ParallelizeCommand& command) {
  Network network;
  const std::string text =
      command.network.empty() ? fmt::format("1={}/{}", command.gigabytes, command.microseconds) : command.network;
  if (const std::string wrong = parse_network(text, network); !wrong.empty())
    refuse("TSR-4080", fmt::format("--network {}: {}", command.network, wrong),
           "levels from the ranks outwards: 1=5/20,8=1.25/50");
  return network;
}

struct Simulated {
  Network network;
  SimulatedRanks step;
};

// `steps`: of each stage, or one of all ranks. Writes them, where that is asked for.
std::optional<Simulated> simulated(const ParallelizeCommand& command, const Mesh& mesh,
                                   const std::vector<RankSteps>& steps) {
  if (!command.trace.empty()) {
    std::filesystem::create_directories(command.trace);
    for (size_t stage = 0; stage < steps.size(); ++stage)
      write_file((std::filesystem::path(command.trace) / fmt::format("stage{}.steps", stage)).string(), "trace",
                 trace_text(steps[stage]));
  }
  if (!command.simulates && command.network.empty()) return std::nullopt;
  const Network network = network_of(command);
  return Simulated{network, simulate(mesh, steps, network)};
}

void print(const Simulated& found, const Mesh& mesh) {
  fmt::print("simulated: {:.3f} ms of {} ranks, at work for {:.1f} % of it; links RANKS=GB/S/US {}",
             1e3 * found.step.seconds, mesh.ranks(), 100 * found.step.working, to_text(found.network));
  for (size_t k = 0; k < found.network.size(); ++k)
    fmt::print("{} {} over those of {}", k == 0 ? ":" : ",", bytes_text(found.step.link_bytes[k]),
               found.network[k].ranks == 1 ? "ranks" : fmt::format("{} ranks", found.network[k].ranks));
  fmt::print("\n");
}

nlohmann::json to_json(const Simulated& found) {
  return {{"network", to_text(found.network)},
          {"seconds", found.step.seconds},
          {"working", found.step.working},
          {"link_bytes", found.step.link_bytes}};
}

// ---- the model ----

Graph read_graph(const ParallelizeCommand& command) {
  const DriverOptions options = driver_options(command.flags), nobody;
  PassRunner unwatched(nobody);
  ImportedModel model = read_model(command.model, options, unwatched);
  if (!model.symbols.empty()) refuse_ranges(model, "parallelize");
  return graph_alone(std::move(model));
}

// ---- stages ----

int plan_stages(ParallelizeCommand& command) {
  for (const auto& [is_given, name] : {std::pair{!command.options.pins.empty(), "--pin"}, {command.values, "--values"}})
    if (is_given) refuse("TSR-4080", fmt::format("{} with --stages", name), "--mesh, or --stages without it");
  TrainingOptions training;
  training.loss = loss_kind(command.loss);
  training.optimizer.kind = optimizer_kind(command.optimizer);
  training.classes_last = command.classes_last;
  training.guarded = true;
  training.master_weights = true;
  training.parallel.ranks = command.rows;
  training.parallel.pipeline = pipeline_shape(command.pipeline.settings);
  PipelineOptions options;
  options.speed = command.options.speed;
  options.measured = command.measured;
  options.most_memory = command.flags.max_memory;
  PipelinePlan plan;
  {
    Progress progress("planning " + std::filesystem::path(command.model).filename().string());
    DriverOptions compile = driver_options(command.flags);
    compile.for_training = true;
    const DriverOptions nobody;
    PassRunner unwatched(nobody);
    ImportedModel read = read_model(command.model, compile, unwatched);
    if (!read.symbols.empty()) refuse_ranges(read, "parallelize");
    const Graph model =
        with_shared_constants(with_own_statistics(graph_alone(std::move(read)), standard_ops()), standard_ops());
    compile.compile.dims.clear();
    compile.compile.shapes.clear();
    compile.compile.max_memory = 0;  // stages are chosen by it
    plan = make_pipeline_plan(model, training, options, compile);
  }
  if (!command.output.empty()) {
    std::filesystem::create_directories(command.output);
    write_file((std::filesystem::path(command.output) / "plan.json").string(), "output",
               plan_json(plan.pipeline, command.model));
  }
  const Mesh mesh{{{"data", command.rows}, {"stage", plan.pipeline.stages}}};
  const std::optional<Simulated> found = simulated(command, mesh, stage_steps(plan, command.rows));
  if (!command.json) {
    std::cout << to_text(plan) << std::flush;
    if (found) print(*found, mesh);
    return kExitOk;
  }
  nlohmann::json chunks = nlohmann::json::array(), stages = nlohmann::json::array();
  for (size_t c = 0; c < plan.times.size(); ++c)
    chunks.push_back({{"stage", plan.pipeline.stage_of(static_cast<int64_t>(c))},
                      {"begins", plan.begins[c]},
                      {"forward_seconds", plan.times[c].forward},
                      {"backward_seconds", plan.times[c].backward},
                      {"given_bytes", c < plan.places.size() ? plan.places[c].bytes : 0}});
  for (size_t s = 0; s < plan.stages.size(); ++s)
    stages.push_back({{"parameter_bytes", plan.stages[s].parameter_bytes},
                      {"memory_bytes", plan.stages[s].memory_bytes},
                      {"sent_bytes", plan.stages[s].sent_bytes},
                      {"most_alive", plan.time.most_alive[s]}});
  nlohmann::json report = {{"model", command.model},
                           {"cuts", plan.pipeline.cuts},
                           {"chunks", chunks},
                           {"stages", stages},
                           {"seconds", plan.time.seconds},
                           {"seconds_alone", plan.alone_seconds},
                           {"bubble", plan.time.bubble()}};
  if (found) report["simulated"] = to_json(*found);
  std::cout << json_line(report);
  return kExitOk;
}

int parallelize(ParallelizeCommand& command) {
  command.options.speed.bytes_per_second = command.gigabytes * 1e9;
  command.options.speed.latency_seconds = command.microseconds * 1e-6;
  if (command.pipeline.settings.stages > 1 || command.pipeline.settings.micro_batches > 1) {
    if (!command.mesh.empty()) refuse("TSR-4080", "--mesh with --stages", "one of the two");
    return plan_stages(command);
  }
  if (command.devices > 0 && !command.mesh.empty()) refuse("TSR-4080", "--mesh with --devices", "one of the two");
  command.options.most_memory = command.flags.max_memory;
  command.options.searches = command.options.searches || command.flags.max_memory > 0;
  if (command.devices == 0) command.options.mesh = mesh_named(command.mesh);
  ParallelPlan plan;
  {
    Progress progress("planning " + std::filesystem::path(command.model).filename().string());
    DriverOptions options = driver_options(command.flags);
    options.compile.dims.clear();  // the graph has no open sizes any more
    options.compile.shapes.clear();
    options.compile.max_memory = 0;  // plans are chosen by it
    const Graph model = read_graph(command);
    plan = command.devices > 0 ? make_parallel_plan(model, command.devices, command.options, options)
                               : make_parallel_plan(model, command.options, options);
  }
  if (!command.output.empty()) write_plan(plan, command.output);
  const Mesh& mesh = plan.shardings.mesh;
  const std::optional<Simulated> found = simulated(command, mesh, {steps_of_rank(plan)});
  if (command.json) {
    nlohmann::json report = to_json(plan, command.model);
    if (found) report["simulated"] = to_json(*found);
    std::cout << json_line(report);
    return kExitOk;
  }
  std::cout << to_text(plan, command.values) << std::flush;
  if (found) print(*found, mesh);
  return kExitOk;
}

}  // namespace

Command add_parallelize_command(CLI::App& root) {
  const auto command = std::make_shared<ParallelizeCommand>();
  ParallelizeCommand& c = *command;
  CLI::App* app = root.add_subcommand("parallelize", "Plan how several processes run a model, or train it in stages");
  app->add_option("MODEL", c.model, "The model: ONNX, TFLite, or a graph as text")->required()->type_name("");
  app->add_option("--mesh", c.mesh,
                  "The processes, as a grid: axes with extents. The axis `data` cuts inputs along "
                  "dimension 0")
      ->type_name("data=2,model=2");
  app->add_option("--devices", c.devices,
                  "So many processes, in the grid that has the cheapest plan, searched as with --auto")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->type_name("N");
  app->add_flag("--auto", c.options.searches,
                "Search the cheapest plan of all, instead of deciding node by node; --max-memory bounds weights and "
                "what a run takes, on each process");
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
  app->add_flag("--simulate", c.simulates,
                "Simulate a run of all processes, or a step of all stages: who waits for whom, and who shares a link");
  app->add_option("--network", c.network,
                  "Simulate it with these links: of each process, and of units of so many (hosts, racks), which they "
                  "share for what goes out of it; --bandwidth and --latency of each process, where it is left out")
      ->type_name("RANKS=GB/S/US,...");
  app->add_option("--trace", c.trace,
                  "Write what is simulated, a file for each stage, for programs that run it elsewhere")
      ->type_name("FOLDER");
  app->add_option("--rows", c.rows, "Of stages: so many rows of them, which share each batch")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  add_pipeline_flags(*app, c.pipeline, "--schedule");
  app->add_option("--loss", c.loss, "Of stages: what training makes smaller")
      ->check(CLI::IsMember(std::vector<std::string>(loss_names().begin(), loss_names().end())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--optimizer", c.optimizer, "Of stages: how parameters follow their gradients")
      ->check(CLI::IsMember(std::vector<std::string>(optimizer_names().begin(), optimizer_names().end())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_flag("--classes-last", c.classes_last,
                "Of stages: scores are [N, ..., classes], as language models give them");
  app->add_flag("--measure", c.measured,
                "Of stages: run pieces of the model on this machine, instead of predicting them");
  app->add_flag("--values", c.values, "Print the sharding of each value, and why nodes are not divided");
  app->add_flag("--json", c.json, "Print one line of JSON instead of text");
  add_compile_flags(*app, c.flags);
  app->footer(
      "Examples:\n"
      "  tessera parallelize gpt.graph --mesh data=2,model=2\n"
      "  tessera parallelize mlp.onnx --dim batch=32 --mesh model=4 --pin w1=@{_,model} --values\n"
      "  tessera parallelize gpt.graph --devices 8 --max-memory 2G\n"
      "  tessera parallelize gpt.graph --mesh data=2,model=2 -o plan && mpirun -n 4 tessera run plan\n"
      "  tessera parallelize gpt.graph --dim n=4 --stages 2 --micro-batches 8 -o plan && mpirun -n 2 tessera train "
      "gpt.graph "
      "--data text.npz --plan plan");
  return {app, [command] { return parallelize(*command); }};
}

}  // namespace tessera
