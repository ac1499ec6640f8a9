// Cheapest choices in networks of costs, and cheapest plans of graphs: equal to the best of all that there are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/cheapest_plan.h"
#include "dist/localize.h"
#include "graph/parser.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "interp/ranks.h"
#include "ops/op_table.h"
#include "random_graph.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;
constexpr double kNever = std::numeric_limits<double>::infinity();

CostNetwork random_network(size_t variables, size_t most_choices, double density, std::mt19937& random) {
  const auto number = [&] { return std::uniform_real_distribution<>(0, 10)(random); };
  CostNetwork network;
  for (size_t v = 0; v < variables; ++v) {
    network.costs.emplace_back(1 + random() % most_choices);
    network.memory.emplace_back(network.costs[v].size());
    for (double& cost : network.costs[v]) cost = random() % 12 == 0 ? kNever : number();
    for (double& bytes : network.memory[v]) bytes = std::floor(number());
    for (size_t u = 0; u < v; ++u) {
      if (std::uniform_real_distribution<>(0, 1)(random) > density) continue;
      const bool turned = random() % 2 == 0;
      network.edges.push_back({turned ? v : u, turned ? u : v, {}});
      for (size_t i = 0; i < network.costs[u].size() * network.costs[v].size(); ++i)
        network.edges.back().costs.push_back(random() % 10 == 0 ? kNever : number());
    }
  }
  return network;
}

// Of all choices that fit; infinity: there is none.
double brute_force(const CostNetwork& network, double most_memory) {
  std::vector<size_t> choices(network.costs.size(), 0);
  double best = kNever;
  while (true) {
    if (memory_of(network, choices) <= most_memory) best = std::min(best, cost_of(network, choices));
    size_t v = 0;
    while (v < choices.size() && ++choices[v] == network.costs[v].size()) choices[v++] = 0;
    if (v == choices.size()) return best;
  }
}

void expect_cheapest(const CostNetwork& network, const NetworkLimits& limits) {
  const double want = brute_force(network, limits.most_memory);
  const auto found = cheapest_choice(network, limits);
  ASSERT_EQ(found.has_value(), want < kNever);
  if (!found) return;
  EXPECT_NEAR(found->cost, want, 1e-6 * want);
  EXPECT_NEAR(found->bound, want, 1e-6 * want);
  EXPECT_NEAR(cost_of(network, found->choices), found->cost, 1e-9 * want);
  EXPECT_LE(found->memory, limits.most_memory);
}

TEST(CostNetwork, ChoicesAreTheBestOfAll) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const CostNetwork network = random_network(1 + random() % 8, 4, 0.4, random);
    expect_cheapest(network, {});
    if (HasFailure()) return;
  }
}

TEST(CostNetwork, WithinMemory) {
  std::mt19937 random(2);
  int bound = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const CostNetwork network = random_network(2 + random() % 7, 4, 0.4, random);
    NetworkLimits limits;
    limits.most_memory = static_cast<double>(network.costs.size()) * (1 + random() % 6);
    expect_cheapest(network, limits);
    const auto free = cheapest_choice(network);
    bound += free && free->memory > limits.most_memory ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(bound, 60);  // the test is of something
}

// Tables that would be too large are cut, and the gap is closed by branching, or stated.
TEST(CostNetwork, SmallTables) {
  std::mt19937 random(3);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    const CostNetwork network = random_network(2 + random() % 6, 4, 0.9, random);
    NetworkLimits limits;
    limits.most_entries = 16;
    expect_cheapest(network, limits);
    if (HasFailure()) return;
    limits.most_branches = 0;
    const auto found = cheapest_choice(network, limits);
    const double want = brute_force(network, kNever);
    if (!found) continue;
    EXPECT_LE(found->bound, want * (1 + 1e-9));
    EXPECT_GE(found->cost, want * (1 - 1e-9));
    EXPECT_GE(found->gap(), -1e-9);
  }
}

Mesh mesh_of(const char* text) {
  Mesh mesh;
  EXPECT_EQ(parse_mesh(text, mesh), "");
  return mesh;
}

// Every choice of the network of a small graph as a plan: none is cheaper than what was chosen, by the network's costs
// and by those of the plan itself; and ranks compute by it what one does.
TEST(CheapestPlan, EqualsBruteForceOnSmallGraphs) {
  int64_t graphs = 0, plans = 0, divided = 0, same = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Graph graph = random_graph(seed, 5);
    for (const char* text : {"a=2", "a=2,b=2"}) {
      const Mesh mesh = mesh_of(text);
      const RankSpeed speed{.bytes_per_second = 1e9, .latency_seconds = 1e-9, .memory_bytes_per_second = 1e8};
      const PlanNetwork network(graph, mesh, {}, speed);
      double ways = 1;
      for (const auto& costs : network.network().costs) ways *= static_cast<double>(costs.size());
      if (ways > 3000) continue;
      SCOPED_TRACE(fmt::format("seed {} over {}", seed, text));
      const CheapestPlan found = cheapest_plan(graph, mesh, {}, speed);
      ASSERT_NEAR(found.seconds, brute_force(network.network(), kNever), 1e-9 * found.seconds);
      ASSERT_NEAR(found.bound, found.seconds, 1e-9 * found.seconds);
      const double own = plan_seconds(graph, found.plan);
      EXPECT_LE(own, found.seconds * (1 + 1e-9));  // what several readers want alike is brought once
      double least = kNever;
      std::vector<size_t> choices(network.network().costs.size(), 0);
      while (true) {
        if (cost_of(network.network(), choices) < kNever) {
          least = std::min(least, plan_seconds(graph, network.plan_of(choices)));
          ++plans;
        }
        size_t v = 0;
        while (v < choices.size() && ++choices[v] == network.network().costs[v].size()) choices[v++] = 0;
        if (v == choices.size()) break;
      }
      ++graphs;
      same += own <= least * (1 + 1e-9) ? 1 : 0;
      EXPECT_LE(own, 1.1 * least);
      std::vector<Graph> ranks;
      for (int64_t r = 0; r < mesh.ranks(); ++r) {
        ranks.push_back(localize(graph, found.plan, r, standard_ops()));
        ASSERT_THAT(verify(ranks.back()), testing::IsEmpty());
      }
      for (const Sharding& s : found.plan.values) divided += s.is_replicated() ? 0 : 1;
      const std::vector<Tensor> inputs = random_inputs(graph, seed);
      const auto got = evaluate_ranks(ranks, std::vector<std::vector<Tensor>>(ranks.size(), inputs));
      const std::vector<Tensor> want = GraphInterpreter().evaluate(graph, inputs);
      for (const std::vector<Tensor>& outputs : got)
        for (size_t o = 0; o < want.size(); ++o) {
          double largest = 1e-6;
          for (int64_t i = 0; i < want[o].num_elements(); ++i)
            largest = std::max(largest, std::abs(want[o].get_double(i)));
          for (int64_t i = 0; i < want[o].num_elements(); ++i)
            ASSERT_NEAR(outputs[o].get_double(i), want[o].get_double(i), 1e-4 * largest);
        }
      if (HasFailure()) return;
    }
  }
  fmt::print("{} graphs, {} plans, {} values divided, {} plans are the least of all by their own costs\n", graphs,
             plans, divided, same);
  EXPECT_GT(graphs, 40);
  EXPECT_GT(divided, 40);
}

constexpr const char* kMlp = R"(graph @mlp(%x: f32[64,256]) -> (%y: f32[64,256]) {
  %w1 = constant {value = splat<f32[256,1024] 0.5>} : f32[256,1024]
  %w2 = constant {value = splat<f32[1024,256] 0.25>} : f32[1024,256]
  %zero = constant {value = dense<f32[] 0>} : f32[]
  %h = matmul(%x, %w1) {transpose_a = false, transpose_b = false} : f32[64,1024]
  %g = max(%h, %zero) : f32[64,1024]
  %y = matmul(%g, %w2) {transpose_a = false, transpose_b = false} : f32[64,256]
}
)";

TEST(CheapestPlan, ColumnsThenRowsWhereWeightsDoNotFit) {
  const Graph graph = parse_graph(kMlp, standard_ops());
  const Mesh mesh = mesh_of("model=4");
  constexpr int64_t kWeights = 2 * 256 * 1024 * 4;
  const CheapestPlan free = cheapest_plan(graph, mesh, {}, {});
  EXPECT_EQ(free.bound, free.seconds);
  const CheapestPlan tight = cheapest_plan(graph, mesh, {}, {}, kWeights / 4 + 64);
  EXPECT_LE(tight.constant_bytes, kWeights / 4 + 64);
  EXPECT_GE(tight.seconds, free.seconds);
  EXPECT_THAT(plan_text(graph, tight.plan), HasSubstr("%w1: f32[256,1024]@{_,model} = constant()"));
  EXPECT_THAT(plan_text(graph, tight.plan), HasSubstr("%w2: f32[1024,256]@{model,_} = constant()"));
  EXPECT_THAT(
      [&] { cheapest_plan(graph, mesh, {}, {}, kWeights / 5); },
      testing::ThrowsMessage<UserError>(HasSubstr("TSR-2112: constants do not fit into 419430 bytes on each of 4 "
                                                  "ranks\n  legal: 524292 bytes or more, or more ranks")));
  // Never above what is found node by node.
  for (const char* text : {"data=2", "model=2", "data=2,model=2"}) {
    const ShardingPlan node_by_node = propagate(graph, mesh_of(text), {}, {});
    EXPECT_LE(plan_seconds(graph, cheapest_plan(graph, mesh_of(text), {}, {}).plan),
              plan_seconds(graph, node_by_node) * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace tessera
