// Gradients of gradients: derivatives forward, <J t, g> = <t, J' g>, and second derivatives against differences.
//
// J' g is the gradient of <f(x), g>; it is linear in g, so that the gradient of <J' g, t> with respect to g is J t, and
// with respect to x a product with second derivatives. All are computed by the interpreter in f64.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "autodiff/gradients.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) sum += a.get_double(i) * b.get_double(i);
  return sum;
}

class Case {
 public:
  explicit Case(uint64_t seed) : random_(seed), builder_(graph_) {}

  double uniform(double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random_); }
  int64_t roll(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(random_() % static_cast<uint64_t>(hi - lo + 1));
  }
  Tensor tensor(const Ints& dims, double lo, double hi) {
    Tensor result(DType::kF64, dims);
    for (double& e : result.as_mutable<double>()) e = uniform(lo, hi);
    return result;
  }
  ValueId input(const Ints& dims, double lo = -1, double hi = 1) {
    inputs_.push_back(tensor(dims, lo, hi));
    return graph_.add_input("x", {DType::kF64, make_shape(dims), {}});
  }
  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }
  ValueId composite(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return add_composite(builder_, standard_ops(), name, std::move(inputs), std::move(attrs)).at(0);
  }
  Ints dims(ValueId v) const { return graph_.type(v).dims(); }

  // `tolerance`: of derivatives against differences, relative to the largest element.
  void expect_derivatives(ValueId result, double tolerance = 1e-6) {
    graph_.outputs = {result};
    const size_t n = inputs_.size();
    const std::vector<Tensor> t = [&] {
      std::vector<Tensor> directions;
      for (const Tensor& x : inputs_) directions.push_back(tensor(x.dims(), -1, 1));
      return directions;
    }();
    const Tensor g = tensor(dims(result), -1, 1);
    const Graph both = second(result);
    ASSERT_THAT(verify(both), testing::IsEmpty());
    std::vector<Tensor> given = inputs_;
    given.push_back(g);
    given.insert(given.end(), t.begin(), t.end());
    const std::vector<Tensor> found = evaluate(both, given);
    // y, <y, g>, J' g for each input, <J' g, t>, J t, second derivatives for each input.
    ASSERT_EQ(found.size(), 4 + 2 * n);
    const Tensor& forward = found[3 + n];
    double left = dot(forward, g), right = 0, size = 1e-12;
    for (size_t i = 0; i < n; ++i) right += dot(found[2 + i], t[i]);
    for (int64_t e = 0; e < g.num_elements(); ++e) size += std::abs(forward.get_double(e) * g.get_double(e));
    EXPECT_NEAR(left, right, 1e-11 * size) << print(both);

    constexpr double kStep = 1e-5;
    const std::vector<Tensor> above = evaluate(both, moved(given, t, kStep)),
                              below = evaluate(both, moved(given, t, -kStep));
    expect_near(forward, above[0], below[0], kStep, tolerance, "J t");
    for (size_t i = 0; i < n; ++i)
      expect_near(found[4 + n + i], above[2 + i], below[2 + i], kStep, tolerance,
                  fmt::format("second derivatives, input {}", i));
    if (testing::Test::HasFailure()) ADD_FAILURE() << print(graph_);
  }

 private:
  ValueId inner_product(GraphBuilder& builder, ValueId a, ValueId b) const {
    const ValueId product = builder.add(standard_ops().get("mul"), {a, b});
    Ints axes(builder.graph().type(a).shape.size());
    for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
    if (axes.empty()) return product;
    return builder.add(standard_ops().get("reduce"), {product},
                       {{"axes", axes}, {"keepdims", false}, {"kind", std::string("sum")}});
  }

  Graph second(ValueId result) {
    Graph first = graph_;
    const ValueId g = first.add_input("g", first.type(result));
    for (const Tensor& x : inputs_) first.add_input("t", {DType::kF64, make_shape(x.dims()), {}});
    GraphBuilder builder(first);
    first.outputs.push_back(inner_product(builder, result, g));
    const size_t n = inputs_.size();
    Graph with = gradients(first, first.outputs[1], {first.inputs.begin(), first.inputs.begin() + std::ssize(inputs_)},
                           standard_ops());
    GraphBuilder behind(with);
    ValueId sum = -1;
    for (size_t i = 0; i < n; ++i) {
      const ValueId term = inner_product(behind, with.outputs[2 + i], with.inputs[n + 1 + i]);
      sum = sum < 0 ? term : behind.add(standard_ops().get("add"), {sum, term});
    }
    with.outputs.push_back(sum);
    std::vector<ValueId> wrt{with.inputs[n]};
    wrt.insert(wrt.end(), with.inputs.begin(), with.inputs.begin() + std::ssize(inputs_));
    return gradients(with, sum, wrt, standard_ops());
  }

  std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
    return interpreter_.evaluate(graph, inputs);
  }

  static std::vector<Tensor> moved(std::vector<Tensor> given, const std::vector<Tensor>& t, double step) {
    for (size_t i = 0; i < t.size(); ++i) {
      Tensor to(DType::kF64, t[i].dims());
      for (int64_t e = 0; e < to.num_elements(); ++e)
        to.set_double(e, given[i].get_double(e) + step * t[i].get_double(e));
      given[i] = std::move(to);
    }
    return given;
  }

  static void expect_near(const Tensor& found, const Tensor& above, const Tensor& below, double step, double tolerance,
                          const std::string& what) {
    ASSERT_EQ(found.dims(), above.dims());
    double largest = 1;
    for (int64_t e = 0; e < found.num_elements(); ++e) largest = std::max(largest, std::abs(found.get_double(e)));
    for (int64_t e = 0; e < found.num_elements(); ++e)
      ASSERT_NEAR(found.get_double(e), (above.get_double(e) - below.get_double(e)) / (2 * step), tolerance * largest)
          << what << ", element " << e;
  }

  std::mt19937_64 random_;
  Graph graph_;
  GraphBuilder builder_;
  GraphInterpreter interpreter_;
  std::vector<Tensor> inputs_;
};

const std::vector<Ints> kShapes = {{}, {1}, {5}, {3, 1, 2}, {0}, {2, 0, 3}};

TEST(SecondOrder, Unary) {
  struct Row {
    const char* op;
    double lo, hi;
  };
  const Row rows[] = {{"neg", -2, 2},      {"abs", 0.1, 2},   {"exp", -2, 2},      {"log", 0.3, 3}, {"sqrt", 0.3, 3},
                      {"tanh", -2, 2},     {"erf", -2, 2},    {"sin", -4, 4},      {"cos", -4, 4},  {"tan", -1, 1},
                      {"asin", -0.8, 0.8}, {"atan", -3, 3},   {"acos", -0.8, 0.8}, {"sinh", -2, 2}, {"cosh", -2, 2},
                      {"asinh", -3, 3},    {"acosh", 1.3, 4}, {"atanh", -0.8, 0.8}};
  for (const Row& row : rows)
    for (const Ints& dims : kShapes) {
      SCOPED_TRACE(row.op);
      Case c(dims.size());
      c.expect_derivatives(c.op(row.op, {c.input(dims, row.lo, row.hi)}));
    }
}

TEST(SecondOrder, BinaryWithBroadcasting) {
  const std::pair<Ints, Ints> shapes[] = {{{3}, {3}}, {{2, 3}, {3}}, {{2, 1}, {1, 3}}, {{}, {4}}, {{0}, {1}}};
  for (const char* name : {"add", "sub", "mul", "div", "pow", "min", "max"})
    for (const auto& [a, b] : shapes) {
      SCOPED_TRACE(name);
      Case c(7);
      c.expect_derivatives(c.op(name, {c.input(a, 0.5, 1), c.input(b, 1.2, 1.9)}));
    }
}

TEST(SecondOrder, Products) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const auto& [left, right] : {std::pair<Ints, Ints>{{}, {}}, {{2}, {}}, {{2, 1}, {3}}})
        for (const Ints& mnk : {Ints{3, 2, 4}, Ints{1, 1, 1}, Ints{2, 3, 0}}) {
          Case c(3);
          Ints a = left, b = right;
          a.insert(a.end(), {ta ? mnk[2] : mnk[0], ta ? mnk[0] : mnk[2]});
          b.insert(b.end(), {tb ? mnk[1] : mnk[2], tb ? mnk[2] : mnk[1]});
          c.expect_derivatives(c.op("matmul", {c.input(a), c.input(b)}, {{"transpose_a", ta}, {"transpose_b", tb}}));
        }
}

TEST(SecondOrder, Convolutions) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Case c(seed);
    const size_t rank = 1 + seed % 2;
    const int64_t groups = c.roll(1, 2), in = groups * c.roll(1, 2), out = groups * c.roll(1, 2);
    Ints x{c.roll(1, 2), in}, w{out, in / groups}, strides, dilations, stretch, begin, end;
    for (size_t d = 0; d < rank; ++d) {
      w.push_back(c.roll(1, 3));
      dilations.push_back(c.roll(1, 2));
      strides.push_back(c.roll(1, 2));
      stretch.push_back(c.roll(1, 2));
      begin.push_back(c.roll(0, 1));
      end.push_back(c.roll(0, 1));
      x.push_back((w.back() - 1) * dilations.back() + 1 + c.roll(0, 3));
    }
    c.expect_derivatives(c.op("conv", {c.input(x), c.input(w)},
                              {{"strides", strides},
                               {"pads_begin", begin},
                               {"pads_end", end},
                               {"dilations", dilations},
                               {"input_dilations", stretch},
                               {"groups", groups}}));
  }
}

TEST(SecondOrder, Reductions) {
  for (const char* kind : {"sum", "prod", "max", "min"})
    for (const bool keepdims : {false, true})
      for (const Ints& axes : {Ints{0}, Ints{1}, Ints{0, 2}}) {
        SCOPED_TRACE(kind);
        Case c(5);
        c.expect_derivatives(c.op("reduce", {c.input({2, 3, 2}, 0.5, 2)},
                                  {{"axes", axes}, {"keepdims", keepdims}, {"kind", std::string(kind)}}));
      }
}

TEST(SecondOrder, Composites) {
  // Off their kinks.
  for (const char* name : {"relu", "sigmoid", "silu", "softplus", "mish", "hard_swish", "gelu", "softsign"})
    for (const Ints& dims : {Ints{}, Ints{5}, Ints{2, 0}, Ints{3, 2}}) {
      SCOPED_TRACE(name);
      for (const double lo : {-1.9, 0.2}) {
        Case c(dims.size());
        const std::string op = name;
        const Attrs attrs =
            op == "gelu" ? Attrs{{"approximate", std::string(dims.size() % 2 ? "tanh" : "none")}} : Attrs{};
        c.expect_derivatives(c.composite(op, {c.input(dims, lo, lo + 1.5)}, attrs));
      }
    }
  for (const char* name : {"softmax", "log_softmax"})
    for (const int64_t axis : {0, 1, 2}) {
      SCOPED_TRACE(name);
      Case c(9);
      c.expect_derivatives(c.composite(name, {c.input({2, 3, 4}, -2, 2)}, {{"axis", axis}}));
    }
  Case norm(4);
  norm.expect_derivatives(norm.composite("layer_norm", {norm.input({3, 4}), norm.input({4}), norm.input({4})},
                                         {{"axis", int64_t{1}}, {"epsilon", 0.1}}));
}

// Values with several readers, broadcasting, views, products and composites together.
TEST(SecondOrder, RandomGraphs) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Case c(seed);
    std::vector<ValueId> values = {c.input({3, 4}), c.input({4}), c.input({1, 4}), c.input({2, 3, 4})};
    const ValueId square = c.input({4, 4});
    const auto any = [&] {
      const int64_t last = std::ssize(values) - 1;
      return values[static_cast<size_t>(last - c.roll(0, std::min<int64_t>(last, 4)))];
    };
    for (int step = 0; step < 7; ++step) {
      const ValueId x = any();
      const Ints dims = c.dims(x);
      const auto last = static_cast<int64_t>(dims.size()) - 1;
      switch (c.roll(0, 8)) {
        case 0: values.push_back(c.op("tanh", {x})); break;
        case 1: values.push_back(c.op("mul", {x, values[1]})); break;
        case 2: values.push_back(c.op("add", {x, values[2]})); break;
        case 3:
          if (last > 0) values.push_back(c.op("tanh", {c.op("matmul", {x, square})}));
          break;
        case 4: values.push_back(c.composite("softmax", {x}, {{"axis", last}})); break;
        case 5: values.push_back(c.composite("sigmoid", {x})); break;
        case 6:
          values.push_back(c.composite("layer_norm", {x, values[1], values[1]}, {{"axis", last}, {"epsilon", 0.5}}));
          break;
        case 7:
          values.push_back(
              c.op("sub",
                   {x, c.op("reduce", {x}, {{"axes", Ints{last}}, {"keepdims", true}, {"kind", std::string("sum")}})}));
          break;
        default: values.push_back(c.op("sin", {c.op("exp", {c.op("sin", {x})})})); break;
      }
    }
    c.expect_derivatives(c.op("sin", {values.back()}), 1e-5);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace tessera
