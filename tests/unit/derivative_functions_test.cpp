// Products with Jacobians, Jacobians and second derivatives as graphs, beside differences and one another.
#include "autodiff/functions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "unit/random_loop.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

// y[2,3] and a sum of x[3], rows[t,3], w[3,3] and b[3], with a loop on the way.
Graph example(uint64_t seed) {
  Graph graph;
  GraphBuilder builder(graph);
  const RandomLoop form = random_form(seed);
  const auto input = [&](const char* name, const Ints& dims) {
    return graph.add_input(name, {DType::kF64, make_shape(dims), {}});
  };
  const ValueId x = input("x", {3}), rows = input("rows", {form.trip, 3}), w = input("w", {3, 3}), b = input("b", {3});
  const std::vector<ValueId> results = add_loop(builder, form, x, rows, w, b);
  const auto op = [&](const char* name, std::vector<ValueId> inputs, Attrs attrs = {}, const char* result = "") {
    return builder.add(standard_ops().get(name), std::move(inputs), std::move(attrs), result);
  };
  const ValueId row = op("reshape", {results[0]}, {{"shape", Ints{1, 3}}}),
                other = op("reshape", {results[1]}, {{"shape", Ints{1, 3}}});
  const ValueId both = op("concat", {row, op("mul", {other, x})}, {{"axis", int64_t{0}}}, "both");
  const ValueId sum = op("reduce", {op("mul", {both, both})},
                         {{"axes", Ints{0, 1}}, {"keepdims", false}, {"kind", std::string("sum")}}, "sum");
  graph.outputs = {both, sum};
  return graph;
}

std::vector<Tensor> random_inputs_of(const Graph& graph, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Tensor> inputs;
  for (const ValueId v : graph.inputs) {
    Tensor& tensor = inputs.emplace_back(DType::kF64, graph.type(v).dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, uniform(random));
  }
  return inputs;
}

std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  EXPECT_THAT(verify(graph), testing::IsEmpty()) << print(graph);
  EXPECT_EQ(print(parse_graph(print(graph), standard_ops())), print(graph));
  GraphInterpreter interpreter;
  return interpreter.evaluate(graph, inputs);
}

std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) {
    Tensor& copy = result.emplace_back(DType::kF64, tensor.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) copy.set_double(i, tensor.get_double(i));
  }
  return result;
}

// Output `output` of `graph` changes by so much when element `e` of input `i` does.
std::vector<double> differences(const Graph& graph, const std::vector<Tensor>& inputs, size_t output, size_t i,
                                int64_t e) {
  constexpr double kStep = 1e-5;
  GraphInterpreter interpreter;
  std::vector<double> result;
  for (const double step : {kStep, -kStep}) {
    std::vector<Tensor> moved = copies(inputs);
    moved[i].set_double(e, moved[i].get_double(e) + step);
    const std::vector<Tensor> found = interpreter.evaluate(graph, moved);
    const Tensor& y = found[output];
    result.resize(static_cast<size_t>(y.num_elements()));
    for (int64_t k = 0; k < y.num_elements(); ++k) result[static_cast<size_t>(k)] += y.get_double(k) / (2 * step);
  }
  return result;
}

TEST(DerivativeFunctions, Jacobians) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Graph graph = example(seed);
    const std::vector<Tensor> inputs = random_inputs_of(graph, seed);
    const std::vector<size_t> wrt = {0, 2, 1};
    const Graph rows = jacobian(graph, 0, wrt, JacobianMode::kReverse, standard_ops()),
                columns = jacobian(graph, 0, wrt, JacobianMode::kForward, standard_ops());
    EXPECT_EQ(rows.value(rows.outputs[1]).name, "w.jacobian");
    const std::vector<Tensor> by_rows = evaluate(rows, inputs), by_columns = evaluate(columns, inputs);
    ASSERT_EQ(by_rows.size(), wrt.size());
    for (size_t k = 0; k < wrt.size(); ++k) {
      Ints dims = {2, 3};
      for (const int64_t d : inputs[wrt[k]].dims()) dims.push_back(d);
      ASSERT_EQ(by_rows[k].dims(), dims);
      ASSERT_EQ(by_columns[k].dims(), dims);
      const int64_t size = inputs[wrt[k]].num_elements();
      for (int64_t e = 0; e < size; ++e) {
        const std::vector<double> want = differences(graph, inputs, 0, wrt[k], e);
        for (int64_t y = 0; y < 6; ++y) {
          const double found = by_rows[k].get_double(y * size + e);
          ASSERT_NEAR(found, want[static_cast<size_t>(y)], 1e-6 * std::max(1.0, std::abs(found)));
          ASSERT_NEAR(found, by_columns[k].get_double(y * size + e), 1e-11 * std::max(1.0, std::abs(found)));
        }
      }
    }
  }
}

TEST(DerivativeFunctions, Hessians) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Graph graph = example(seed);
    const std::vector<Tensor> inputs = random_inputs_of(graph, seed);
    const std::vector<size_t> wrt = {0, 3};
    const std::vector<Tensor> found = evaluate(hessian(graph, 1, wrt, standard_ops()), inputs);
    ASSERT_EQ(found.size(), 4u);
    const Graph first = gradients_alone(graph, 1, wrt, standard_ops());
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 2; ++j) {
        const Tensor& block = found[2 * i + j];
        const int64_t size = inputs[wrt[j]].num_elements();
        for (int64_t e = 0; e < size; ++e) {
          const std::vector<double> want = differences(first, inputs, i, wrt[j], e);
          for (size_t k = 0; k < want.size(); ++k) {
            const double own = block.get_double(static_cast<int64_t>(k) * size + e);
            ASSERT_NEAR(own, want[k], 1e-5 * std::max(1.0, std::abs(own)));
            // Second derivatives do not depend on the order.
            const int64_t turned = e * static_cast<int64_t>(want.size()) + static_cast<int64_t>(k);
            ASSERT_NEAR(own, found[2 * j + i].get_double(turned), 1e-10 * std::max(1.0, std::abs(own)));
          }
        }
      }
    // Along a direction.
    std::vector<Tensor> given = copies(inputs);
    for (const Tensor& t : random_inputs_of(first, seed + 100)) given.push_back(copies({t})[0]);
    given.erase(given.begin() + 4 + 1, given.begin() + 4 + 3);  // directions of x and b
    const std::vector<Tensor> along = evaluate(hessian_vector(graph, 1, wrt, standard_ops()), given);
    ASSERT_EQ(along.size(), 4u);
    for (size_t i = 0; i < 2; ++i)
      for (int64_t k = 0; k < 3; ++k) {
        double want = 0;
        for (size_t j = 0; j < 2; ++j)
          for (int64_t e = 0; e < 3; ++e) want += found[2 * i + j].get_double(k * 3 + e) * given[4 + j].get_double(e);
        ASSERT_NEAR(along[2 + i].get_double(k), want, 1e-10 * std::max(1.0, std::abs(want)));
      }
  }
}

TEST(DerivativeFunctions, ProductsAreAdjoint) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Graph graph = example(seed);
    const std::vector<size_t> wrt = {0, 1, 2, 3};
    const Graph back = vector_jacobian(graph, wrt, standard_ops()), forth = jacobian_vector(graph, wrt, standard_ops());
    EXPECT_EQ(back.value(back.inputs[4]).name, "both.cotangent");
    EXPECT_EQ(forth.value(forth.outputs[2]).name, "both.tangent");
    const std::vector<Tensor> g = random_inputs_of(back, seed), t = random_inputs_of(forth, seed);
    const std::vector<Tensor> pulled = evaluate(back, g), pushed = evaluate(forth, t);
    double left = 0, right = 0, size = 1e-9;
    for (size_t k = 0; k < 2; ++k)
      for (int64_t e = 0; e < pushed[2 + k].num_elements(); ++e) {
        left += pushed[2 + k].get_double(e) * g[4 + k].get_double(e);
        size += std::abs(pushed[2 + k].get_double(e) * g[4 + k].get_double(e));
      }
    for (size_t i = 0; i < 4; ++i)
      for (int64_t e = 0; e < t[4 + i].num_elements(); ++e)
        right += pulled[2 + i].get_double(e) * t[4 + i].get_double(e);
    EXPECT_NEAR(left, right, 1e-11 * size);
  }
}

// Forward through a loop that nothing bounds; states keep their places.
TEST(DerivativeFunctions, WhileLoopsForwards) {
  const Graph graph = parse_graph(R"(
graph @main(%x: f64[]) -> (%y: f64[]) {
  %c = constant {value = dense<bool[] true>} : bool[]
  %y = loop(%c, %x) {has_condition = true, num_carried = 1} ({
    graph @body(%i: i64[], %a: f64[]) -> (%go: bool[], %b: f64[]) {
      %b = mul(%a, %a) : f64[]
      %limit = constant {value = dense<f64[] 100>} : f64[]
      %go = lt(%b, %limit) : bool[]
    }
  }) : f64[]
})",
                                  standard_ops());
  std::vector<Tensor> inputs;
  for (const double v : {3.0, 1.0}) inputs.emplace_back(DType::kF64, Ints{}).set_double(0, v);
  const std::vector<Tensor> found = evaluate(jacobian_vector(graph, {0}, standard_ops()), inputs);
  EXPECT_EQ(found[0].get_double(0), 6561);        // x^8
  EXPECT_EQ(found[1].get_double(0), 8 * 2187.0);  // 8 x^7
}

// States keep their places among inputs and outputs, and sizes may be open.
TEST(DerivativeFunctions, StatesAndSymbols) {
  const Graph graph = parse_graph(R"(
graph @main[n in 1..9](%x: f64[n,2], %s: f64[2] state("s")) -> (%y: f64[n], %t: f64[2] state("s")) {
  %p = mul(%x, %s) : f64[n,2]
  %y = reduce(%p) {axes = [1], keepdims = false, kind = "sum"} : f64[n]
  %one = constant {value = dense<f64[] 1>} : f64[]
  %t = add(%s, %one) : f64[2]
})",
                                  standard_ops());
  for (const Graph& derived :
       {vector_jacobian(graph, {0}, standard_ops()), jacobian_vector(graph, {0}, standard_ops()),
        jacobian(graph, 0, {0}, JacobianMode::kReverse, standard_ops()),
        jacobian(graph, 0, {0}, JacobianMode::kForward, standard_ops()), hessian_vector(graph, 0, {0}, standard_ops()),
        hessian(graph, 0, {0}, standard_ops()), value_and_gradients(graph, 0, {0}, standard_ops()),
        gradients_alone(graph, 0, {0}, standard_ops())}) {
    EXPECT_THAT(verify(derived), testing::IsEmpty()) << print(derived);
    EXPECT_EQ(derived.states.size(), 1u);
    EXPECT_EQ(derived.value(derived.inputs.back()).name, "s");
    EXPECT_EQ(derived.value(derived.outputs.back()).name, "t");
    EXPECT_EQ(print(parse_graph(print(derived), standard_ops())), print(derived));
  }
  const Graph all = jacobian(graph, 0, {0}, JacobianMode::kReverse, standard_ops());
  EXPECT_EQ(all.type(all.outputs[0]).to_string(), "f64[n,n,2]");
}

}  // namespace
}  // namespace tessera
