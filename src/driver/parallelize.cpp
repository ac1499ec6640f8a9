#include "driver/parallelize.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "diagnose/text_table.h"
#include "driver/compile.h"
#include "driver/pass_runner.h"
#include "graph_passes/rewrite/decompose.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

[[noreturn]] void refuse(const std::string& id, const std::string& found, const std::string& legal,
                         const std::string& hint = "") {
  throw UserError({.id = id, .message = found, .node = {}, .legal = legal, .hint = hint});
}

Graph opened(Graph graph) {
  while (true) {
    std::set<std::string> names;
    for (const Node& node : graph.nodes())
      if (node.op->kind == OpKind::kComposite) names.insert(node.attrs.get<std::string>("name"));
    if (names.empty()) return graph;
    const std::vector<std::string_view> list(names.begin(), names.end());
    graph = open_composites(graph, standard_ops(), list);
  }
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

RankCost cost_of(Graph graph, const RankSpeed& speed, const DriverOptions& compile) {
  DriverOptions options = compile;
  options.emit = Emit::kModule;
  PassRunner runner(options);
  const Program program = compile_graph(std::move(graph), options, runner).program;
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

}  // namespace

ParallelPlan make_parallel_plan(const Graph& model, const ParallelOptions& options, const DriverOptions& compile) {
  if (!model.states.empty() || !model.checks.empty() || !model.symbols.empty())
    refuse("TSR-2111",
           fmt::format("the model has {}", !model.symbols.empty()  ? "sizes that are no numbers"
                                           : !model.states.empty() ? "states"
                                                                   : "checks of a run's values"),
           "a model without states whose sizes are numbers", "fix open sizes with --dim or --shape");
  ParallelPlan plan;
  plan.graph = opened(model);
  plan.shardings = propagate(plan.graph, options.mesh, pins_of(plan.graph, options), options.speed);
  plan.collectives = planned_collectives(plan.graph, plan.shardings);
  plan.rank = cost_of(graph_of_rank(plan, 0), options.speed, compile);
  plan.alone = cost_of(model, options.speed, compile);
  for (const PlannedMove& move : plan.collectives)
    plan.collective_seconds +=
        options.speed.latency_seconds + static_cast<double>(move.bytes) / options.speed.bytes_per_second;
  return plan;
}

Graph graph_of_rank(const ParallelPlan& plan, int64_t rank) {
  return localize(plan.graph, plan.shardings, rank, standard_ops());
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

}  // namespace tessera::inline driver
