// `gradcheck`: right models pass, and rules that were made wrong on purpose are named.
#include "diagnose/gradient_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <deque>
#include <random>

#include "graph/adjoint.h"
#include "graph/parser.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

// The operators, with other rules for some of them.
class Planted {
 public:
  using Rule = std::function<std::vector<ValueId>(Adjoint& a)>;

  void plant(const std::string& name, Rule rule) {
    OpDef& own = own_.emplace_back(standard_ops().get(name));
    own.gradient = std::move(rule);
  }
  OpTable table() const {
    std::vector<const OpDef*> ops;
    for (const OpDef* op : standard_ops().all()) {
      ops.push_back(op);
      for (const OpDef& own : own_)
        if (own.name == op->name) ops.back() = &own;
    }
    return OpTable(std::move(ops));
  }

 private:
  std::deque<OpDef> own_;
};

std::vector<Tensor> random_values(const Graph& graph, uint64_t seed = 0) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < graph.num_own_inputs(); ++i) {
    const TensorType& type = graph.type(graph.inputs[i]);
    Tensor& tensor = inputs.emplace_back(type.dtype, type.dims());
    for (int64_t e = 0; e < tensor.num_elements(); ++e) {
      if (type.dtype == DType::kI64) tensor.set_int(e, 0);
      else tensor.set_double(e, uniform(random));
    }
  }
  return inputs;
}

GradientCheck check_text(const std::string& text, const OpTable& ops, const GradientCheckOptions& options = {}) {
  const Graph graph = parse_graph(text, ops);
  return check_gradients(graph, random_values(graph), options, ops);
}

// Two layers, in f32: a composite without a rule of its own between them.
constexpr const char* kNetwork = R"(graph @net(%x: f32[2,3], %i: i64[2]) -> (%y: f32[2,2], %j: i64[2]) {
  %w = constant {value = dense<f32[3,4] 0.1 -0.2 0.3 0.4 0.5 -0.6 0.7 0.8 -0.9 0.1 0.2 -0.3>}
  %p = matmul(%x, %w) {transpose_a = false, transpose_b = false} loc("first")
  %t = tanh(%p) loc("act")
  %e = exp(%t) loc("exp")
  %v = constant {value = dense<f32[4,2] 1 2 -1 0.5 0.25 -2 0.75 1>}
  %q = matmul(%e, %v) {transpose_a = false, transpose_b = false} loc("second")
  %y = sin(%q) loc("last")
  %j = add(%i, %i)
})";

TEST(GradientCheck, ARightModelPasses) {
  const GradientCheck check = check_text(kNetwork, standard_ops());
  EXPECT_TRUE(check.agrees());
  EXPECT_FALSE(check.wrong);
  EXPECT_EQ(check.operators, 5);
  std::vector<std::string> names;
  for (const CheckedGradient& value : check.values) {
    names.push_back(value.name);
    EXPECT_EQ(value.checks, 4) << value.name;
    EXPECT_LT(value.max_relative, 1e-6) << value.name;
    EXPECT_TRUE(value.complete);
  }
  EXPECT_THAT(names, testing::ElementsAre("x", "w", "v"));
  EXPECT_EQ(check.values[1].type, "f32[3,4]");
  EXPECT_TRUE(check.values[1].is_parameter);
  EXPECT_THAT(to_text(check, {}), HasSubstr("all gradients agree"));
  EXPECT_TRUE(to_json(check)["agrees"].get<bool>());
}

// The factor of each rule in turn is off by a thousandth.
TEST(GradientCheck, TheFirstWrongOperatorIsNamed) {
  const std::pair<const char*, const char*> planted[] = {
      {"tanh", "act"}, {"exp", "exp"}, {"sin", "last"}, {"matmul", "first"}};
  for (const auto& [name, node] : planted) {
    Planted ops;
    const auto right = standard_ops().get(name).gradient;
    ops.plant(name, [right](Adjoint& a) {
      std::vector<ValueId> found = right(a);
      for (ValueId& g : found)
        if (g != Adjoint::kNone) g = a.mul(g, a.scalar(1.001, g));
      return found;
    });
    const OpTable table = ops.table();
    const GradientCheck check = check_text(kNetwork, table);
    EXPECT_FALSE(check.agrees());
    ASSERT_TRUE(check.wrong) << name;
    EXPECT_EQ(check.wrong->op_type, name);
    EXPECT_EQ(check.wrong->node, node);
    EXPECT_THAT(to_text(check, {}), HasSubstr(fmt::format("first wrong operator: {} ({})", name, node)));
    EXPECT_EQ(to_json(check)["first_wrong"]["operator"], name);
  }
}

// Of two that are wrong the first in the order of the graph, whatever the order of the sweep.
TEST(GradientCheck, TheFirstOfTwo) {
  Planted ops;
  for (const char* name : {"sin", "tanh"})
    ops.plant(name, [](Adjoint& a) { return std::vector<ValueId>{a.neg(a.gradient())}; });
  const OpTable table = ops.table();
  const GradientCheck check = check_text(kNetwork, table);
  ASSERT_TRUE(check.wrong);
  EXPECT_EQ(check.wrong->node, "act");
}

// A rule for one operand of two that is wrong, and elements that are mixed up though their sum is right.
TEST(GradientCheck, OneOperandAndMixedUpElements) {
  Planted ops;
  ops.plant("div", [](Adjoint& a) {
    std::vector<ValueId> found = standard_ops().get("div").gradient(a);
    if (a.wants(1)) found[1] = a.neg(found[1]);
    return found;
  });
  ops.plant("transpose", [](Adjoint& a) { return std::vector<ValueId>{a.gradient()}; });
  const OpTable table = ops.table();
  const GradientCheck division = check_text(R"(graph @main(%x: f64[3], %z: f64[3]) -> (%y: f64[3]) {
  %e = exp(%z)
  %y = div(%x, %e) loc("ratio")
})",
                                            table);
  ASSERT_TRUE(division.wrong);
  EXPECT_EQ(division.wrong->operand, "e");
  ASSERT_EQ(division.values.size(), 2u);
  EXPECT_TRUE(division.values[0].agrees);
  EXPECT_FALSE(division.values[1].agrees);
  const GradientCheck turned = check_text(R"(graph @main(%x: f64[3,3]) -> (%y: f64[3,3]) {
  %y = transpose(%x) {perm = [1, 0]} loc("turned")
})",
                                          table);
  ASSERT_TRUE(turned.wrong);
  EXPECT_EQ(turned.wrong->node, "turned");
}

// In a composite that autodiff opens, the operator inside.
TEST(GradientCheck, InsideAComposite) {
  Planted ops;
  ops.plant("exp", [](Adjoint& a) { return std::vector<ValueId>{a.gradient()}; });
  const OpTable table = ops.table();
  const GradientCheck check = check_text(R"(graph @main(%x: f32[3]) -> (%y: f32[3]) {
  %t = tanh(%x)
  %y = composite(%t) {name = "my_own"} ({
    graph @my_own(%a: f32[3]) -> (%c: f32[3]) {
      %b = sin(%a)
      %c = exp(%b) loc("inner")
    }
  }) : f32[3] loc("outer")
})",
                                         table);
  ASSERT_TRUE(check.wrong);
  EXPECT_EQ(check.wrong->op_type, "my_own/exp");
  EXPECT_EQ(check.wrong->node, "outer/inner");
}

// Points on a kink, and jumps, are counted: they say nothing about a gradient. What is off them is held to it.
TEST(GradientCheck, Kinks) {
  const auto at = [&](const std::vector<double>& values) {
    Graph graph;
    GraphBuilder builder(graph);
    const ValueId x = graph.add_input("x", {DType::kF64, make_shape({4}), {}});
    graph.outputs = {add_composite(builder, standard_ops(), "relu", {x}).at(0)};
    std::vector<Tensor> inputs;
    inputs.emplace_back(DType::kF64, std::vector<int64_t>{4});
    for (int64_t i = 0; i < 4; ++i) inputs[0].set_double(i, values[static_cast<size_t>(i)]);
    return check_gradients(graph, inputs, {.elements = 4}, standard_ops());
  };
  const GradientCheck on = at({0, 0, 0, 0});
  EXPECT_TRUE(on.agrees());
  EXPECT_EQ(on.values[0].kinks, 6);
  EXPECT_EQ(on.values[0].checks, 0);
  EXPECT_THAT(to_text(on, {}), HasSubstr("cannot be told"));
  const GradientCheck beside = at({1e-7, 1, -1, 2});
  EXPECT_TRUE(beside.agrees());
  EXPECT_GT(beside.values[0].kinks, 0);
  EXPECT_GT(beside.values[0].checks, 0);
  const GradientCheck off = at({1, 2, -1, -2});
  EXPECT_EQ(off.values[0].kinks, 0);
  EXPECT_EQ(off.values[0].checks, 6);
}

// Ties of many windows whose kinks have different signs.
TEST(GradientCheck, TiesOfManyWindows) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Graph graph;
    GraphBuilder builder(graph);
    const ValueId x = graph.add_input("x", {DType::kF32, make_shape({1, 8, 6, 6}), {}});
    const ValueId relu = add_composite(builder, standard_ops(), "relu", {x}).at(0);
    const std::vector<int64_t> two{2, 2}, none{0, 0}, one{1, 1};
    graph.outputs = {add_composite(
        builder, standard_ops(), "max_pool", {relu},
        {{"window", two}, {"strides", two}, {"pads_begin", none}, {"pads_end", none}, {"dilations", one}})[0]};
    const GradientCheck check = check_gradients(graph, random_values(graph, seed), {.seed = seed}, standard_ops());
    EXPECT_TRUE(check.agrees()) << seed << to_text(check, {});
    EXPECT_GT(check.operator_kinks, 0);
  }
}

// A derivative that rounding hides is no evidence for its gradient, and none against it.
TEST(GradientCheck, HiddenByRounding) {
  const GradientCheck check = check_text(R"(graph @main(%x: f64[3]) -> (%y: f64[3]) {
  %c = constant {value = dense<f64[] 1e9>}
  %s = add(%x, %c)
  %y = sub(%s, %c)
})",
                                         standard_ops());
  EXPECT_TRUE(check.agrees()) << to_text(check, {});
  const GradientCheck small = check_text(R"(graph @main(%x: f64[3]) -> (%y: f64[3]) {
  %c = constant {value = dense<f64[] 1e-14>}
  %s = mul(%x, %c)
  %d = constant {value = dense<f64[] 1>}
  %y = add(%s, %d)
})",
                                         standard_ops());
  EXPECT_TRUE(small.agrees());
  EXPECT_EQ(small.values[0].checks, 0);
  EXPECT_EQ(small.values[0].kinks, 4);
}

TEST(GradientCheck, WhatIsNoNumber) {
  const GradientCheck check = check_text(R"(graph @main(%x: f64[]) -> (%y: f64[]) {
  %c = constant {value = dense<f64[] -3>}
  %s = add(%x, %c)
  %y = log(%s)
})",
                                         standard_ops());
  EXPECT_TRUE(check.agrees());
  EXPECT_EQ(check.values[0].undefined, 1);
  EXPECT_THAT(to_text(check, {}), HasSubstr("no finite numbers"));
}

TEST(GradientCheck, StatesAreInputs) {
  const GradientCheck check = check_text(
      R"(graph @count(%x: f32[2], %n: f32[2] state("count", dense<f32[2] 1 2>)) -> (%y: f32[2], %m: f32[2] state("count")) {
  %y = mul(%x, %n)
  %m = add(%n, %x)
})",
      standard_ops());
  EXPECT_TRUE(check.agrees());
  ASSERT_EQ(check.values.size(), 2u);
  EXPECT_EQ(check.values[1].name, "n");
}

TEST(GradientCheck, TheTimeIsUp) {
  const GradientCheck check = check_text(kNetwork, standard_ops(), {.max_seconds = 0});
  EXPECT_TRUE(check.agrees());
  EXPECT_FALSE(check.values[0].complete);
  EXPECT_THAT(to_text(check, {}), testing::AllOf(HasSubstr("not checked"), HasSubstr("--budget")));
}

// Every operator's example: there is no false alarm, in whatever types they are.
TEST(GradientCheck, ExamplesOfOperators) {
  int agreed = 0;
  for (const OpDef* op : standard_ops().all()) {
    if (op->example.empty()) continue;
    SCOPED_TRACE(op->name);
    const Graph graph = parse_graph(op->example.substr(0, op->example.find("\nrun")), standard_ops());
    if (std::any_of(graph.symbols.begin(), graph.symbols.end(), [](const SymbolRange& s) { return !s.is_data(); }))
      continue;
    try {
      const GradientCheck check = check_gradients(graph, random_values(graph), {}, standard_ops());
      EXPECT_TRUE(check.agrees()) << to_text(check, {});
      ++agreed;
    } catch (const UserError& error) {
      EXPECT_THAT(error.diagnostic().id, testing::AnyOf("TSR-2072", "TSR-2084"));
    }
  }
  EXPECT_GT(agreed, 40);
}

TEST(GradientCheck, WhatIsRefused) {
  const auto message = [](const std::string& text) {
    try {
      check_text(text, standard_ops());
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  // Loops that nothing bounds.
  EXPECT_THAT(message(R"(graph @main(%x: f32[3], %n: i64[]) -> (%y: f32[3]) {
  %a = loop(%n, %x) {counted = true, num_carried = 1} ({
    graph @body(%i: i64[], %p: f32[3]) -> (%q: f32[3]) {
      %q = tanh(%p)
    }
  }) : f32[3] loc("first")
  %y = loop(%n, %a) {counted = true, num_carried = 1} ({
    graph @body(%i: i64[], %p: f32[3]) -> (%q: f32[3]) {
      %q = tanh(%p)
    }
  }) : f32[3] loc("second")
})"),
              testing::AllOf(HasSubstr("TSR-2072"), HasSubstr("(first)"), HasSubstr("(second)")));
  EXPECT_THAT(message("graph @main(%x: i64[3]) -> (%y: i64[3]) {\n  %y = neg(%x)\n}"), HasSubstr("TSR-2084"));
}

}  // namespace
}  // namespace tessera
