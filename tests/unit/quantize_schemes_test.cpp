// Weights as integers and in groups, rounding for data, equalisation, and graphs of the schemes that need no ranges.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "graph/parser.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "quantize/equalize.h"
#include "quantize/layer_inputs.h"
#include "quantize/quantize_graph.h"
#include "quantize/switched_graph.h"
#include "quantize/weight_rows.h"
#include "support/error.h"

namespace tessera {
namespace {

Tensor random_tensor(std::vector<int64_t> dims, unsigned seed, double deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> draw(0.1, deviation);
  Tensor tensor(DType::kF32, std::move(dims));
  for (float& number : tensor.as_mutable<float>()) number = static_cast<float>(draw(random));
  return tensor;
}

std::vector<Tensor> inputs_for(const Graph& graph, unsigned seed) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(random_tensor(*static_dims(graph.type(id).shape), seed++));
  return inputs;
}

double relative_error(const Tensor& want, const Tensor& got) {
  double largest = 0, off = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    largest = std::max(largest, std::abs(want.get_double(i)));
    off = std::max(off, std::abs(want.get_double(i) - got.get_double(i)));
  }
  return largest > 0 ? off / largest : off;
}

double error_of(const WeightRows& weights, const IntegerRows& rows) {
  double error = 0;
  for (int64_t r = 0; r < rows.rows; ++r)
    for (int64_t k = 0; k < rows.terms; ++k)
      error += std::pow(static_cast<double>(weights.row(r)[static_cast<size_t>(k)]) - rows.real(r, k), 2);
  return error;
}

TEST(WeightRows, OutputsAreRows) {
  const Tensor matrix = random_tensor({3, 2}, 1), image = random_tensor({2, 3, 2, 1}, 2);
  const WeightRows columns = rows_of(matrix, 1), channels = rows_of(image, 0);
  EXPECT_EQ(columns.rows, 2);
  EXPECT_EQ(columns.terms, 3);
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t k = 0; k < 3; ++k)
      EXPECT_EQ(columns.row(r)[static_cast<size_t>(k)], matrix.as<float>()[static_cast<size_t>(k * 2 + r)]);
  EXPECT_EQ(channels.terms, 6);
  EXPECT_TRUE(std::equal(channels.numbers.begin(), channels.numbers.end(), image.as<float>().begin()));
}

TEST(WeightRows, EachGroupHasAStep) {
  for (const int64_t terms : {1, 31, 32, 33, 100})
    for (const int bits : {4, 8})
      for (const bool has_zero : {false, true}) {
        SCOPED_TRACE(fmt::format("{} terms, {} bits, {}", terms, bits, has_zero));
        const WeightRows weights = rows_of(random_tensor({5, terms}, 3), 0);
        IntegerGrid grid{.low = 0, .high = (1 << bits) - 1, .group = 32, .has_zero = has_zero, .fits_scale = true};
        const IntegerRows rows = nearest_integers(weights, grid, "w");
        EXPECT_EQ(rows.groups, (terms + 31) / 32);
        for (const int16_t integer : rows.integers) EXPECT_TRUE(integer >= grid.low && integer <= grid.high);
        grid.fits_scale = false;
        EXPECT_LE(error_of(weights, rows),
                  error_of(weights, nearest_integers(weights, grid, "w")) * (1 + 1e-5) + 1e-12);
      }
}

TEST(WeightRows, ZerosTinyAndHugeNumbersHaveAScale) {
  for (const float number : {0.F, 1e-45F, 1e-38F, 3e38F, -3e38F})
    for (const bool fits : {false, true})
      for (const bool has_zero : {false, true}) {
        WeightRows weights{1, 16, std::vector<float>(16, number)};
        const IntegerGrid grid{.low = 0, .high = 15, .group = 16, .has_zero = has_zero, .fits_scale = fits};
        const IntegerRows rows = nearest_integers(weights, grid, "w");
        EXPECT_TRUE(std::isnormal(rows.scales[0])) << number;
        EXPECT_NEAR(rows.real(0, 3) / 3e38, number / 3e38, 0.01) << number;
      }
}

TEST(WeightRows, PackedAsDequantizeBlocksReadsThem) {
  const WeightRows weights = rows_of(random_tensor({3, 40}, 4), 0);
  for (const int bits : {4, 8}) {
    const IntegerGrid grid{.low = 0, .high = (1 << bits) - 1, .group = 16, .has_zero = true, .fits_scale = true};
    const IntegerRows rows = nearest_integers(weights, grid, "w");
    const PackedRows packed = packed_rows(rows, bits);
    const Graph graph = parse_graph(
        fmt::format("graph @g(%w: u8[3,{0}], %s: f32[3,3], %z: u8[3,{1}]) -> (%y: f32[3,40]) {{ %y = "
                    "dequantize_blocks(%w, %s, %z) {{elements = 40, format = \"u{2}\", group = 16}} : f32[3,40] }}",
                    48 * bits / 8, bits == 4 ? 2 : 3, bits),
        standard_ops());
    const Tensor got = GraphInterpreter().evaluate(graph, {packed.bytes, packed.scales, packed.zeros})[0];
    for (int64_t i = 0; i < 120; ++i)
      EXPECT_FLOAT_EQ(got.as<float>()[static_cast<size_t>(i)], rows.real(i / 40, i % 40));
  }
}

// The mean square of (weights - integers) x over the data.
double product_error(const WeightRows& weights, const IntegerRows& rows, const std::vector<Tensor>& data) {
  double error = 0;
  for (const Tensor& x : data)
    for (int64_t r = 0; r < rows.rows; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < rows.terms; ++k)
        sum += (static_cast<double>(weights.row(r)[static_cast<size_t>(k)]) - rows.real(r, k)) * x.get_double(k);
      error += sum * sum;
    }
  return error;
}

TEST(RoundForData, LosesLessThanTheNearestIntegers) {
  constexpr int64_t kTerms = 24;
  std::vector<Tensor> data;
  std::vector<float> gram(kTerms * kTerms, 0);
  for (unsigned i = 0; i < 200; ++i) {
    // Neighbours are alike, as they are in pictures.
    Tensor x = random_tensor({kTerms}, 100 + i);
    for (size_t k = 1; k < kTerms; ++k)
      x.as_mutable<float>()[k] = 0.8F * x.as<float>()[k - 1] + 0.6F * x.as<float>()[k];
    for (size_t a = 0; a < kTerms; ++a)
      for (size_t b = 0; b < kTerms; ++b) gram[a * kTerms + b] += x.as<float>()[a] * x.as<float>()[b];
    data.push_back(std::move(x));
  }
  const WeightRows weights = rows_of(random_tensor({6, kTerms}, 5), 0);
  const IntegerGrid grid{.low = -7, .high = 7};
  const IntegerRows nearest = nearest_integers(weights, grid, "w");
  IntegerRows rounded = nearest;
  round_for_data(rounded, weights, grid, gram);
  EXPECT_LT(product_error(weights, rounded, data), 0.5 * product_error(weights, nearest, data));
  for (size_t i = 0; i < rounded.integers.size(); ++i) {
    EXPECT_LE(std::abs(rounded.integers[i] - nearest.integers[i]), 1);
    EXPECT_TRUE(rounded.integers[i] >= grid.low && rounded.integers[i] <= grid.high);
  }
}

// Where two terms are the same number, only their sum matters: 0.4 + 0.4 is one integer and none.
TEST(RoundForData, HasTheHandComputedOptimum) {
  const WeightRows weights{1, 2, {0.4F, 0.4F}};
  IntegerRows rows{.rows = 1, .terms = 2, .group = 2, .groups = 1, .integers = {0, 0}, .scales = {1}, .zeros = {0}};
  round_for_data(rows, weights, {.low = -1, .high = 1}, std::vector<float>{1, 1, 1, 1});
  EXPECT_EQ(rows.integers[0] + rows.integers[1], 1);
}

constexpr const char* kConvs = R"(
graph @net(%x: f32[1,4,6,5]) -> (%y: f32[1,3,6,5]) {
  %w = constant {value = splat<f32[8,2,3,3] 1>} : f32[8,2,3,3]
  %a = conv(%x, %w) {dilations = [1, 1], groups = 2, input_dilations = [1, 1], pads_begin = [1, 1], pads_end = [1, 1],
                     strides = [1, 1]} : f32[1,8,6,5] loc("First")
  %b = constant {value = dense<f32[8,1,1] 1 -1 2 -2 0.5 0 3 1>} : f32[8,1,1]
  %c = add(%a, %b) : f32[1,8,6,5]
  %zero = constant {value = dense<f32[] 0>} : f32[]
  %d = max(%c, %zero) : f32[1,8,6,5]
  %v = constant {value = splat<f32[3,8,1,1] 1>} : f32[3,8,1,1]
  %y = conv(%d, %v) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0], pads_end = [0, 0],
                     strides = [1, 1]} : f32[1,3,6,5] loc("Second")
})";

constexpr const char* kProducts = R"(
graph @net(%x: f32[3,40]) -> (%y: f32[3,7]) {
  %w = constant {value = splat<f32[40,33] 1>} : f32[40,33]
  %a = matmul(%x, %w) : f32[3,33] loc("First")
  %t = tanh(%a) : f32[3,33]
  %v = constant {value = splat<f32[33,7] 1>} : f32[33,7]
  %y = matmul(%t, %v) : f32[3,7] loc("Second")
})";

// With weights of their own for the constants that are splats.
Graph with_random_weights(const char* text) {
  Graph graph = parse_graph(text, standard_ops());
  unsigned seed = 50;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    Node& node = graph.node(static_cast<NodeId>(n));
    if (node.op->kind != OpKind::kConstant) continue;
    const TensorPtr given = node.attrs.get<TensorPtr>("value");
    if (given->dims().size() >= 2 && given->num_elements() > 16)
      node.attrs.set("value", TensorPtr(std::make_shared<const Tensor>(random_tensor(given->dims(), seed++, 0.5))));
  }
  return graph;
}

std::vector<QuantizedProduct> products_of(const Graph& graph, const QuantizeOptions& options) {
  std::vector<QuantizedProduct> products;
  for (const WeightedProduct& product : weighted_products(graph)) {
    if (!has_form(graph, product, options.scheme)) continue;
    const WeightRows rows = rows_of(constant_tensor(graph, product.weights), product.outputs_axis);
    products.push_back({.product = product,
                        .range = {-5, 8},
                        .weights = std::make_shared<const IntegerRows>(
                            nearest_integers(rows, weight_grid(rows.terms, options), product.name))});
  }
  return products;
}

TEST(Schemes, AreNearTheGraph) {
  for (const char* text : {kConvs, kProducts})
    for (const Scheme scheme : {Scheme::kStatic, Scheme::kDynamic, Scheme::kWeightOnly})
      for (const Granularity granularity : {Granularity::kTensor, Granularity::kChannel, Granularity::kGroup}) {
        if (granularity == Granularity::kGroup && scheme != Scheme::kWeightOnly) continue;
        if (text == kConvs && scheme == Scheme::kWeightOnly) continue;
        SCOPED_TRACE(fmt::format("scheme {}, granularity {}", static_cast<int>(scheme), static_cast<int>(granularity)));
        const Graph graph = with_random_weights(text);
        QuantizeOptions options;
        options.scheme = scheme;
        options.weights = granularity;
        const std::vector<QuantizedProduct> products = products_of(graph, options);
        ASSERT_EQ(products.size(), 2U);
        const Graph quantized = quantized_graph(graph, products, options, standard_ops());
        EXPECT_THAT(verify(quantized), testing::IsEmpty());
        const auto inputs = inputs_for(graph, 7);
        const Tensor want = GraphInterpreter().evaluate(graph, inputs)[0];
        const Tensor got = GraphInterpreter().evaluate(quantized, inputs)[0];
        EXPECT_GT(relative_error(want, got), 0);
        EXPECT_LT(relative_error(want, got), 0.05);
        // Switches on and off give the one and the other.
        const Graph switched = switched_graph(graph, products, options, standard_ops());
        EXPECT_THAT(verify(switched), testing::IsEmpty());
        for (const bool on : {false, true}) {
          std::vector<Tensor> more = inputs;
          more.emplace_back(DType::kBool, std::vector<int64_t>{2});
          for (int64_t i = 0; i < 2; ++i) more.back().set_int(i, on);
          const Tensor chosen = GraphInterpreter().evaluate(switched, more)[0];
          EXPECT_LT(relative_error(on ? got : want, chosen), 1e-5) << on;
        }
      }
}

TEST(Schemes, CorrectionsTakeTheMeanOff) {
  for (const char* text : {kConvs, kProducts}) {
    const Graph graph = with_random_weights(text);
    QuantizeOptions options;
    options.weight_bits = 3;
    std::vector<QuantizedProduct> products = products_of(graph, options);
    products.resize(1);
    const auto inputs = inputs_for(graph, 8);
    const Tensor shift = GraphInterpreter().evaluate(shift_graph(graph, products, options, standard_ops()), inputs)[0];
    products[0].correction.assign(shift.as<float>().begin(), shift.as<float>().end());
    const ValueId product = graph.node(products[0].product.node).outputs[0];
    const Graph corrected =
        quantized_graph(with_outputs(graph, {product}, standard_ops()), products, options, standard_ops());
    const Tensor again = GraphInterpreter().evaluate(shift_graph(graph, products, options, standard_ops()), inputs)[0];
    const Tensor want = GraphInterpreter().evaluate(with_outputs(graph, {product}, standard_ops()), inputs)[0];
    const Tensor got = GraphInterpreter().evaluate(corrected, inputs)[0];
    // The mean over each output's numbers.
    const int64_t channels = shift.num_elements(), inner = products[0].product.is_conv ? 30 : 1;
    double largest = 0;
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < want.num_elements(); ++i)
        if (i / inner % channels == c) sum += want.get_double(i) - got.get_double(i);
      EXPECT_NEAR(sum / static_cast<double>(want.num_elements() / channels), 0, 1e-4);
      largest = std::max(largest, std::abs(again.get_double(c)));
    }
    EXPECT_GT(largest, 1e-2);  // there was something to correct
    // A bias behind the product takes the correction in.
    const Graph whole = quantized_graph(graph, products, options, standard_ops());
    const auto additions = [](const Graph& g) {
      return std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& node) { return node.op->name == "add"; });
    };
    EXPECT_EQ(additions(whole), 1);
  }
}

TEST(GramGraph, IsTheSumOverTheTermsOfOutputs) {
  for (const char* text : {kConvs, kProducts}) {
    const Graph graph = with_random_weights(text);
    const std::vector<WeightedProduct> products = weighted_products(graph);
    const auto inputs = inputs_for(graph, 9);
    const std::vector<Tensor> grams = GraphInterpreter().evaluate(gram_graph(graph, products, standard_ops()), inputs);
    for (size_t p = 0; p < products.size(); ++p) {
      const WeightedProduct& product = products[p];
      const ProductTerms terms = product_terms(graph, product);
      EXPECT_EQ(grams[p].dims(), (std::vector<int64_t>{terms.groups, terms.terms, terms.terms}));
      // w^T G w is the sum of the squares of the output that has the weights w.
      const ValueId value = graph.node(product.node).outputs[0];
      const Tensor out = GraphInterpreter().evaluate(with_outputs(graph, {value}, standard_ops()), inputs)[0];
      const WeightRows rows = rows_of(constant_tensor(graph, product.weights), product.outputs_axis);
      const int64_t inner = product.is_conv ? 30 : 1;
      for (int64_t r = 0; r < rows.rows; ++r) {
        double squares = 0, quadratic = 0;
        for (int64_t i = 0; i < out.num_elements(); ++i)
          if (i / inner % rows.rows == r) squares += std::pow(out.get_double(i), 2);
        const int64_t group = r * terms.groups / rows.rows;
        for (int64_t a = 0; a < rows.terms; ++a)
          for (int64_t b = 0; b < rows.terms; ++b)
            quadratic += static_cast<double>(rows.row(r)[static_cast<size_t>(a)]) *
                         rows.row(r)[static_cast<size_t>(b)] *
                         grams[p].get_double((group * terms.terms + a) * terms.terms + b);
        EXPECT_NEAR(quadratic, squares, 1e-3 * squares);
      }
    }
  }
}

TEST(Equalize, ComputesTheSameWithWeightsAboutAsLarge) {
  Graph graph = with_random_weights(kConvs);
  // One channel of the first weights is large, and so is one of the second.
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    Node& node = graph.node(static_cast<NodeId>(n));
    if (node.op->kind != OpKind::kConstant) continue;
    const TensorPtr given = node.attrs.get<TensorPtr>("value");
    if (given->dims().size() != 4) continue;
    Tensor changed(DType::kF32, given->dims());
    const int64_t inner = given->dims()[0] == 8 ? 18 : 1, channels = 8, wanted = given->dims()[0] == 8 ? 2 : 5;
    for (int64_t i = 0; i < given->num_elements(); ++i)
      changed.set_double(i, given->get_double(i) * (i / inner % channels == wanted ? 100 : 1));
    node.attrs.set("value", TensorPtr(std::make_shared<const Tensor>(std::move(changed))));
  }
  // `max` with zero is not seen as ReLU: the composite is.
  EXPECT_EQ(equalized(graph).pairs, 0U);
  std::string text = kConvs;
  const auto begin = text.find("  %zero"), end = text.find("  %v =");
  text.replace(begin, end - begin,
               "  %d = composite(%c) {name = \"relu\"} ({ graph @relu(%p: f32[1,8,6,5]) -> (%q: f32[1,8,6,5]) {\n"
               "    %z = constant {value = dense<f32[] 0>} : f32[]\n    %q = max(%p, %z) : f32[1,8,6,5]\n  } }) : "
               "f32[1,8,6,5]\n");
  const Graph with_relu = with_random_weights(text.c_str());
  const Equalized made = equalized(with_relu);
  EXPECT_EQ(made.pairs, 1U);
  EXPECT_THAT(verify(made.graph), testing::IsEmpty());
  const auto inputs = inputs_for(with_relu, 3);
  EXPECT_LT(relative_error(GraphInterpreter().evaluate(with_relu, inputs)[0],
                           GraphInterpreter().evaluate(made.graph, inputs)[0]),
            1e-5);
  // Each channel is as large in front as behind.
  const std::vector<WeightedProduct> products = weighted_products(made.graph);
  const Tensor& first = constant_tensor(made.graph, products[0].weights);
  const Tensor& second = constant_tensor(made.graph, products[1].weights);
  for (int64_t c = 0; c < 8; ++c) {
    double front = 0, behind = 0;
    for (int64_t i = 0; i < 18; ++i) front = std::max(front, std::abs(first.get_double(c * 18 + i)));
    for (int64_t o = 0; o < 3; ++o) behind = std::max(behind, std::abs(second.get_double(o * 8 + c)));
    EXPECT_NEAR(front / behind, 1, 0.05);
  }
}

}  // namespace
}  // namespace tessera
