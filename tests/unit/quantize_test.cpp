// Ranges that calibration chooses, and graphs with pairs of quantize and dequantize.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "quantize/quantize_graph.h"
#include "quantize/range.h"
#include "support/error.h"

namespace tessera {
namespace {

ValueHistogram histogram_of(const std::vector<float>& numbers) {
  ValueHistogram histogram;
  histogram.add(numbers);
  return histogram;
}

std::vector<float> normal(int count, double mean, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(static_cast<float>(mean), static_cast<float>(deviation));
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = draw(random);
  return numbers;
}

TEST(ValueHistogram, CountsEveryNumberOnce) {
  const std::vector<float> numbers = normal(10000, 3, 100, 1);
  const ValueHistogram histogram = histogram_of(numbers);
  EXPECT_EQ(histogram.count(), 10000);
  EXPECT_EQ(std::accumulate(histogram.bins().begin(), histogram.bins().end(), int64_t{0}), 10000);
  EXPECT_LE(static_cast<int64_t>(histogram.bins().size()), ValueHistogram::kMostBins);
  EXPECT_GT(static_cast<int64_t>(histogram.bins().size()), ValueHistogram::kMostBins / 4);
  for (size_t b = 0; b < histogram.bins().size(); ++b) {
    const double begin = histogram.begin_of(b);
    const auto inside = std::count_if(numbers.begin(), numbers.end(),
                                      [&](float x) { return x >= begin && x < begin + histogram.width(); });
    ASSERT_EQ(histogram.bins()[b], inside) << "bin " << b;
  }
}

TEST(ValueHistogram, TheOrderOfNumbersDoesNotMatter) {
  std::vector<float> numbers = normal(5000, -1, 7, 2);
  numbers.push_back(1e6F);
  numbers.push_back(1e-6F);
  const ValueHistogram at_once = histogram_of(numbers);
  std::reverse(numbers.begin(), numbers.end());
  ValueHistogram one_by_one;
  for (const float number : numbers) one_by_one.add({&number, 1});
  EXPECT_EQ(one_by_one.width(), at_once.width());
  EXPECT_EQ(one_by_one.begin_of(0), at_once.begin_of(0));
  EXPECT_EQ(one_by_one.bins(), at_once.bins());
}

TEST(ValueHistogram, ExtremeNumbers) {
  for (const std::vector<float>& numbers :
       {std::vector<float>{0}, {-0.F, 0}, {1e-45F}, {3e38F, -3e38F}, {1e-45F, 3e38F}, {5, 5, 5}, {-1e-30F}}) {
    const ValueHistogram histogram = histogram_of(numbers);
    EXPECT_EQ(std::accumulate(histogram.bins().begin(), histogram.bins().end(), int64_t{0}),
              static_cast<int64_t>(numbers.size()));
    for (const RangeMethod method :
         {RangeMethod::kMinMax, RangeMethod::kPercentile, RangeMethod::kMse, RangeMethod::kEntropy}) {
      const Range range = chosen_range(histogram, {method});
      EXPECT_LE(range.low, 0);
      EXPECT_GE(range.high, 0);
      EXPECT_TRUE(std::isfinite(range.low) && std::isfinite(range.high));
    }
  }
}

TEST(ValueHistogram, NumbersThatAreNotFiniteAreCountedApart) {
  const ValueHistogram histogram = histogram_of({1, NAN, INFINITY, -INFINITY, 2});
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_EQ(histogram.non_finite(), 3);
  EXPECT_EQ(histogram.max(), 2);
  EXPECT_EQ(chosen_range(histogram_of({NAN}), {}).high, 0);
}

TEST(Range, MinMaxHoldsZero) {
  EXPECT_EQ(chosen_range(histogram_of({2, 5}), {}).low, 0);
  EXPECT_EQ(chosen_range(histogram_of({2, 5}), {}).high, 5);
  EXPECT_EQ(chosen_range(histogram_of({-3, -1}), {}).low, -3);
  EXPECT_EQ(chosen_range(histogram_of({-3, -1}), {}).high, 0);
}

TEST(Range, PercentileLeavesOutTheEnds) {
  std::vector<float> numbers(100000);
  std::iota(numbers.begin(), numbers.end(), -50000.F);
  const ValueHistogram histogram = histogram_of(numbers);
  const Range range = chosen_range(histogram, {RangeMethod::kPercentile, 90});
  EXPECT_NEAR(range.low, -45000, histogram.width());
  EXPECT_NEAR(range.high, 45000, histogram.width());
}

TEST(Range, LeastErrorCutsOffWhatIsRare) {
  std::vector<float> numbers = normal(100000, 0, 1, 3);
  numbers.push_back(20);
  const auto error_of = [&](const Range& range) {
    const ByteScale bytes = byte_scale(range, DType::kU8);
    double sum = 0;
    for (const float x : numbers) {
      const double q = std::clamp(std::nearbyint(x / bytes.scale) + static_cast<double>(bytes.zero), 0.0, 255.0);
      const double off = (q - static_cast<double>(bytes.zero)) * bytes.scale - x;
      sum += off * off;
    }
    return sum;
  };
  const ValueHistogram histogram = histogram_of(numbers);
  const Range range = chosen_range(histogram, {RangeMethod::kMse});
  EXPECT_LT(range.high, 19);
  EXPECT_LT(error_of(range), 0.95 * error_of(chosen_range(histogram, {})));
  for (const double factor : {0.8, 0.9, 1.1, 1.2})
    EXPECT_LT(error_of(range), 1.02 * error_of({range.low, range.high * factor})) << factor;
}

// Migacz's algorithm, bin by bin, for a distribution of eight bins and two integers.
TEST(Range, EntropyByHand) {
  const std::vector<int64_t> counts = {8, 4, 2, 1, 0, 0, 0, 1};
  const auto divergence = [&](size_t threshold) {
    std::vector<double> p(counts.begin(), counts.begin() + static_cast<int64_t>(threshold)), q(threshold, 0);
    const double inside = std::accumulate(p.begin(), p.end(), 0.0);
    p.back() += 16 - inside;
    for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, threshold / 2}, {threshold / 2, threshold}}) {
      double sum = 0;
      int used = 0;
      for (size_t b = begin; b < end; ++b)
        if (counts[b] > 0) sum += static_cast<double>(counts[b]), ++used;
      for (size_t b = begin; b < end; ++b)
        if (counts[b] > 0) q[b] = sum / used;
    }
    double sum = 0;
    for (size_t b = 0; b < threshold; ++b)
      if (p[b] > 0) sum += p[b] / 16 * std::log((p[b] / 16) / std::max(q[b] / inside, 1e-12));
    return sum;
  };
  size_t best = 8;
  for (size_t threshold = 7; threshold >= 2; --threshold)
    if (divergence(threshold) < divergence(best)) best = threshold;
  EXPECT_EQ(entropy_threshold(counts, 2), best);
}

// Half of what ReLU gives are zeros, which are an integer in any case.
TEST(Range, EntropyBesideZeros) {
  std::vector<float> numbers = normal(100000, 0, 1, 5);
  for (float& number : numbers) number = std::max(number, 0.F);
  EXPECT_GT(chosen_range(histogram_of(numbers), {RangeMethod::kEntropy}).high, 3);
}

TEST(Range, EntropyKeepsAllOfAUniformDistribution) {
  EXPECT_EQ(entropy_threshold(std::vector<int64_t>(2048, 10), 128), 2048U);
  EXPECT_EQ(entropy_threshold(std::vector<int64_t>(5, 10), 128), 5U);  // fewer bins than integers
}

TEST(ByteScale, CoversTheRange) {
  const ByteScale one_sided = byte_scale({0, 2.55}, DType::kU8);
  EXPECT_FLOAT_EQ(one_sided.scale, 0.01F);
  EXPECT_EQ(one_sided.zero, 0);
  EXPECT_NEAR(static_cast<double>(byte_scale({-1, 1}, DType::kU8).zero), 127.5, 0.6);
  EXPECT_EQ(byte_scale({-2.55, 0}, DType::kU8).zero, 255);
  EXPECT_FLOAT_EQ(byte_scale({-1, 2.54}, DType::kI8).scale, 0.02F);
  EXPECT_EQ(byte_scale({-1, 2.54}, DType::kI8).zero, 0);
  for (const Range& empty : {Range{0, 0}, Range{0, 1e-40}}) EXPECT_EQ(byte_scale(empty, DType::kU8).scale, 1);
}

constexpr const char* kTwoProducts = R"(
graph @net(%x: f32[2,3,5,5], %z: f32[4,6]) -> (%y: f32[2,4,5,5], %p: f32[4,2]) {
  %w = constant {value = dense<f32[4,3,1,1] 0.5 -1 0.25 2 1 1 -3 0.125 0 0 0 0>} : f32[4,3,1,1]
  %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0], pads_end = [0, 0],
                     strides = [1, 1]} : f32[2,4,5,5] loc("First")
  %v = constant {value = dense<f32[6,2] 1 10 -2 20 3 -30 4 40 -5 50 6 60>} : f32[6,2]
  %p = matmul(%z, %v) {transpose_a = false, transpose_b = false} : f32[4,2]
})";

std::vector<Tensor> random_inputs(const Graph& graph, unsigned seed) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) {
    Tensor tensor(DType::kF32, *static_dims(graph.type(id).shape));
    const std::vector<float> numbers = normal(static_cast<int>(tensor.num_elements()), 0.2, 1, seed++);
    std::copy(numbers.begin(), numbers.end(), tensor.as_mutable<float>().begin());
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

TEST(QuantizedGraph, IsNearTheGraph) {
  const Graph graph = parse_graph(kTwoProducts, standard_ops());
  const std::vector<WeightedProduct> products = weighted_products(graph);
  ASSERT_EQ(products.size(), 2U);
  EXPECT_EQ(products[0].name, "First");
  EXPECT_EQ(products[0].outputs_axis, 0U);
  EXPECT_EQ(products[0].multiply_adds, 2 * 4 * 25 * 3);
  EXPECT_EQ(products[1].name, "p");
  EXPECT_EQ(products[1].outputs_axis, 1U);
  for (const DType activations : {DType::kU8, DType::kI8})
    for (const Granularity weights : {Granularity::kTensor, Granularity::kChannel}) {
      const Graph quantized = quantized_graph(graph, {{products[0], {-4, 4}}, {products[1], {-4, 4}}},
                                              {activations, weights}, standard_ops());
      EXPECT_THAT(verify(quantized), testing::IsEmpty());
      const auto inputs = random_inputs(graph, 4);
      const auto want = GraphInterpreter().evaluate(graph, inputs),
                 got = GraphInterpreter().evaluate(quantized, inputs);
      for (size_t o = 0; o < want.size(); ++o) {
        double largest = 0, off = 0;
        for (int64_t i = 0; i < want[o].num_elements(); ++i) {
          largest = std::max(largest, std::abs(want[o].get_double(i)));
          off = std::max(off, std::abs(want[o].get_double(i) - got[o].get_double(i)));
        }
        EXPECT_GT(off, 0);
        EXPECT_LT(off, 0.03 * largest) << dtype_name(activations);
      }
    }
}

TEST(QuantizedGraph, LayersThatAreNotChosenStay) {
  const Graph graph = parse_graph(kTwoProducts, standard_ops());
  const std::vector<WeightedProduct> products = weighted_products(graph);
  const Graph quantized = quantized_graph(graph, {{products[0], {-4, 4}}}, {}, standard_ops());
  const auto inputs = random_inputs(graph, 9);
  const auto want = GraphInterpreter().evaluate(graph, inputs), got = GraphInterpreter().evaluate(quantized, inputs);
  for (int64_t i = 0; i < want[1].num_elements(); ++i) EXPECT_EQ(want[1].get_double(i), got[1].get_double(i));
}

TEST(QuantizedGraph, WeightsThatAreNotFiniteAreNamed) {
  std::string text = kTwoProducts;
  text.replace(text.find("0.5 -1"), 3, "inf");
  const Graph graph = parse_graph(text, standard_ops());
  const std::vector<WeightedProduct> products = weighted_products(graph);
  try {
    quantized_graph(graph, {{products[0], {0, 1}}}, {}, standard_ops());
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-2091");
    EXPECT_EQ(error.diagnostic().node, "First");
  }
}

TEST(QuantizedGraph, OutputsOfCalibration) {
  const Graph graph = parse_graph(kTwoProducts, standard_ops());
  const Graph seen = with_outputs(graph, {graph.inputs[0], graph.inputs[1]}, standard_ops());
  EXPECT_THAT(verify(seen), testing::IsEmpty());
  const auto inputs = random_inputs(graph, 11);
  const auto got = GraphInterpreter().evaluate(seen, inputs);
  ASSERT_EQ(got.size(), 2U);
  for (size_t o = 0; o < 2; ++o)
    for (int64_t i = 0; i < inputs[o].num_elements(); ++i) ASSERT_EQ(got[o].get_double(i), inputs[o].get_double(i));
}

}  // namespace
}  // namespace tessera
