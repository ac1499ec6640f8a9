// Gradients at kinks, at ties, and where an arm is not taken: the conventions that docs/training.md states.
#include "gradient_case.h"

#include <fmt/format.h>

#include "support/error.h"

namespace tessera {
namespace {

TEST(Gradients, Select) {
  for (const auto& [cond, a, b] :
       {std::tuple<Ints, Ints, Ints>{{2, 3}, {3}, {2, 1}}, {{}, {2}, {2}}, {{3}, {}, {}}, {{0}, {1}, {0}}}) {
    Case c(5);
    Tensor chosen(DType::kBool, cond);
    for (int64_t i = 0; i < chosen.num_elements(); ++i) chosen.set_int(i, static_cast<int64_t>(c.below(2)));
    const ValueId condition = c.constant(std::move(chosen)), x = c.input(a), y = c.input(b);
    c.expect_differences(c.op("select", {condition, x, y}));
  }
}

// An infinity in the arm that is not taken is not multiplied by 0.
TEST(Gradients, TheOtherArmOfASelect) {
  Case c(1);
  Tensor chosen(DType::kBool, {2});
  chosen.set_int(1, 1);
  const ValueId condition = c.constant(std::move(chosen)), x = c.input({2}), y = c.input({2});
  c.inputs()[0].set_double(0, INFINITY);
  c.inputs()[1].set_double(1, NAN);
  const std::vector<Tensor> found = c.found(c.op("select", {condition, x, y}));
  EXPECT_EQ(found.at(0).get_double(0), 0);
  EXPECT_GE(found.at(0).get_double(1), 0.5);
  EXPECT_GE(found.at(1).get_double(0), 0.5);
  EXPECT_EQ(found.at(1).get_double(1), 0);
}

// Nor where it is stretched to an arm of which nothing is taken, or a part.
TEST(Gradients, AStretchedOperandOfTheOtherArm) {
  for (const bool some : {false, true}) {
    Case c(1);
    Tensor chosen(DType::kBool, {2, 3});
    chosen.set_int(1, some);
    const ValueId condition = c.constant(std::move(chosen)), x = c.given({2, 3}, {1, 2, 3, 4, 5, 6});
    const ValueId number = c.given({}, {some ? 4.0 : 0.0}), row = c.given({3}, {0, 4, 0});
    const ValueId arm = c.op("mul", {c.op("mul", {x, c.op("sqrt", {number})}), c.op("sqrt", {row})});
    const std::vector<Tensor> found = c.found(c.op("select", {condition, arm, x}));
    EXPECT_EQ(found[1].get_double(0) != 0, some) << found[1].get_double(0);
    EXPECT_FALSE(std::isnan(found[1].get_double(0)));
    for (const int64_t i : {0, 2}) EXPECT_EQ(found[2].get_double(i), 0);
    EXPECT_EQ(found[2].get_double(1) != 0, some) << found[2].get_double(1);
  }
}

TEST(Gradients, KinksAndTies) {
  const auto gradients_at_zero = [](const std::string& op, size_t operands) {
    Graph graph;
    GraphBuilder builder(graph);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < operands; ++i) inputs.push_back(graph.add_input("x", real({})));
    graph.outputs = {builder.add(standard_ops().get(op), inputs)};
    GraphInterpreter interpreter;
    const auto all = interpreter.evaluate(gradients(graph, graph.outputs[0], inputs, standard_ops()),
                                          std::vector<Tensor>(operands, Tensor(DType::kF64, {})));
    std::vector<double> values;
    for (size_t i = 1; i < all.size(); ++i) values.push_back(all[i].get_double(0));
    return values;
  };
  EXPECT_THAT(gradients_at_zero("abs", 1), testing::ElementsAre(0));
  EXPECT_THAT(gradients_at_zero("max", 2), testing::ElementsAre(0.5, 0.5));
  EXPECT_THAT(gradients_at_zero("min", 2), testing::ElementsAre(0.5, 0.5));
  EXPECT_THAT(gradients_at_zero("floor", 1), testing::ElementsAre(0));
  const Graph graph = parse_graph(R"(
graph @main(%x: f64[3]) -> (%y: f64[]) {
  %y = reduce(%x) {axes = [0], keepdims = false, kind = "max"} : f64[]
})",
                                  standard_ops());
  GraphInterpreter interpreter;
  const Tensor found =
      interpreter.evaluate(gradients(graph, graph.outputs[0], graph.inputs, standard_ops()), {Tensor(DType::kF64, {3})})
          .at(1);
  for (int64_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(found.get_double(i), 1.0 / 3);
}

// PyTorch's answers where a function has a kink.
TEST(Gradients, KinksOfComposites) {
  const auto at = [](const std::string& name, const std::vector<double>& values, Attrs attrs = {}) {
    Graph graph;
    GraphBuilder builder(graph);
    const ValueId x = graph.add_input("x", real({std::ssize(values)}));
    graph.outputs = {add_composite(builder, standard_ops(), name, {x}, std::move(attrs)).at(0)};
    Tensor given(DType::kF64, {std::ssize(values)});
    for (int64_t i = 0; i < given.num_elements(); ++i) given.set_double(i, values[static_cast<size_t>(i)]);
    std::vector<Tensor> inputs;
    inputs.push_back(std::move(given));
    GraphInterpreter interpreter;
    const auto all = interpreter.evaluate(gradients(graph, graph.outputs[0], {x}, standard_ops()), inputs);
    std::vector<double> found;
    for (int64_t i = 0; i < all.at(1).num_elements(); ++i) found.push_back(all.at(1).get_double(i));
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(at("relu", {-1, 0, 1}), ElementsAre(0, 0, 1));
  EXPECT_THAT(at("leaky_relu", {-1, 0, 1}, {{"alpha", 0.25}}), ElementsAre(0.25, 0.25, 1));
  EXPECT_THAT(at("elu", {0, 1}, {{"alpha", 2.0}}), ElementsAre(2, 1));
  EXPECT_THAT(at("hard_sigmoid", {-2, 0, 2}, {{"alpha", 0.25}, {"beta", 0.5}}), ElementsAre(0, 0.25, 0));
  EXPECT_THAT(at("hard_swish", {-3, 3}), ElementsAre(0, 1));
  EXPECT_THAT(at("sigmoid", {-1000, 1000}), ElementsAre(0, 0));
  EXPECT_THAT(at("silu", {-1000, 0, 1000}), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(at("softplus", {-1000, 0, 1000}), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(at("reduce_l2", {0, 0}, {{"axes", Ints{0}}, {"keepdims", false}}), ElementsAre(0, 0));
  EXPECT_THAT(at("softmax", {1000, 0}, {{"axis", int64_t{0}}}), ElementsAre(0, 0));
}

// The whole gradient of a window goes to its first maximum.
TEST(Gradients, TiesOfPools) {
  for (const char* op : {"max_pool", "global_max_pool"}) {
    Graph graph;
    GraphBuilder builder(graph);
    const ValueId x = graph.add_input("x", real({1, 1, 2, 2}));
    const Attrs window = {{"window", Ints{2, 2}},
                          {"strides", Ints{2, 2}},
                          {"pads_begin", Ints{0, 0}},
                          {"pads_end", Ints{0, 0}},
                          {"dilations", Ints{1, 1}}};
    const bool global = op == std::string("global_max_pool");
    graph.outputs = {add_composite(builder, standard_ops(), op, {x}, global ? Attrs{} : window).at(0)};
    std::vector<Tensor> inputs;
    inputs.emplace_back(DType::kF64, Ints{1, 1, 2, 2});
    for (const int64_t i : {1, 2}) inputs[0].set_double(i, 5);
    GraphInterpreter interpreter;
    const Tensor found = interpreter.evaluate(gradients(graph, graph.outputs[0], {x}, standard_ops()), inputs).at(1);
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(found.get_double(i), i == 1 ? 1 : 0) << op;
  }
}

}  // namespace
}  // namespace tessera
