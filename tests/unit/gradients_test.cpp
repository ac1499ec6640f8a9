// Gradients against central differences in f64, computed by the interpreter.
#include "autodiff/gradients.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

TensorType real(const Ints& dims) { return {DType::kF64, make_shape(dims), {}}; }

// A graph with one output of f64, which is multiplied by random weights, so that a gradient that mixes elements up is
// seen.
class Case {
 public:
  explicit Case(uint64_t seed) : random_(seed), builder_(graph_) {}

  // Elements in lo .. hi.
  ValueId input(const Ints& dims, double lo = -2, double hi = 2) {
    Tensor& values = inputs_.emplace_back(DType::kF64, dims);
    std::uniform_real_distribution<double> uniform(lo, hi);
    for (int64_t i = 0; i < values.num_elements(); ++i) values.set_double(i, uniform(random_));
    return graph_.add_input("x", real(dims));
  }
  ValueId constant(Tensor tensor) {
    return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId weights(const Ints& dims) {
    Tensor tensor(DType::kF64, dims);
    std::uniform_real_distribution<double> uniform(0.5, 2);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, uniform(random_));
    return constant(std::move(tensor));
  }
  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }
  ValueId composite(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return add_composite(builder_, standard_ops(), name, std::move(inputs), std::move(attrs)).at(0);
  }
  Ints dims(ValueId v) const { return graph_.type(v).dims(); }
  uint64_t below(uint64_t bound) { return random_() % bound; }
  std::vector<Tensor>& inputs() { return inputs_; }

  Graph derived(ValueId result) {
    graph_.outputs = {op("mul", {result, weights(dims(result))})};
    const Graph with = gradients(graph_, graph_.outputs[0], graph_.inputs, standard_ops());
    EXPECT_THAT(verify(with), testing::IsEmpty());
    EXPECT_EQ(print(parse_graph(print(with), standard_ops())), print(with));
    return with;
  }

  // The gradients of all inputs.
  std::vector<Tensor> found(ValueId result) {
    std::vector<Tensor> all = interpreter_.evaluate(derived(result), inputs_);
    all.erase(all.begin());
    return all;
  }

  void expect_differences(ValueId result) {
    const Graph with = derived(result);
    std::vector<Tensor> all = interpreter_.evaluate(with, inputs_);
    ASSERT_EQ(all.size(), inputs_.size() + 1);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      ASSERT_EQ(all[i + 1].dims(), inputs_[i].dims());
      for (int64_t e = 0; e < inputs_[i].num_elements(); ++e) {
        constexpr double kStep = 1e-5;
        const double want = (value_with(i, e, kStep) - value_with(i, e, -kStep)) / (2 * kStep);
        ASSERT_NEAR(all[i + 1].get_double(e), want, 2e-6 * std::max(1.0, std::abs(want)))
            << "element " << e << " of input " << i << " in\n"
            << print(graph_) << "\n"
            << print(with);
      }
    }
  }

 private:
  double value_with(size_t input, int64_t element, double step) {
    std::vector<Tensor> moved;
    for (const Tensor& tensor : inputs_) {
      Tensor& copy = moved.emplace_back(DType::kF64, tensor.dims());
      for (int64_t i = 0; i < tensor.num_elements(); ++i) copy.set_double(i, tensor.get_double(i));
    }
    moved[input].set_double(element, moved[input].get_double(element) + step);
    const Tensor result = interpreter_.evaluate(graph_, moved)[0];
    double sum = 0;
    for (int64_t i = 0; i < result.num_elements(); ++i) sum += result.get_double(i);
    return sum;
  }

  std::mt19937_64 random_;
  Graph graph_;
  GraphBuilder builder_;
  GraphInterpreter interpreter_;
  std::vector<Tensor> inputs_;
};

const std::vector<Ints> kShapes = {{}, {1}, {5}, {3, 1, 2}, {0}, {2, 0, 3}, {1, 7}};

TEST(Gradients, Unary) {
  struct Row {
    const char* op;
    double lo, hi;
  };
  const Row rows[] = {{"neg", -2, 2},      {"abs", 0.1, 2},   {"abs", -2, -0.1},    {"exp", -2, 2},
                      {"log", 0.2, 3},     {"sqrt", 0.2, 3},  {"tanh", -2, 2},      {"erf", -2, 2},
                      {"sin", -4, 4},      {"cos", -4, 4},    {"tan", -1, 1},       {"asin", -0.9, .9},
                      {"acos", -0.9, 0.9}, {"atan", -3, 3},   {"sinh", -2, 2},      {"cosh", -2, 2},
                      {"asinh", -3, 3},    {"acosh", 1.2, 4}, {"atanh", -0.9, 0.9}, {"sign", 0.1, 2},
                      {"floor", .1, .9},   {"ceil", .1, .9},  {"round", .6, 1.4}};
  for (const Row& row : rows)
    for (const Ints& dims : kShapes) {
      SCOPED_TRACE(row.op);
      Case c(dims.size());
      c.expect_differences(c.op(row.op, {c.input(dims, row.lo, row.hi)}));
    }
}

TEST(Gradients, BinaryWithBroadcasting) {
  const std::pair<Ints, Ints> shapes[] = {{{3}, {3}},       {{2, 3}, {3}},       {{2, 3}, {2, 1}}, {{2, 1}, {1, 3}},
                                          {{}, {4}},        {{3, 1, 5}, {2, 1}}, {{0}, {1}},       {{2, 0}, {2, 1}},
                                          {{1, 1}, {1, 1}}, {{1}, {2, 3, 2}}};
  for (const char* name : {"add", "sub", "mul", "div", "pow", "min", "max", "rem"})
    for (const auto& [a, b] : shapes) {
      SCOPED_TRACE(name);
      Case c(7);
      const std::string op = name;
      // Away from ties, jumps and poles.
      const ValueId x = c.input(a, op == "rem" ? 2.1 : 0.5, op == "rem" ? 2.9 : 1), y = c.input(b, 1.2, 1.9);
      c.expect_differences(c.op(op, op == "min" ? std::vector<ValueId>{y, x} : std::vector<ValueId>{x, y}));
    }
  Case negative(1);
  negative.expect_differences(negative.op("pow", {negative.input({4}, -2, -0.5), negative.constant([] {
                                                    Tensor two(DType::kF64, {});
                                                    two.set_double(0, 3);
                                                    return two;
                                                  }())}));
}

TEST(Gradients, Products) {
  const std::pair<Ints, Ints> batches[] = {{{}, {}}, {{2}, {2}}, {{2}, {}}, {{}, {3}}, {{2, 1}, {3}}, {{1}, {0}}};
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const auto& [left, right] : batches)
        for (const Ints& mnk : {Ints{3, 2, 4}, Ints{1, 1, 1}, Ints{2, 3, 0}, Ints{0, 2, 3}}) {
          Case c(3);
          Ints a = left, b = right;
          a.insert(a.end(), {ta ? mnk[2] : mnk[0], ta ? mnk[0] : mnk[2]});
          b.insert(b.end(), {tb ? mnk[1] : mnk[2], tb ? mnk[2] : mnk[1]});
          const ValueId x = c.input(a), y = c.input(b);
          c.expect_differences(c.op("matmul", {x, y}, {{"transpose_a", ta}, {"transpose_b", tb}}));
        }
}

// Of convolutions, and of the gradients of their weights: random forms.
TEST(Gradients, Convolutions) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Case c(seed);
    const auto roll = [&](int64_t lo, int64_t hi) {
      return lo + static_cast<int64_t>(c.below(static_cast<uint64_t>(hi - lo + 1)));
    };
    const size_t rank = seed % 5 == 0 ? 1 : seed % 5 == 1 ? 3 : 2;
    const int64_t groups = roll(1, 2), in = roll(1, 2), out = roll(1, 2), batch = seed % 13 == 0 ? 0 : roll(1, 2);
    Ints x = {batch, groups * in}, w = {groups * out, in}, dy = {batch, groups * out}, window, strides, begin, end,
         dilations, gaps;
    for (size_t d = 0; d < rank; ++d) {
      window.push_back(roll(1, 3));
      strides.push_back(roll(1, 3));
      begin.push_back(roll(-1, 2));
      end.push_back(roll(-1, 2));
      dilations.push_back(roll(1, 2));
      gaps.push_back(roll(1, 2));
      x.push_back(roll(2, rank == 3 ? 3 : 5));
      int64_t room = (x.back() - 1) * gaps[d] + 1 + begin[d] + end[d] - ((window[d] - 1) * dilations[d] + 1);
      if (room < 0) end[d] -= room, room = 0;
      w.push_back(window[d]);
      dy.push_back(room / strides[d] + 1);
    }
    const Attrs attrs = {{"strides", strides},     {"pads_begin", begin},     {"pads_end", end},
                         {"dilations", dilations}, {"input_dilations", gaps}, {"groups", groups}};
    SCOPED_TRACE(seed);
    if (seed % 3 != 0) {
      const ValueId image = c.input(x), weights = c.input(w);
      c.expect_differences(c.op("conv", {image, weights}, attrs));
    } else {
      const ValueId image = c.input(x), gradient = c.input(dy);
      Attrs with = attrs;
      with.set("window", window);
      c.expect_differences(c.op("conv_weights", {image, gradient}, with));
    }
  }
}

TEST(Gradients, Reductions) {
  for (const char* kind : {"sum", "min", "max"})
    for (const bool keepdims : {false, true})
      for (const auto& [dims, axes] : {std::pair<Ints, Ints>{{3, 4, 2}, {1}},
                                       {{3, 4, 2}, {2, 0}},
                                       {{5}, {0}},
                                       {{2, 3}, {}},
                                       {{0, 3}, {1}},
                                       {{1, 3}, {0}},
                                       {{2, 0}, {0}}}) {
        Case c(11);
        c.expect_differences(
            c.op("reduce", {c.input(dims)}, {{"axes", axes}, {"keepdims", keepdims}, {"kind", std::string(kind)}}));
      }
}

TEST(Gradients, Moves) {
  for (const auto& [from, to] :
       {std::pair<Ints, Ints>{{3, 1}, {2, 3, 4}}, {{}, {2, 2}}, {{1}, {0}}, {{2, 3}, {2, 3}}}) {
    Case c(2);
    c.expect_differences(c.op("broadcast", {c.input(from)}, {{"shape", to}}));
  }
  for (const auto& [from, to] : {std::pair<Ints, Ints>{{3, 4}, {2, 6}}, {{1}, {}}, {{0, 3}, {5, 0}}}) {
    Case c(2);
    c.expect_differences(c.op("reshape", {c.input(from)}, {{"shape", to}}));
  }
  for (const auto& [dims, perm] : {std::pair<Ints, Ints>{{2, 3, 4}, {2, 0, 1}}, {{3}, {0}}, {{2, 0, 1}, {1, 2, 0}}}) {
    Case c(2);
    c.expect_differences(c.op("transpose", {c.input(dims)}, {{"perm", perm}}));
  }
}

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

// Values with several readers, composites, intermediate values, and inputs that nothing depends on.
TEST(Gradients, RandomGraphs) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Case c(seed);
    std::vector<ValueId> values = {c.input({3, 4}), c.input({4}), c.input({1, 4}), c.input({2, 3, 4})};
    const auto any = [&] { return values[values.size() - 1 - c.below(std::min<size_t>(values.size(), 5))]; };
    for (int step = 0; step < 8; ++step) {
      const ValueId x = any();
      const Ints dims = c.dims(x);
      const auto last = static_cast<int64_t>(dims.size()) - 1;
      switch (c.below(8)) {
        case 0: values.push_back(c.op("tanh", {x})); break;
        case 1: values.push_back(c.op("mul", {x, values[1]})); break;
        case 2: values.push_back(c.op("add", {x, x})); break;
        case 3:
          if (last > 0 && dims.back() == 4) values.push_back(c.op("tanh", {c.op("matmul", {x, c.weights({4, 4})})}));
          break;
        case 4: values.push_back(c.composite("softmax", {x}, {{"axis", last}})); break;
        case 5: values.push_back(c.composite("sigmoid", {x})); break;
        case 6:
          if (dims.back() == 4)
            values.push_back(
                c.composite("layer_norm", {x, values[1], c.weights({4})}, {{"axis", last}, {"epsilon", 0.1}}));
          break;
        default:
          values.push_back(
              c.op("reduce", {x}, {{"axes", Ints{last}}, {"keepdims", true}, {"kind", std::string("sum")}}));
          values.push_back(c.op("sub", {x, values.back()}));
          break;
      }
    }
    c.expect_differences(c.op("sin", {values.back()}));
  }
}

TEST(Gradients, SymbolicShapes) {
  const Graph graph = parse_graph(R"(
graph @main[n in 1..9](%x: f64[n,3], %b: f64[3]) -> (%y: f64[n]) {
  %s = mul(%x, %b) : f64[n,3]
  %t = tanh(%s) : f64[n,3]
  %y = reduce(%t) {axes = [1], keepdims = false, kind = "sum"} : f64[n]
})",
                                  standard_ops());
  const Graph with = gradients(graph, graph.outputs[0], graph.inputs, standard_ops());
  EXPECT_THAT(verify(with), testing::IsEmpty());
  EXPECT_EQ(with.type(with.outputs[1]).to_string(), "f64[n,3]");
  EXPECT_EQ(with.value(with.outputs[2]).name, "b.gradient");
}

TEST(Gradients, WhatHasNone) {
  const auto message = [](const std::string& text) {
    const Graph graph = parse_graph(text, standard_ops());
    try {
      gradients(graph, graph.outputs[0], graph.inputs, standard_ops());
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(
      message(R"(graph @main(%x: f32[3]) -> (%y: f32[]) {
  %y = reduce(%x) {axes = [0], keepdims = false, kind = "prod"} : f32[] loc("product")
})"),
      testing::AllOf(testing::HasSubstr("TSR-2072"), testing::HasSubstr("reduce has no gradient: kind = \"prod\""),
                     testing::HasSubstr("product")));
  EXPECT_THAT(message(R"(graph @main(%x: f32[3]) -> (%y: f32[3]) {
  %y = cumulate(%x) {axis = 0, kind = "sum"} : f32[3]
})"),
              testing::HasSubstr("cumulate has no gradient: the operator has no rule"));
}

}  // namespace
}  // namespace tessera
