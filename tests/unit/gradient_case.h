// Random operands of an operator in f64, and its gradients beside central differences, by the interpreter.
#pragma once

#include "autodiff/gradients.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"

namespace tessera {

using Ints = std::vector<int64_t>;

inline TensorType real(const Ints& dims) { return {DType::kF64, make_shape(dims), {}}; }

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
  std::vector<ValueId> composites(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return add_composite(builder_, standard_ops(), name, std::move(inputs), std::move(attrs));
  }
  ValueId number(double value) {
    Tensor tensor(DType::kF64, {});
    tensor.set_double(0, value);
    return constant(std::move(tensor));
  }
  Ints dims(ValueId v) const { return graph_.type(v).dims(); }
  // An input of these elements, and a constant of whole numbers.
  ValueId given(const Ints& dims, const std::vector<double>& values) {
    Tensor& tensor = inputs_.emplace_back(DType::kF64, dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, values[static_cast<size_t>(i)]);
    return graph_.add_input("x", real(dims));
  }
  ValueId whole(const Ints& dims, int64_t lo, int64_t hi, DType dtype = DType::kI64) {
    Tensor tensor(dtype, dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_int(i, lo + static_cast<int64_t>(random_() % static_cast<uint64_t>(hi - lo + 1)));
    return constant(std::move(tensor));
  }
  int64_t roll(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(below(static_cast<uint64_t>(hi - lo + 1))); }
  Ints shape(size_t rank, int64_t lo, int64_t hi) {
    Ints dims(rank);
    for (int64_t& d : dims) d = roll(lo, hi);
    return dims;
  }
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

}  // namespace tessera
