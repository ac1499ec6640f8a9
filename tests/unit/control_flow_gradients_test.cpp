// Gradients of branches, loops and bodies of one's own, first and second, in all forms.
#include <algorithm>
#include <cmath>
#include <random>

#include "graph/parser.h"
#include "unit/derivative_case.h"
#include "unit/random_loop.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Case = DerivativeCase;

TEST(ControlFlowGradients, Loops) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Case c(seed);
    const RandomLoop form = random_form(seed);
    const ValueId state = c.input({3}), rows = c.input({form.trip, 3}), weights = c.input({3, 3}), bias = c.input({3});
    const std::vector<ValueId> results = add_loop(c.builder(), form, state, rows, weights, bias);
    // One result, or all of them together.
    ValueId y = results[seed % 5];
    if (seed % 3 == 0) {
      const ValueId stacked = c.op("mul", {results[3], results[4]});
      const ValueId sums =
          c.op("reduce", {stacked}, {{"axes", Ints{0}}, {"keepdims", false}, {"kind", std::string("sum")}});
      y = c.op("add", {c.op("mul", {c.op("mul", {results[0], results[1]}), results[2]}), sums});
    }
    c.expect_derivatives(y, 1e-5);
    if (testing::Test::HasFailure()) break;
  }
}

// Nothing in the regions' own types is longer than the parts of a long loop.
int64_t longest(const Graph& graph) {
  int64_t most = 0;
  for (const auto& value : graph.values())
    for (const int64_t d : value.type.dims()) most = std::max(most, d);
  return most;
}

// Gradients of long loops, of which little is kept, are those of loops of which all is kept.
TEST(ControlFlowGradients, LongLoops) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomLoop form = random_form(seed);
    form.counted = form.has_condition = false;
    form.trip = static_cast<int64_t>(std::vector<int64_t>{5, 16, 17, 36, 50, 101}[seed % 6]);
    Graph graph;
    GraphBuilder builder(graph);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<Tensor> inputs;
    for (const Ints& dims : {Ints{3}, Ints{form.trip, 3}, Ints{3, 3}, Ints{3}}) {
      graph.add_input("x", {DType::kF64, make_shape(dims), {}});
      Tensor& tensor = inputs.emplace_back(DType::kF64, dims);
      for (double& e : tensor.as_mutable<double>()) e = uniform(random);
    }
    const std::vector<ValueId> results =
        add_loop(builder, form, graph.inputs[0], graph.inputs[1], graph.inputs[2], graph.inputs[3]);
    const ValueId y = builder.add(standard_ops().get("mul"), {results[seed % 2], results[0]});
    const auto summed = [&](ValueId v) {
      return builder.add(standard_ops().get("reduce"), {v},
                         {{"axes", Ints{0}}, {"keepdims", false}, {"kind", std::string("sum")}});
    };
    graph.outputs = {
        builder.add(standard_ops().get("add"),
                    {y, builder.add(standard_ops().get("mul"), {summed(results[3]), summed(results[4])})})};
    const Graph whole = gradients(graph, graph.outputs[0], graph.inputs, standard_ops()),
                parts = gradients(graph, graph.outputs[0], graph.inputs, standard_ops(), {.most_kept_bytes = 0});
    ASSERT_THAT(verify(parts), testing::IsEmpty()) << print(parts);
    GraphInterpreter interpreter;
    const std::vector<Tensor> want = interpreter.evaluate(whole, inputs), found = interpreter.evaluate(parts, inputs);
    ASSERT_EQ(found.size(), want.size());
    for (size_t i = 0; i < found.size(); ++i)
      for (int64_t e = 0; e < found[i].num_elements(); ++e)
        if (const double number = want[i].get_double(e);
            std::isfinite(number))  // some of the longest grow out of bounds
          ASSERT_NEAR(found[i].get_double(e), number, 1e-10 * std::max(1.0, std::abs(number)));
    if (form.trip < 16) continue;
    size_t nested_loops = 0;
    for (const Node& node : parts.nodes())
      if (node.op->kind == OpKind::kLoop)
        for (const Node& inner : node.regions[0]->nodes()) {
          if (inner.op->kind != OpKind::kLoop) continue;
          ++nested_loops;
          const auto most = static_cast<int64_t>(std::sqrt(static_cast<double>(form.trip)));
          EXPECT_LE(longest(*node.regions[0]), 2 * std::max<int64_t>(most, 3)) << print(parts);  // of two rows each
        }
    EXPECT_GE(nested_loops, 2u) << print(parts);
  }
}

Graph parsed(const std::string& text) { return parse_graph(text, standard_ops()); }

std::vector<double> elements(const Tensor& tensor) {
  std::vector<double> list;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) list.push_back(tensor.get_double(i));
  return list;
}

std::vector<std::vector<double>> gradients_at(const Graph& graph, const std::vector<std::vector<double>>& at) {
  std::vector<ValueId> wrt;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < at.size(); ++i) {
    const TensorType& type = graph.type(graph.inputs[i]);
    Tensor& tensor = inputs.emplace_back(type.dtype, type.dims());
    for (int64_t e = 0; e < tensor.num_elements(); ++e) {
      if (type.dtype == DType::kF64) tensor.set_double(e, at[i][static_cast<size_t>(e)]);
      else tensor.set_int(e, static_cast<int64_t>(at[i][static_cast<size_t>(e)]));
    }
    if (type.dtype == DType::kF64) wrt.push_back(graph.inputs[i]);
  }
  const Graph with = gradients(graph, graph.outputs[0], wrt, standard_ops());
  EXPECT_THAT(verify(with), testing::IsEmpty());
  EXPECT_EQ(print(parse_graph(print(with), standard_ops())), print(with));
  GraphInterpreter interpreter;
  const std::vector<Tensor> all = interpreter.evaluate(with, inputs);
  std::vector<std::vector<double>> found;
  for (size_t i = graph.outputs.size(); i < all.size(); ++i) found.push_back(elements(all[i]));
  return found;
}

using testing::ElementsAre;

// sqrt has an infinite slope at 0, and 0 * inf is no number.
TEST(ControlFlowGradients, TheBranchNotTakenLeaksNothing) {
  const Graph graph = parsed(R"(
graph @main(%c: bool[], %x: f64[2]) -> (%y: f64[2]) {
  %y = if(%c, %x) ({
    graph @then(%a: f64[2]) -> (%b: f64[2]) {
      %r = sqrt(%a) : f64[2]
      %b = div(%r, %a) : f64[2]
    }
    graph @else(%a: f64[2]) -> (%b: f64[2]) {
      %b = mul(%a, %a) : f64[2]
    }
  }) : f64[2]
})");
  EXPECT_THAT(gradients_at(graph, {{0}, {0, -3}}), ElementsAre(ElementsAre(0, -6)));
  EXPECT_THAT(gradients_at(graph, {{1}, {1, 4}}), ElementsAre(ElementsAre(-0.5, -0.0625)));
}

// Iterations that did not run, either: the third would divide by 0.
TEST(ControlFlowGradients, IterationsThatDidNotRunLeakNothing) {
  const Graph graph = parsed(R"(
graph @main(%n: i64[], %x: f64[3], %s: f64[]) -> (%y: f64[], %z: f64[3]) {
  %y, %z = loop(%n, %s, %x) {counted = true, num_carried = 1, num_scanned = 1} ({
    graph @body(%i: i64[], %a: f64[], %e: f64[]) -> (%b: f64[], %q: f64[]) {
      %q = div(%a, %e) : f64[]
      %b = mul(%q, %q) : f64[]
    }
  }) : f64[], f64[3]
})");
  // ((s / x0)^2 / x1)^2
  EXPECT_THAT(gradients_at(graph, {{2}, {1, 1, 0}, {1}}), ElementsAre(ElementsAre(-4, -2, 0), ElementsAre(4)));
  EXPECT_THAT(gradients_at(graph, {{0}, {0, 0, 0}, {7}}), ElementsAre(ElementsAre(0, 0, 0), ElementsAre(1)));
  EXPECT_THAT(gradients_at(graph, {{-5}, {0, 0, 0}, {7}}), ElementsAre(ElementsAre(0, 0, 0), ElementsAre(1)));
}

// Only what is asked for: the loop keeps nothing for a linear recurrence, and has no sum for what has no gradient.
TEST(ControlFlowGradients, NothingElseIsComputed) {
  const Graph graph = parsed(R"(
graph @main(%x: f64[4,2], %s: f64[2], %w: f64[2]) -> (%y: f64[2]) {
  %y = loop(%s, %x, %w) {num_carried = 1, num_scanned = 1} ({
    graph @body(%i: i64[], %a: f64[2], %e: f64[2], %m: f64[2]) -> (%b: f64[2]) {
      %p = mul(%a, %m) : f64[2]
      %b = add(%p, %e) : f64[2]
    }
  }) : f64[2]
})");
  const Graph with = gradients(graph, graph.outputs[0], {graph.inputs[0], graph.inputs[1]}, standard_ops());
  EXPECT_EQ(with.node(0).outputs.size(), 1u) << print(with);
  size_t loops = 0;
  for (const Node& node : with.nodes())
    if (node.op->kind == OpKind::kLoop) {
      if (loops++ == 1) {
        EXPECT_EQ(node.outputs.size(), 2u) << print(with);
      }
    }
  EXPECT_EQ(loops, 2u);
}

TEST(ControlFlowGradients, LoopsThatNothingBounds) {
  const Graph graph = parsed(R"(
graph @main(%n: i64[], %s: f64[]) -> (%y: f64[]) {
  %y = loop(%n, %s) {counted = true, num_carried = 1} ({
    graph @body(%i: i64[], %a: f64[]) -> (%b: f64[]) {
      %b = mul(%a, %a) : f64[]
    }
  }) : f64[] loc("steps")
})");
  try {
    gradients(graph, graph.outputs[0], {graph.inputs[1]}, standard_ops());
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("TSR-2072"), testing::HasSubstr("nothing bounds"),
                                             testing::HasSubstr("steps")));
  }
}

// What has no gradient inside of regions is named with all else.
TEST(ControlFlowGradients, OperatorsWithoutAGradientInRegions) {
  const Graph graph = parsed(R"(
graph @main(%x: f64[3], %c: bool[]) -> (%y: f64[3]) {
  %y = if(%c, %x) ({
    graph @then(%a: f64[3]) -> (%b: f64[3]) {
      %i = bitcast(%a) {to = i64} : i64[3] loc("first")
      %f = bitcast(%i) {to = f64} : f64[3]
      %b = add(%a, %f) : f64[3]
    }
    graph @else(%a: f64[3]) -> (%b: f64[3]) {
      %s = constant {value = dense<f64[1] 1>} : f64[1]
      %r = reshape(%a) {shape = [1, 1, 3]} : f64[1,1,3]
      %z = constant {value = dense<f64[3] 1 1 1>} : f64[3]
      %k = mul(%z, %a) : f64[3]
      %t = resize(%r, %k) {coordinate = "half_pixel", mode = "linear", sizes = [1, 1, 3]} : f64[1,1,3] loc("second")
      %b = reshape(%t) {shape = [3]} : f64[3]
    }
  }) : f64[3]
})");
  try {
    gradients(graph, graph.outputs[0], {graph.inputs[0]}, standard_ops());
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("resize"), testing::HasSubstr("second")));
  }
}

TEST(ControlFlowGradients, BodiesOfOnesOwn) {
  struct Row {
    std::vector<Ints> operands;
    const char* body;
    double lo = 0.5, hi = 1.5;
  };
  const Row rows[] = {
      {{{3}}, "out[i<3] = x0[i]"},
      {{{3}}, "out[i<2] = x0[i]"},
      {{{3}}, "out[i<2] = (x0[i] * x0[(i + 1)])"},
      {{{3, 2}}, "out[i<2, j<3] = sin(x0[j, i])"},
      {{{3, 4}, {4, 2}}, "out[i<3, j<2] = sum[k<4] (x0[i, k] * x1[k, j])"},
      {{{3}, {3}}, "out[i<3] = sum[k<3] select((k <= i), (x0[k] / x1[i]), 0:f64)"},
      {{{4}}, "out[i<6] = select(((1 <= i) & (i < 5)), exp(x0[(i - 1)]), 2:f64)"},
      {{{4}},
       "out[i<4] = sum[k<3] select(((0 <= ((i + k) - 1)) & (((i + k) - 1) < 4)), sqrt(x0[((i + k) - 1)]), 0:f64)"},
      {{{3, 3}}, "out[i<3] = (x0[i, i] * x0[0, i])"},
      {{{2, 3}}, "out[i<2] = prod[k<3] x0[i, k]"},
      {{{2, 3}}, "out[i<2] = max[k<3] (x0[i, k] * x0[i, k])"},
      {{{2, 3}}, "out[i<2] = min[k<3] x0[i, k]"},
      {{{2, 3}}, "out[] = sum[k<2, l<3] log(x0[k, l])"},
      {{{5}}, "out[i<2] = x0[(i * 3)]"},
      {{{3}, {3}}, "out[i<3] = pow(x0[i], x1[i])"},
      {{{3}, {3}}, "out[i<3] = max(tanh(x0[i]), min(x1[i], 1:f64))"},
      {{{3}}, "out[i<3] = cast:f64(cast:i64(x0[i]))"},
      {{{0}}, "out[i<0] = x0[i]"},
      {{{3, 0}}, "out[i<3] = sum[k<0] x0[i, k]"},
      {{{3}}, "out[i<3] = erf(cos(x0[floormod((i * 2), 3)]))"},
  };
  uint64_t seed = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE(row.body);
    Case c(++seed);
    std::vector<ValueId> operands;
    for (const Ints& dims : row.operands) operands.push_back(c.input(dims, row.lo, row.hi));
    c.expect_derivatives(c.op("compute", operands, {{"body", std::string(row.body)}}));
  }
}

// Elements that are read at places which others name, some of them twice.
TEST(ControlFlowGradients, BodiesThatReadAtPlacesOfData) {
  const Graph graph = parsed(R"text(
graph @main(%x: f64[3], %p: i64[4]) -> (%y: f64[4]) {
  %y = compute(%x, %p) {body = "out[i<4] = (x0[max(min(x1[i], 2), 0)] * x0[0])"} : f64[4]
})text");
  EXPECT_THAT(gradients_at(graph, {{2, 3, 5}, {1, 2, 1, 0}}), ElementsAre(ElementsAre(3 + 5 + 3 + 4, 4, 2)));
}

// An arm that was not taken has no say, whatever it would be.
TEST(ControlFlowGradients, ArmsOfBodies) {
  const Graph graph = parsed(R"text(
graph @main(%x: f64[2]) -> (%y: f64[2]) {
  %y = compute(%x) {body = "out[i<2] = select((0:f64 < x0[i]), sqrt(x0[i]), (x0[i] * x0[i]))"} : f64[2]
})text");
  EXPECT_THAT(gradients_at(graph, {{0, 4}}), ElementsAre(ElementsAre(0, 0.25)));
}

TEST(ControlFlowGradients, RegionPools) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Case c(seed);
    const ValueId x = c.input({2, 4, 5, 3});
    Tensor boxes(DType::kF64, {3, 4}), images(DType::kI64, {3});
    for (int64_t r = 0; r < 3; ++r) {
      const double left = c.uniform(-2, 4), top = c.uniform(-2, 4);
      const double corners[] = {left, top, left + c.uniform(0, 5), top + c.uniform(0, 5)};
      for (int64_t i = 0; i < 4; ++i) boxes.set_double(4 * r + i, corners[i]);
      images.set_int(r, c.roll(-1, 1));
    }
    const auto constant = [&](Tensor tensor) {
      return c.op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
    };
    const ValueId pooled =
        c.op("region_pool", {c.op("mul", {x, x}), constant(std::move(boxes)), constant(std::move(images))},
             {{"rows", c.roll(1, 3)},
              {"columns", c.roll(1, 2)},
              {"scale", c.uniform(0.5, 1.5)},
              {"kind", std::string(seed % 3 == 2 ? "average" : "max")},
              {"half_pixel", seed % 2 == 0}});
    c.expect_derivatives(c.op("sin", {pooled}), 1e-5);
  }
}

TEST(ControlFlowGradients, PoolsTwice) {
  for (const char* kind : {"max", "min", "sum"})
    for (const int64_t stride : {1, 2, 3}) {
      Case c(static_cast<uint64_t>(stride));
      const ValueId x = c.input({2, 1, 5, 4});
      const ValueId pooled = c.op("reduce_window", {c.op("mul", {x, x})},
                                  {{"kind", std::string(kind)},
                                   {"window", Ints{2, 2}},
                                   {"strides", Ints{stride, stride}},
                                   {"pads_begin", Ints{1, 0}},
                                   {"pads_end", Ints{0, 1}},
                                   {"dilations", Ints{1, 1}}});
      c.expect_derivatives(c.op("sin", {pooled}), 1e-5);
    }
}

}  // namespace
}  // namespace tessera
