// Modules of graphs with symbols: passes, lowering, schedules for open sizes, machine code and the runtime, at several
// sizes each, against the interpreter on the graph that is bound at these sizes.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "../support/module_session.h"
#include "../support/symbolic_graphs.h"
#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "graph/bind_symbols.h"
#include "graph/printer.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "package/link.h"
#include "package/module_writer.h"
#include "program/assign_devices.h"
#include "program/memory_plan.h"
#include "program/pass.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

using namespace symbolic_graphs;

Program program_of(Graph graph, const Target& target, const std::set<std::string>& without) {
  const KnownSymbols known(graph.symbols);
  GraphInterpreter evaluator;
  const PassContext context{standard_ops(), evaluator, target};
  for (const GraphPass& pass : graph_pipeline())
    if (!without.contains(std::string(pass.name))) graph = pass.run(graph, context);
  return lower_graph(graph);
}

// Gives calls to the host and to two null devices at random.
void spread_over_devices(Program& program, uint64_t seed) {
  std::mt19937_64 random(seed);
  assign_devices(
      program, {{"first", "null"}, {"second", "null"}},
      [&](const KernelCall&) { return static_cast<int32_t>(random() % 3); },
      seed % 2 == 0 ? std::set<std::string>{"null"} : std::set<std::string>{});
}

// With `device_seed`, in several places.
std::vector<std::byte> module_of(Program program, const Target& target, const std::set<std::string>& without,
                                 std::optional<uint64_t> device_seed) {
  const auto run = [&](ProgramPhase phase) {
    for (const ProgramPass& pass : program_pipeline())
      if (pass.phase == phase) pass.run(program, target);
  };
  run(ProgramPhase::kLowered);
  if (device_seed) spread_over_devices(program, *device_seed);
  schedule_program(program, target, 3, without);
  for (const LoopPass& pass : loop_pipeline())
    for (Kernel& kernel : program.kernels) kernel.program = pass.run(kernel.program, {target, 3});
  run(ProgramPhase::kScheduled);
  plan_memory(program);
  CodegenOptions options;
  options.opt_level = 3;
  options.module_name = "symbolic";
  const ObjectCode object = generate_llvm(program, target, options);
  program.scratch_bytes = object.scratch_bytes;
  std::vector<DeviceImage> images;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceCode code = generate_llvm_operations(program, static_cast<int32_t>(d) + 1, target, options);
    LinkOptions link;
    link.exports = {kOperationNames};
    images.push_back({link_shared_object(code.object, link), code.scratch_bytes});
  }
  ModuleInfo info;
  info.model_name = "symbolic";
  info.model_digest = "0";
  info.producer = "test";
  info.target_triple = target.triple;
  info.target_cpu = target.cpu;
  const std::vector<std::byte> code = link_shared_object(object.object, {.files = object.link});
  return write_module_memory({code, program, info, images}).contents();
}

std::vector<std::byte> module_of(const Graph& graph, const std::set<std::string>& without,
                                 std::optional<uint64_t> device_seed) {
  const Target target = parse_target("native");
  return module_of(program_of(graph, target, without), target, without, device_seed);
}

bool agree(const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (is_float(a.dtype()) ? !(std::abs(a.get_double(i) - b.get_double(i)) <= 1e-3 * (1 + std::abs(b.get_double(i))))
                            : a.get_int(i) != b.get_int(i))
      return false;
  }
  return true;
}

void check_module(const Graph& graph, size_t points, const std::set<std::string>& without = {},
                  std::optional<uint64_t> device_seed = {}) {
  ModuleSession session(module_of(graph, without, device_seed));
  for (const Ints& point : points_of(graph, points, 3)) {
    const Graph bound = bind_symbols(graph, point);
    const std::vector<Tensor> inputs = inputs_at(bound, 7);
    const std::vector<Tensor> want = GraphInterpreter().evaluate(bound, inputs);
    std::vector<Tensor> found;
    for (const Tensor& tensor : want) found.emplace_back(tensor.dtype(), tensor.dims());
    ASSERT_EQ(session.run(inputs, found), "");
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(agree(found[i], want[i]))
          << "at " << fmt::format("{}", fmt::join(point, ", ")) << ", output " << i << " of\n"
          << print(graph, {.elide_constants = true});
  }
}

TEST(SymbolicModules, Networks) {
  check_module(residual_network(1), 5);
  check_module(residual_network(32), 4);
  check_module(encoder(), 6);
}

TEST(SymbolicModules, EveryPassDisabledOnce) {
  std::set<std::string> passes;
  for (const GraphPass& pass : graph_pipeline())
    if (pass.min_level > 0) passes.insert(std::string(pass.name));
  for (const std::string& pass : passes) {
    SCOPED_TRACE(pass);
    check_module(encoder(), 2, {pass});
    if (pass == "assign_layouts" || pass == "fuse_groups") check_module(residual_network(32, 64), 2, {pass});
  }
}

TEST(SymbolicModules, WhatModelsDoWithSizes) {
  for (const Graph& graph : graphs_about_sizes()) check_module(graph, 6);
}

// One session runs all sizes, smaller ones behind larger ones too: what devices have left over of those is not read.
TEST(SymbolicModules, InSeveralPlaces) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    check_module(residual_network(32), 3, {}, seed);
    check_module(encoder(), 5, {}, seed);
  }
  uint64_t seed = 0;
  for (const Graph& graph : graphs_about_sizes()) check_module(graph, 5, {}, ++seed);
  for (seed = 41; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    check_module(random_symbolic_graph(seed), 4, {}, seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(SymbolicModules, RandomGraphs) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    check_module(random_symbolic_graph(seed), 5);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
