// raise_to_composites: every operator in the spellings that exporters use, written as terms of pattern.h. The result
// must be one composite of the right name that computes the same; what only looks alike must stay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/rewrite/raise_to_composites.h"
#include "graph_passes/rewrite/simplify_algebra.h"
#include "graph_passes/support/graph_util.h"
#include "graph_passes/support/pattern.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Shapes = std::map<std::string, Ints>;

// reduce:s and reduce:m are the sum and the maximum over the last dimension, transpose swaps the last two,
// broadcast:g and reshape:g repeat heads. `w` and `b` are constants of their shape, other names are inputs.
class TermBuilder {
 public:
  TermBuilder(const Shapes& shapes, DType dtype) : shapes_(shapes), dtype_(dtype), builder_(graph_) {}

  Graph run(const std::string& text) {
    graph_.outputs = {add(parse_term(text))};
    return std::move(graph_);
  }

 private:
  ValueId add(const Term& term) {
    if (term.kind == Term::Kind::kNumber) {
      Tensor tensor(dtype_, {});
      tensor.set_double(0, term.number);
      return constant(std::move(tensor));
    }
    if (term.kind != Term::Kind::kNode) {
      const auto known = leaves_.find(term.name);
      if (known != leaves_.end()) return known->second;
      const Ints& shape = shapes_.at(term.name);
      if (term.name == "w" || term.name == "b") {
        Tensor tensor(dtype_, shape);
        for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, 0.5 + 0.25 * static_cast<double>(i));
        return leaves_[term.name] = constant(std::move(tensor));
      }
      const DType dtype = term.name == "z" ? DType::kBool : dtype_;
      return leaves_[term.name] = graph_.add_input(term.name, {dtype, make_shape(shape), {}});
    }
    std::vector<ValueId> operands;
    for (const Term& operand : term.operands) operands.push_back(add(operand));
    const TensorType& first = graph_.type(operands[0]);
    const int rank = first.rank();
    Attrs attrs;
    if (term.name == "reduce")
      attrs = {{"kind", std::string(term.label == "s" ? "sum" : "max")}, {"axes", Ints{rank - 1}}, {"keepdims", true}};
    if (term.name == "transpose") {
      Ints perm(static_cast<size_t>(rank));
      std::iota(perm.begin(), perm.end(), 0);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      attrs = {{"perm", perm}};
    }
    if (term.name == "repeat") {  // [H,T,D] -> [2H,T,D]
      const Ints dims = first.dims();
      const ValueId split = op("reshape", {operands[0]}, {{"shape", Ints{dims[0], 1, dims[1], dims[2]}}});
      const ValueId many = op("broadcast", {split}, {{"shape", Ints{dims[0], 2, dims[1], dims[2]}}});
      return op("reshape", {many}, {{"shape", Ints{2 * dims[0], dims[1], dims[2]}}});
    }
    return op(term.name, std::move(operands), std::move(attrs));
  }

  ValueId op(const std::string& name, std::vector<ValueId> operands, Attrs attrs) {
    return builder_.add(standard_ops().get(name), std::move(operands), std::move(attrs));
  }
  ValueId constant(Tensor tensor) { return add_constant(graph_, standard_ops(), std::move(tensor), "c", ""); }

  const Shapes& shapes_;
  DType dtype_;
  Graph graph_;
  GraphBuilder builder_;
  std::map<std::string, ValueId> leaves_;
};

const Shapes kShapes = {{"x", {3, 4}},    {"y", {3, 4}},    {"w", {4}},       {"b", {4}},
                        {"q", {4, 3, 2}}, {"k", {4, 5, 2}}, {"v", {4, 5, 3}}, {"h", {2, 5, 2}},
                        {"r", {2, 5, 3}}, {"m", {1, 3, 5}}, {"z", {3, 5}}};

Graph prepared(const Graph& graph, const PassContext& ctx) {
  Graph result = graph;
  for (const char* pass : {"simplify_algebra", "cse", "raise_to_composites"})
    result = find_graph_pass(pass)->run(result, ctx);
  return result;
}

std::vector<Tensor> inputs_of(const Graph& graph) {
  std::vector<Tensor> inputs;
  int seed = 1;
  for (const ValueId input : graph.inputs) {
    Tensor tensor(graph.type(input).dtype, graph.type(input).dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      seed = (seed * 75 + 74) % 65537;
      tensor.set_double(i, tensor.dtype() == DType::kBool ? (seed % 3 > 0) : seed / 8192.0 - 4);
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

std::string last_name(const Graph& graph) {
  const Node* node = graph.producer(graph.outputs[0]);
  return node->op->kind == OpKind::kComposite ? node->attrs.get<std::string>("name") : node->op->name;
}

class Recognize : public testing::Test {
 protected:
  GraphInterpreter evaluator_;
  Target target_;
  PassContext ctx_{standard_ops(), evaluator_, target_, 3};

  // The composite that `text` becomes; it must be all that is left, and compute the same.
  Graph check(const std::string& text, const std::string& want, DType dtype = DType::kF32) {
    const Graph before = TermBuilder(kShapes, dtype).run(text);
    const Graph after = prepared(before, ctx_);
    EXPECT_TRUE(verify(after).empty()) << verify(after)[0];
    EXPECT_EQ(last_name(after), want) << text << "\n" << print(after);
    int computed = 0;
    for (const Node& node : after.nodes())
      computed += node.op->kind != OpKind::kConstant && node.op->name != "transpose" && node.op->name != "reshape";
    EXPECT_EQ(computed, 1) << text << "\n" << print(after);
    const auto inputs = inputs_of(before);
    const Tensor x = evaluator_.evaluate(before, inputs)[0], y = evaluator_.evaluate(after, inputs)[0];
    const double tolerance = dtype_bits(dtype) == 16 ? 3e-2 : 2e-5;
    for (int64_t i = 0; i < x.num_elements(); ++i)
      EXPECT_NEAR(x.get_double(i), y.get_double(i), tolerance * (1 + std::fabs(x.get_double(i)))) << text;
    return after;
  }

  std::string left(const std::string& text) {
    return last_name(prepared(TermBuilder(kShapes, DType::kF32).run(text), ctx_));
  }
};

TEST_F(Recognize, Gelu) {
  for (const char* text : {
           "mul(mul(x, 0.5), add(erf(div(x, 1.41421356)), 1))",
           "mul(0.5, mul(x, add(1, erf(mul(x, 0.70710678)))))",
           "mul(x, mul(add(erf(mul(x, 0.70710678)), 1), 0.5))",
           "mul(x, add(0.5, mul(0.5, erf(mul(0.70710678, x)))))",
           "div(mul(x, add(1, erf(div(x, 1.41421356)))), 2)",
           "add(mul(0.5, x), mul(mul(x, 0.5), erf(div(x, 1.41421356))))",
           "mul(x, sub(0.5, mul(0.5, erf(mul(x, -0.70710678)))))",
           "mul(mul(0.5, x), add(1, tanh(mul(0.79788456, add(x, mul(0.044715, mul(x, mul(x, x))))))))",
           "mul(mul(0.5, x), add(1, tanh(mul(add(x, mul(pow(x, 3), 0.044715)), 0.79788456))))",
           "mul(x, mul(0.5, add(tanh(mul(mul(x, 0.79788456), add(1, mul(0.044715, mul(x, x))))), 1)))",
       }) {
    check(text, "gelu");
  }
  check("mul(mul(x, 0.5), add(erf(div(x, 1.41421356)), 1))", "gelu", DType::kF16);
  check("mul(mul(x, 0.5), add(erf(div(x, 1.41421356)), 1))", "gelu", DType::kF64);
}

TEST_F(Recognize, GatesAndTheirKin) {
  check("div(1, add(1, exp(neg(x))))", "sigmoid");
  check("div(1, add(exp(sub(0, x)), 1))", "sigmoid");
  check("mul(x, div(1, add(1, exp(mul(x, -1)))))", "silu");
  check("div(x, add(exp(neg(x)), 1))", "silu");
  check("log(add(exp(x), 1))", "softplus");
  check("mul(tanh(log(add(1, exp(x)))), x)", "mish");
  for (const char* text : {
           "div(mul(x, min(max(add(x, 3), 0), 6)), 6)",
           "mul(x, div(max(min(add(3, x), 6), 0), 6))",
           "mul(x, min(max(add(mul(x, 0.16666667), 0.5), 0), 1))",
           "mul(mul(x, 0.16666667), min(max(add(x, 3), 0), 6))",
       }) {
    check(text, "hard_swish");
  }
  for (const char* text : {
           "min(max(add(mul(x, 0.2), 0.5), 0), 1)",
           "max(min(add(div(x, 5), 0.5), 1), 0)",
           "div(min(max(add(x, 3), 0), 6), 6)",
       }) {
    check(text, "hard_sigmoid");
  }
}

TEST_F(Recognize, Normalizations) {
  const std::string e = "exp(sub(x, reduce:m(x)))";
  check(fmt::format("div({0}, reduce:s({0}))", e), "softmax");
  check(fmt::format("mul({0}, div(1, reduce:s({0})))", e), "softmax");
  const std::string d = "sub(x, div(reduce:s(x), 4))";
  for (const std::string& square : {fmt::format("mul({0}, {0})", d), fmt::format("pow({0}, 2)", d)})
    for (const std::string& mean : std::vector<std::string>{"div(reduce:s({}), 4)", "mul(0.25, reduce:s({}))"}) {
      const std::string variance = fmt::format("add({}, 1e-5)", fmt::format(fmt::runtime(mean), square));
      check(fmt::format("div({}, sqrt({}))", d, variance), "layer_norm");
      check(fmt::format("mul({}, div(1, sqrt({})))", d, variance), "layer_norm");
      check(fmt::format("mul({}, pow({}, -0.5))", d, variance), "layer_norm");
      check(fmt::format("add(mul(w, div({}, pow({}, 0.5))), b)", d, variance), "layer_norm");
      check(fmt::format("add(b, mul(mul({}, div(1, sqrt({}))), w))", d, variance), "layer_norm");
    }
  const std::string squares = "add(div(reduce:s(mul(x, x)), 4), 1e-6)";
  check(fmt::format("div(x, sqrt({}))", squares), "rms_norm");
  check(fmt::format("mul(w, mul(x, pow({}, -0.5)))", squares), "rms_norm");
  const Graph affine = check(fmt::format("mul(div(x, sqrt({})), w)", squares), "rms_norm");
  EXPECT_EQ(affine.producer(affine.outputs[0])->inputs.size(), 2u);
}

std::string softmax_of(const std::string& scores) {
  return fmt::format("div(exp(sub({0}, reduce:m({0}))), reduce:s(exp(sub({0}, reduce:m({0})))))", scores);
}

TEST_F(Recognize, Attention) {
  for (const char* scores : {
           "matmul(q, transpose(k))",
           "div(matmul(q, transpose(k)), 1.5)",
           "mul(0.7, matmul(q, transpose(k)))",
           "matmul(mul(q, 0.5), mul(transpose(k), 0.5))",
           "matmul(div(q, 1.5), transpose(mul(k, 0.5)))",
           "add(mul(matmul(q, transpose(k)), 0.7), m)",
           "add(m, matmul(q, transpose(k)))",
           "select(z, div(matmul(q, transpose(k)), 1.5), -10000)",
       }) {
    const Graph after = check(fmt::format("matmul({}, v)", softmax_of(scores)), "attention");
    const Node& node = *after.producer(after.outputs[0]);
    const std::string text = scores;
    EXPECT_EQ(node.inputs.size(), text.find('m') != 0 && text.find("div") != 0 ? 4u : 3u) << scores;
  }
}

TEST_F(Recognize, GroupedAttention) {
  const std::string scores = "mul(matmul(q, transpose(repeat(h))), 0.7)";
  const Graph after = check(fmt::format("matmul({}, repeat(r))", softmax_of(scores)), "attention");
  const Node& node = *after.producer(after.outputs[0]);
  EXPECT_EQ(after.type(node.inputs[1]).dims(), (Ints{2, 5, 2}));
  EXPECT_EQ(after.type(node.inputs[2]).dims(), (Ints{2, 5, 3}));
}

TEST_F(Recognize, LeavesWhatOnlyLooksAlike) {
  EXPECT_EQ(left("mul(mul(x, 0.5), add(erf(div(x, 1.5)), 1))"), "mul");         // another constant
  EXPECT_EQ(left("mul(mul(y, 0.5), add(erf(div(x, 1.41421356)), 1))"), "mul");  // of another value
  EXPECT_EQ(left("min(max(x, 0), 1)"), "min");                                  // a plain clip
  EXPECT_EQ(left("min(max(add(x, 3), 0), 6)"), "min");
  EXPECT_EQ(left("div(1, add(2, exp(neg(x))))"), "div");
  EXPECT_EQ(left("div(exp(sub(x, reduce:m(x))), reduce:s(exp(sub(y, reduce:m(x)))))"), "div");
  EXPECT_EQ(left("div(sub(x, div(reduce:s(x), 5)), sqrt(add(div(reduce:s(mul(x, x)), 4), 1e-5)))"), "div");
}

TEST_F(Recognize, LeavesWhatIsReadFromOutside) {
  Graph graph = TermBuilder(kShapes, DType::kF32).run("mul(mul(x, 0.5), add(erf(div(x, 1.41421356)), 1))");
  for (const Node& node : graph.nodes())
    if (node.op->name == "erf") graph.outputs.push_back(node.outputs[0]);
  EXPECT_EQ(last_name(prepared(graph, ctx_)), "mul");
}

}  // namespace
}  // namespace tessera
