// Every operator and composite has derivatives, forward and backward, once and twice, that fit together, or says why
// not.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "autodiff/functions.h"
#include "diagnose/real_graph.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/op_util.h"
#include "support/error.h"
#include "unit/composite_example.h"

namespace tessera {
namespace {

std::vector<Tensor> random_inputs_of(const Graph& graph, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.1, 0.9);
  std::vector<Tensor> inputs;
  for (const ValueId v : graph.inputs) {
    const TensorType& type = graph.type(v);
    Tensor& tensor = inputs.emplace_back(type.dtype, type.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (is_real(type.dtype)) tensor.set_double(i, uniform(random));
      else tensor.set_int(i, static_cast<int64_t>(random() % 2));
    }
  }
  return inputs;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) sum += a.get_double(i) * b.get_double(i);
  return sum;
}

std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  EXPECT_THAT(verify(graph), testing::IsEmpty()) << print(graph);
  GraphInterpreter interpreter;
  return interpreter.evaluate(graph, inputs);
}

std::vector<Tensor> with(const std::vector<Tensor>& first, const std::vector<Tensor>& more) {
  std::vector<Tensor> all;
  for (const auto* list : {&first, &more})
    for (const Tensor& tensor : *list) all.push_back(diagnose::in_f64(tensor).with_dims(tensor.dims()));
  return all;
}

// <J t, g> = <t, J' g>, and H t, s = t, H s of the sum of the outputs. Answers the reason where there are none.
// `tolerance`: relative.
std::string check_derivatives(const Graph& graph, double tolerance = 1e-9) {
  std::vector<size_t> wrt;
  std::vector<ValueId> results;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (is_real(graph.type(graph.inputs[i]).dtype)) wrt.push_back(i);
  std::vector<size_t> real;
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    if (is_real(graph.type(graph.outputs[i]).dtype)) real.push_back(i);
  if (wrt.empty() || real.empty()) return "no real numbers in, or none out";
  try {
    const Graph back = vector_jacobian(graph, wrt, standard_ops()), forth = jacobian_vector(graph, wrt, standard_ops());
    const std::vector<Tensor> x = random_inputs_of(graph, 1), g = random_inputs_of(back, 2),
                              t = random_inputs_of(forth, 3);
    const std::vector<Tensor> given(g.begin() + std::ssize(x), g.end()), along(t.begin() + std::ssize(x), t.end());
    const std::vector<Tensor> pulled = evaluate(back, with(x, given)), pushed = evaluate(forth, with(x, along));
    double left = 0, right = 0, size = 0.1;
    for (size_t k = 0; k < real.size(); ++k) {
      left += dot(pushed[graph.outputs.size() + k], given[k]);
      size += std::abs(dot(pushed[graph.outputs.size() + k], given[k]));
    }
    for (size_t k = 0; k < wrt.size(); ++k) right += dot(pulled[graph.outputs.size() + k], along[k]);
    if (std::isfinite(left)) {
      EXPECT_NEAR(left, right, tolerance * size) << print(graph);
    }

    const Graph twice = hessian_vector(graph, real[0], wrt, standard_ops());
    const std::vector<Tensor> d = random_inputs_of(twice, 4), e = random_inputs_of(twice, 5);
    const std::vector<Tensor> one(d.begin() + std::ssize(x), d.end()), other(e.begin() + std::ssize(x), e.end());
    const std::vector<Tensor> of_one = evaluate(twice, with(x, one)), of_other = evaluate(twice, with(x, other));
    double ab = 0, ba = 0, most = 0.1;
    for (size_t k = 0; k < wrt.size(); ++k) {
      ab += dot(of_one[wrt.size() + k], other[k]);
      ba += dot(of_other[wrt.size() + k], one[k]);
      most += std::abs(dot(of_one[wrt.size() + k], other[k]));
    }
    if (std::isfinite(ab)) {
      EXPECT_NEAR(ab, ba, 10 * tolerance * most) << print(graph);
    }
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-2072") << error.what();
    return error.diagnostic().message;
  }
}

TEST(DerivativeTables, EveryOperator) {
  int differentiated = 0;
  for (const OpDef* op : standard_ops().all()) {
    if (op->example.empty() || op->name == "relayout") continue;  // layouts are chosen later
    // One rank alone sees what all give as its own: gradients_test.cpp evaluates these on three.
    if (op->name == "all_gather" || op->name == "reduce_scatter" || op->name == "all_to_all" ||
        op->name == "rank_shift")
      continue;
    SCOPED_TRACE(op->name);
    const Graph graph = parse_graph(op->example.substr(0, op->example.find("\nrun")), standard_ops());
    if (!graph.symbols.empty()) continue;
    const double tolerance = op->name == "dequantize_blocks" ? 1e-6 : 1e-9;  // it computes in f32
    const std::string reason = check_derivatives(in_f64(graph, standard_ops()).graph, tolerance);
    if (reason.empty()) ++differentiated;
    else RecordProperty(op->name, reason);
    EXPECT_THAT(reason, testing::Not(testing::HasSubstr("no rule")));
  }
  EXPECT_GT(differentiated, 50);
}

TEST(DerivativeTables, EveryComposite) {
  int differentiated = 0;
  for (const CompositeDef* def : all_composites()) {
    SCOPED_TRACE(def->name);
    const Graph graph = build_composite_example(*def, trim(def->example.substr(0, def->example.find("\nrun "))));
    // Quantised values are f32 inside, whatever stands around.
    const double tolerance = def->name.find("quantize") != std::string::npos ? 1e-6 : 1e-9;
    const std::string reason = check_derivatives(in_f64(graph, standard_ops()).graph, tolerance);
    if (reason.empty()) ++differentiated;
    else RecordProperty(def->name, reason);
    EXPECT_THAT(reason, testing::Not(testing::HasSubstr("no rule")));
  }
  EXPECT_GT(differentiated, 35);
}

}  // namespace
}  // namespace tessera
