// Derivatives of a graph of f64 inputs, in every way in which there are any: forward, backward, twice, by differences.
//
// J' g is the gradient of <f(x), g>; it is linear in g, so that the gradient of <J' g, t> with respect to g is J t, and
// with respect to x a product with second derivatives. All are computed by the interpreter in f64.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "autodiff/functions.h"
#include "autodiff/gradients.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"

namespace tessera {

inline double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) sum += a.get_double(i) * b.get_double(i);
  return sum;
}

class DerivativeCase {
 public:
  using Ints = std::vector<int64_t>;

  explicit DerivativeCase(uint64_t seed) : random_(seed), builder_(graph_) {}

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
  Graph& graph() { return graph_; }
  GraphBuilder& builder() { return builder_; }
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

    // The same by the forward sweep.
    std::vector<size_t> all;
    for (size_t i = 0; i < n; ++i) all.push_back(i);
    const Graph forwards = jacobian_vector(graph_, all, standard_ops());
    ASSERT_THAT(verify(forwards), testing::IsEmpty());
    std::vector<Tensor> directed = inputs_;
    directed.insert(directed.end(), t.begin(), t.end());
    const Tensor by_sweep = evaluate(forwards, directed).at(1);
    double largest = 1;
    for (int64_t e = 0; e < forward.num_elements(); ++e) largest = std::max(largest, std::abs(forward.get_double(e)));
    for (int64_t e = 0; e < forward.num_elements(); ++e)
      ASSERT_NEAR(by_sweep.get_double(e), forward.get_double(e), 1e-11 * largest) << print(forwards);

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

}  // namespace tessera
