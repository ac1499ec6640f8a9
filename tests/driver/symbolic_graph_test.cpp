// Graphs with symbols, compiled as they are: the module at some sizes is held against the interpreter, against the same
// graph bound at these sizes, and against the module that is made from samples of sizes.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "driver/compile.h"
#include "driver/engine/native_model.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "graph_passes/support/bind_symbols.h"
#include "interp/graph_interp.h"
#include "program/printer.h"
#include "support/error.h"
#include "support/symbolic_graphs.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using namespace symbolic_graphs;

DriverOptions options_without(const std::set<std::string>& passes) {
  DriverOptions options;
  options.compile.num_threads = 1;
  options.compile.disabled_passes = passes;
  options.runner.verify_each = true;
  return options;
}

std::unique_ptr<Model> compiled(const Graph& graph, const std::set<std::string>& without = {}) {
  const DriverOptions options = options_without(without);
  PassRunner runner(options.runner);
  return load_module(module_in_memory(compile_graph(graph, options, runner)), "symbolic", 1);
}

// The module that is made from samples; null where that is refused.
std::unique_ptr<Model> sampled(const Graph& graph) {
  const DriverOptions options = options_without({});
  PassRunner runner(options.runner);
  ImportedModel model;
  model.symbols = graph.symbols;
  model.at = [&](const std::vector<int64_t>& values) { return bind_symbols(graph, values); };
  try {
    model.graph = model.at(first_points(graph.symbols)[0]);
    return load_module(module_in_memory(compile_imported(std::move(model), options, runner)), "sampled", 1);
  } catch (const UserError&) {
    return nullptr;
  }
}

void expect_same(Model& model, const Graph& graph, const std::vector<Ints>& points, const std::string& what) {
  for (const Ints& point : points) {
    const Graph bound = bind_symbols(graph, point);
    ASSERT_EQ(fmt::format("{}", fmt::join(verify(bound), "\n")), "");
    const std::vector<Tensor> inputs = inputs_at(bound, 7);
    const std::vector<Tensor> want = GraphInterpreter().evaluate(bound, inputs);
    model.bind(inputs);
    model.run();
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(tensors_agree(model.results()[i], want[i]))
          << what << " at " << fmt::format("{}", fmt::join(point, ", ")) << ", output " << i << " of\n"
          << print(graph, {.elide_constants = true});
  }
}

// Everything that is promised for one graph.
void check_graph(const Graph& graph, size_t points = 5) {
  const KnownSymbols known(graph.symbols);
  ASSERT_EQ(fmt::format("{}", fmt::join(verify(graph), "\n")), "");
  const std::vector<Ints> some = points_of(graph, points, 3);
  for (const Ints& point : some) {
    // The interpreter takes graphs with symbols, too.
    const std::vector<Tensor> inputs = inputs_at(bind_symbols(graph, point), 7);
    const auto a = GraphInterpreter().evaluate(graph, inputs);
    const auto b = GraphInterpreter().evaluate(bind_symbols(graph, point), inputs);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(tensors_agree(a[i], b[i]));
  }
  expect_same(*compiled(graph), graph, some, "compiled");
  if (const auto model = sampled(graph)) expect_same(*model, graph, some, "sampled");
}

Graph parse(const std::string& text) { return parse_graph(text, standard_ops(), "symbolic"); }

TEST(SymbolicGraphs, ResidualNetworkOfAnySize) { check_graph(residual_network(1)); }
TEST(SymbolicGraphs, ResidualNetworkOfMultiples) { check_graph(residual_network(32)); }
TEST(SymbolicGraphs, Encoder) { check_graph(encoder()); }

TEST(SymbolicGraphs, EveryPassDisabledOnce) {
  std::set<std::string> passes;
  for (const GraphPass& pass : graph_pipeline())
    if (pass.min_level > 0) passes.insert(std::string(pass.name));
  for (const Graph& graph : {residual_network(32), encoder()})
    for (const std::string& pass : passes)
      expect_same(*compiled(graph, {pass}), graph, points_of(graph, 3, 9), "without " + pass);
}

TEST(SymbolicGraphs, WhatModelsDoWithSizes) {
  for (const Graph& graph : graphs_about_sizes()) check_graph(graph);
}

TEST(SymbolicGraphs, WhatCannotBeProvedIsRefused) {
  EXPECT_THROW(parse(R"(graph @main[n in 1..7](%x: f32[8]) -> (%y: f32[(n + 2)]) {
    %y = slice(%x) {sizes = [(n + 2)], starts = [0], steps = [1]} : f32[(n + 2)]
  })"),
               UserError);
  EXPECT_THROW(parse(R"(graph @main[n in 1..7, m in 1..7](%x: f32[n], %z: f32[m]) -> (%y: f32[n]) {
    %y = add(%x, %z) : f32[n]
  })"),
               UserError);
  EXPECT_THROW(parse(R"(graph @main[n in 1..7](%x: f32[n,2]) -> (%y: f32[n,3]) {
    %y = reshape(%x) {shape = [n, 3]} : f32[n,3]
  })"),
               UserError);
  const Graph endless = parse("graph @main[n in 1..](%x: f32[n]) -> (%y: f32[n]) {\n%y = neg(%x) : f32[n]\n}");
  EXPECT_THROW(compiled(endless), UserError);
}

TEST(SymbolicGraphs, RandomGraphs) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    check_graph(random_symbolic_graph(seed), 4);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
