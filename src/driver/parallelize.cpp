#include "driver/parallelize.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "diagnose/text_table.h"
#include "dist/cheapest_plan.h"
#include "driver/compile_options.h"
#include "driver/pass_runner.h"
#include "driver/pipeline.h"
#include "driver/process_rank.h"
#include "graph/printer.h"
#include "graph/repeated_layers.h"
#include "graph_passes/rewrite/decompose.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

[[noreturn]] void refuse(const std::string& id, const std::string& found, const std::string& legal,
                         const std::string& hint = "") {
  throw UserError({.id = id, .message = found, .node = {}, .legal = legal, .hint = hint});
}

Pins pins_of(const Graph& graph, const ParallelOptions& options) {
  Pins pins;
  for (const std::string& text : options.pins) {
    const size_t at = text.find("=@");
    Sharding sharding;
    const std::string wrong = at == std::string::npos
                                  ? "it is not NAME=@{...}"
                                  : parse_sharding(std::string_view(text).substr(at + 1), options.mesh, sharding);
    if (!wrong.empty())
      refuse("TSR-2110", fmt::format("--pin {}: {}", text, wrong),
             "an input or a constant, and how it lies: x=@{data,_}");
    pins[text.substr(0, at)] = sharding;
  }
  if (options.searches) return pins;
  const int data = options.mesh.find("data");
  for (const ValueId input : graph.inputs) {
    const auto dims = static_dims(graph.type(input).shape);
    const std::string& name = graph.value(input).name;
    if (data < 0 || !dims || dims->empty() || pins.contains(name)) continue;
    if (dtype_bits(graph.type(input).dtype) < 8) continue;  // parts are whole bytes
    if (dims->at(0) % options.mesh.axes[static_cast<size_t>(data)].extent != 0) continue;
    Sharding cut = Sharding::replicated(dims->size());
    cut.dims[0].push_back("data");
    pins[name] = cut;
  }
  return pins;
}

RankCost planned_cost(Graph graph, const RankSpeed& speed, const DriverOptions& compile) {
  DriverOptions options = compile;
  options.emit = Emit::kModule;
  PassRunner runner(options);
  int64_t applications = 0;
  const Target target = deciding_target(options.compile);  // it outlives the pipeline
  Pipeline pipeline(options, target, runner, applications);
  const Program program = pipeline.schedule_and_plan(pipeline.lower(pipeline.simplify(std::move(graph))));
  RankCost cost{program.weight_bytes, program.arena_bytes, 0};
  for (const KernelCall& call : program.calls) {
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    if (kernel.device != 0) continue;
    cost.compute_seconds +=
        std::max(static_cast<double>(std::max<int64_t>(kernel.flops, 0)) / speed.operations_per_second,
                 static_cast<double>(std::max<int64_t>(kernel.bytes, 0)) / speed.memory_bytes_per_second);
  }
  return cost;
}

// Of many equal layers a few are planned: each one more costs as much.
RankCost cost_of(const Graph& graph, const RankSpeed& speed, const DriverOptions& compile) {
  constexpr int64_t kPlanned = 4;
  const std::optional<RepeatedLayers> layers = repeated_layers(graph);
  if (!layers || layers->count <= kPlanned + 1) return planned_cost(graph, speed, compile);
  const RankCost few = planned_cost(with_layers(graph, *layers, kPlanned), speed, compile),
                 more = planned_cost(with_layers(graph, *layers, kPlanned + 1), speed, compile);
  const int64_t left_out = layers->count - kPlanned;
  return {few.weight_bytes + left_out * (more.weight_bytes - few.weight_bytes),
          few.arena_bytes + left_out * (more.arena_bytes - few.arena_bytes),
          few.compute_seconds + static_cast<double>(left_out) * (more.compute_seconds - few.compute_seconds)};
}

}  // namespace

Graph with_open_composites(Graph graph) {
  while (true) {
    std::set<std::string> names;
    for (const Node& node : graph.nodes())
      if (node.op->kind == OpKind::kComposite) names.insert(node.attrs.get<std::string>("name"));
    if (names.empty()) return graph;
    const std::vector<std::string_view> list(names.begin(), names.end());
    graph = open_composites(graph, standard_ops(), list);
  }
}

Mesh mesh_named(const std::string& text) {
  Mesh mesh;
  if (const std::string wrong = parse_mesh(text, mesh); !wrong.empty())
    refuse("TSR-2110", fmt::format("--mesh {}: {}", text, wrong), "axes with extents, such as data=2,model=2");
  return mesh;
}

namespace {

void refuse_what_is_open(const Graph& model) {
  if (!model.states.empty() || !model.checks.empty() || !model.symbols.empty())
    refuse("TSR-2111",
           fmt::format("the model has {}", !model.symbols.empty()  ? "sizes that are no numbers"
                                           : !model.states.empty() ? "states"
                                                                   : "checks of a run's values"),
           "a model without states whose sizes are numbers", "fix open sizes with --dim or --shape");
}

// Weights and what a run takes are those of the planned program of a rank; where they are too much together, weights
// have to be less. `found`: the first plan, where it is known already.
void search(ParallelPlan& plan, const Pins& pins, const ParallelOptions& options, const DriverOptions& compile,
            std::optional<CheapestPlan> found) {
  int64_t most = options.most_memory;
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    if (!found) found = cheapest_plan(plan.graph, options.mesh, pins, options.speed, most);
    plan.search = {found->seconds, found->bound, found->branches};
    plan.shardings = std::move(found->plan);
    found.reset();
    plan.rank = cost_of(graph_of_rank(plan, 0), options.speed, compile);
    if (options.most_memory == 0 || plan.rank.weight_bytes + plan.rank.arena_bytes <= options.most_memory) return;
    most = std::min(most - 1, options.most_memory - plan.rank.arena_bytes);
    if (most <= 0) break;
  }
  refuse("TSR-2112",
         fmt::format("{} on each of {} ranks are too little", bytes_text(static_cast<double>(options.most_memory)),
                     options.mesh.ranks()),
         fmt::format("{} or more for this plan, or more ranks",
                     bytes_text(static_cast<double>(plan.rank.weight_bytes + plan.rank.arena_bytes))));
}

ParallelPlan planned(const Graph& model, Graph graph, const ParallelOptions& options, const DriverOptions& compile,
                     std::optional<CheapestPlan> found) {
  ParallelPlan plan;
  plan.graph = std::move(graph);
  const Pins pins = pins_of(plan.graph, options);
  if (options.searches) {
    search(plan, pins, options, compile, std::move(found));
  } else {
    plan.shardings = propagate(plan.graph, options.mesh, pins, options.speed);
    plan.rank = cost_of(graph_of_rank(plan, 0), options.speed, compile);
  }
  plan.collectives = planned_collectives(plan.graph, plan.shardings);
  plan.alone = cost_of(model, options.speed, compile);
  for (const PlannedMove& move : plan.collectives)
    plan.collective_seconds +=
        options.speed.latency_seconds + static_cast<double>(move.bytes) / options.speed.bytes_per_second;
  return plan;
}

}  // namespace

ParallelPlan make_parallel_plan(const Graph& model, const ParallelOptions& options, const DriverOptions& compile) {
  refuse_what_is_open(model);
  return planned(model, with_open_composites(model), options, compile, std::nullopt);
}

ParallelPlan make_parallel_plan(const Graph& model, int64_t ranks, ParallelOptions options,
                                const DriverOptions& compile) {
  refuse_what_is_open(model);
  options.searches = true;
  Graph graph = with_open_composites(model);
  std::optional<UserError> refused;
  std::optional<CheapestPlan> best;
  Mesh mesh;
  for (int64_t first = 1; first * first <= ranks; ++first) {
    if (ranks % first != 0) continue;
    options.mesh = first == 1 ? Mesh{{{"model", ranks}}} : Mesh{{{"data", first}, {"model", ranks / first}}};
    try {
      CheapestPlan found =
          cheapest_plan(graph, options.mesh, pins_of(graph, options), options.speed, options.most_memory);
      if (!best || found.seconds < best->seconds) best = std::move(found), mesh = options.mesh;
    } catch (const UserError& error) {
      if (!refused) refused = error;
    }
  }
  if (!best) throw UserError(*refused);
  options.mesh = mesh;
  return planned(model, std::move(graph), options, compile, std::move(best));
}

Graph graph_of_rank(const ParallelPlan& plan, int64_t rank) {
  return localize(plan.graph, plan.shardings, rank, standard_ops());
}

RankSteps steps_of_rank(const ParallelPlan& plan) {
  double sum = 0;
  for (const double seconds : node_seconds(plan.graph, plan.shardings)) sum += seconds;
  return rank_steps(plan.graph, plan.shardings, sum > 0 ? plan.rank.compute_seconds / sum : 1);
}

std::string to_text(const ParallelPlan& plan, bool values) {
  std::string text;
  if (values) {
    text += plan_text(plan.graph, plan.shardings);
    for (const std::string& remark : plan.shardings.remarks) text += "not divided: " + remark + "\n";
  } else {
    text += fmt::format("mesh {}\n", plan.shardings.mesh.to_string());
  }
  const auto bytes = [](int64_t count) { return bytes_text(static_cast<double>(count)); };
  text += fmt::format("{} ranks; of each: weights {} (alone {}), memory of a run {} (alone {})\n",
                      plan.shardings.mesh.ranks(), bytes(plan.rank.weight_bytes), bytes(plan.alone.weight_bytes),
                      bytes(plan.rank.arena_bytes), bytes(plan.alone.arena_bytes));
  if (plan.search)
    text += fmt::format("the cheapest plan: {:.3f} ms by its model, and none is below {:.3f} ms (gap {:.2f} %)\n",
                        1e3 * plan.search->seconds, 1e3 * plan.search->bound, 100 * plan.search->gap());
  std::map<std::pair<std::string, std::string>, std::pair<int, int64_t>> kinds;
  int64_t sent = 0;
  for (const PlannedMove& move : plan.collectives) {
    auto& [count, total] = kinds[{move_kind_name(move.move.kind), move.move.axis}];
    ++count;
    total += move.bytes;
    sent += move.bytes;
  }
  text += fmt::format("{} collectives a run, {} bytes sent by each rank\n", plan.collectives.size(), sent);
  for (const auto& [kind, what] : kinds)
    text += fmt::format("  {} over {}: {}, {} bytes\n", kind.first, kind.second, what.first, what.second);
  text += fmt::format("predicted: {:.3f} ms = {:.3f} computing + {:.3f} collectives (alone {:.3f} ms)\n",
                      1e3 * (plan.rank.compute_seconds + plan.collective_seconds), 1e3 * plan.rank.compute_seconds,
                      1e3 * plan.collective_seconds, 1e3 * plan.alone.compute_seconds);
  return text;
}

nlohmann::json to_json(const ParallelPlan& plan, const std::string& model) {
  nlohmann::json collectives = nlohmann::json::array();
  for (const PlannedMove& move : plan.collectives)
    collectives.push_back({{"kind", move_kind_name(move.move.kind)},
                           {"value", move.value},
                           {"axis", move.move.axis},
                           {"bytes", move.bytes}});
  nlohmann::json json = {{"model", model},
                         {"mesh", plan.shardings.mesh.to_string()},
                         {"weight_bytes", plan.rank.weight_bytes},
                         {"arena_bytes", plan.rank.arena_bytes},
                         {"weight_bytes_alone", plan.alone.weight_bytes},
                         {"arena_bytes_alone", plan.alone.arena_bytes},
                         {"collectives", collectives},
                         {"compute_seconds", plan.rank.compute_seconds},
                         {"collective_seconds", plan.collective_seconds},
                         {"compute_seconds_alone", plan.alone.compute_seconds}};
  if (plan.search)
    json["search"] = {{"seconds", plan.search->seconds}, {"bound", plan.search->bound}, {"gap", plan.search->gap()}};
  return json;
}

namespace {

std::string graph_file(const std::string& folder, int64_t rank) {
  return (std::filesystem::path(folder) / fmt::format("rank{}.graph", rank)).string();
}

}  // namespace

void write_plan(const ParallelPlan& plan, const std::string& folder) {
  std::filesystem::create_directories(folder);
  const int64_t ranks = plan.shardings.mesh.ranks();
  for (int64_t rank = 0; rank < ranks; ++rank)
    write_file(graph_file(folder, rank), "output", print(graph_of_rank(plan, rank)));
  // Of a plan for more ranks that was here before.
  std::error_code ignored;
  for (int64_t rank = ranks; std::filesystem::remove(graph_file(folder, rank), ignored);) ++rank;
  const nlohmann::json about = {{"mesh", plan.shardings.mesh.to_string()}, {"ranks", ranks}};
  write_file((std::filesystem::path(folder) / "plan.json").string(), "output", about.dump() + "\n");
}

std::string model_of_rank(const std::string& path) {
  if (!std::filesystem::is_regular_file(std::filesystem::path(path) / "plan.json")) return path;
  const ProcessRank process = process_rank();
  int64_t ranks = 0;
  while (std::filesystem::exists(graph_file(path, ranks))) ++ranks;
  require_processes(process, ranks, fmt::format("'{}' is a plan", path),
                    fmt::format("mpirun -n {} tessera run {}", ranks, path));
  return graph_file(path, process.rank);
}

}  // namespace tessera::inline driver
