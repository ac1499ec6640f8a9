// Procedures: the evaluator on values that the test knows, and the loops, interpreted and compiled for every target,
// against the evaluator on random shapes and types.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codegen_harness.h"
#include "graph/op_def.h"
#include "loop/verify.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

using Dims = std::vector<int64_t>;

struct Node1 {
  const OpDef& op;
  std::vector<TensorType> types;
  Attrs attrs;
  std::vector<GraphPtr> regions = {};
  std::string loc = {};

  Node1(const std::string& name, const std::vector<Tensor>& inputs, Attrs given)
      : op(standard_ops().get(name)), attrs(std::move(given)) {
    for (const Tensor& input : inputs) types.push_back({input.dtype(), make_shape(input.dims()), {}});
  }
  OpContext context() const { return {op, types, attrs, regions, loc}; }
};

Tensor evaluated(const std::string& name, const std::vector<Tensor>& inputs, const Attrs& attrs) {
  const Node1 node(name, inputs, attrs);
  const auto results = infer_types(node.op, node.types, node.attrs, {}, "");
  std::vector<const Tensor*> operands;
  for (const Tensor& input : inputs) operands.push_back(&input);
  Tensor y = node.op.evaluate(node.context(), operands);
  EXPECT_EQ(y.dims(), results[0].dims());
  EXPECT_EQ(y.dtype(), results[0].dtype);
  return y;
}

// `native`: compiled too, which takes a moment.
void expect_same(const std::string& name, const std::vector<Tensor>& inputs, const Attrs& attrs, bool native,
                 double rtol = 1e-6) {
  const Tensor want = evaluated(name, inputs, attrs);
  const Node1 node(name, inputs, attrs);
  const LoopProgram loops = node.op.loops(node.context());
  EXPECT_EQ(verify(loops), std::vector<std::string>());
  std::vector<Tensor> flat;
  for (const Tensor& input : inputs) flat.push_back(input.with_dims({input.num_elements()}));
  const Tensor got = run_interpreted(loops, flat)[0];
  std::string what = name;
  for (const TensorType& type : node.types) what += " " + type.to_string();
  EXPECT_EQ(difference(got, want.with_dims({want.num_elements()}), rtol), "") << what;
  if (native && want.num_elements() > 0) expect_agrees(loops, flat, rtol);
}

int64_t pick(std::mt19937& random, std::initializer_list<int64_t> values) {
  return values.begin()[random() % values.size()];
}

const std::vector<DType> kTypes = {DType::kF32, DType::kI64, DType::kF64, DType::kF16, DType::kI32, DType::kBF16,
                                   DType::kU8,  DType::kU64, DType::kI8,  DType::kU32, DType::kI16, DType::kU16};

TEST(Procedures, CumulateKnown) {
  const Tensor x = Tensor::from_ints({1, 2, 3, 4});
  const auto run = [&](bool exclusive, bool reverse, const std::string& kind) {
    const Tensor y = evaluated("cumulate", {x},
                               {{"axis", int64_t{0}}, {"kind", kind}, {"exclusive", exclusive}, {"reverse", reverse}});
    return std::vector<int64_t>(y.as<int64_t>().begin(), y.as<int64_t>().end());
  };
  EXPECT_EQ(run(false, false, "sum"), (Dims{1, 3, 6, 10}));
  EXPECT_EQ(run(true, false, "sum"), (Dims{0, 1, 3, 6}));
  EXPECT_EQ(run(false, true, "sum"), (Dims{10, 9, 7, 4}));
  EXPECT_EQ(run(true, true, "prod"), (Dims{24, 12, 4, 1}));
}

TEST(Procedures, Cumulate) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const DType dtype = kTypes[static_cast<size_t>(round) % kTypes.size()];
    const Dims dims = {pick(random, {1, 2, 3}), pick(random, {0, 1, 2, 7, 600, 1031}), pick(random, {1, 1, 3, 64, 77})};
    const bool product = random() % 4 == 0;
    Tensor x = random_tensor(dtype, dims, random);
    if (product && is_float(dtype))
      for (int64_t i = 0; i < x.num_elements(); ++i) x.set_double(i, random() % 2 ? 1 : -1);
    const double rtol = dtype == DType::kBF16 ? 1e-2 : dtype == DType::kF16 ? 2e-3 : 1e-5;
    expect_same("cumulate", {x},
                {{"axis", int64_t{round % 7 == 0 ? 0 : 1}},
                 {"kind", std::string(product ? "prod" : "sum")},
                 {"exclusive", random() % 2 == 0},
                 {"reverse", random() % 2 == 0}},
                round % 6 == 0, rtol);
  }
}

TEST(Procedures, RandomBits) {
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    const Dims shape = {pick(random, {0, 1, 3}), pick(random, {1, 2, 17, 700})};
    Tensor key(DType::kU32, {2}), first(DType::kI64, {});
    for (int64_t i = 0; i < 2; ++i) key.set_int(i, static_cast<int64_t>(random()));
    first.set_int(0, static_cast<int64_t>(random()) << (round % 2 ? 31 : 0));
    std::vector<Tensor> inputs = {key};
    if (round % 3) inputs.push_back(first);
    expect_same("random_bits", inputs, {{"shape", shape}}, round % 3 == 0, 0);
  }
}

TEST(Procedures, Scatter) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    const DType dtype = kTypes[static_cast<size_t>(round) % kTypes.size()];
    const int64_t batch = pick(random, {1, 1, 3}), places = pick(random, {1, 5, 40, 3000}),
                  inner = pick(random, {0, 1, 1, 7, 16, 33}), count = pick(random, {0, 1, 9, 50});
    Tensor at(round % 2 ? DType::kI64 : DType::kI32, {batch, count});
    for (int64_t i = 0; i < at.num_elements(); ++i)
      at.set_int(i, static_cast<int64_t>(random() % static_cast<uint64_t>(places + 4)) - 2);
    const std::string join = std::vector<std::string>{"none", "add", "mul", "min", "max"}[random() % 5];
    // Sums in 16 bits are rounded after each update, by the evaluator and by the loops.
    expect_same("scatter",
                {random_tensor(dtype, {batch, places, inner}, random, true), at,
                 random_tensor(dtype, {batch, count, inner}, random, true)},
                {{"join", join}}, round % 6 == 0, 1e-5);
  }
  // So many places and updates that threads share the places.
  for (int round = 0; round < 3; ++round) {
    const int64_t inner = pick(random, {255, 256, 400, 1100}), places = (1 << 20) / inner + pick(random, {0, 1, 50}),
                  count = 33000 / inner + pick(random, {0, 1, 40});
    Tensor at(DType::kI64, {1, count});
    for (int64_t i = 0; i < count; ++i)
      at.set_int(i, static_cast<int64_t>(random() % static_cast<uint64_t>(i % 3 ? 20 : places + 2)) - 1);
    const DType dtype = kTypes[static_cast<size_t>(round) % 3];
    expect_same("scatter",
                {random_tensor(dtype, {1, places, inner}, random), at, random_tensor(dtype, {1, count, inner}, random)},
                {{"join", std::string(round % 2 ? "none" : "add")}}, true, 1e-4);
  }
  // Types whose elements share bytes, or have no arithmetic.
  for (const DType dtype : {DType::kBool, DType::kI4, DType::kF8E4M3FN})
    expect_same("scatter",
                {random_tensor(dtype, {3, 5, 3}, random), Tensor::from_ints({4, 0, 4, 1, 1, 2}).with_dims({3, 2}),
                 random_tensor(dtype, {3, 2, 3}, random)},
                {{"join", std::string("none")}}, true);
}

TEST(Procedures, OrderKnown) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  Tensor x(DType::kF32, {1, 8, 1});
  const std::vector<double> values = {0, -0.0, nan, -inf, 3, inf, -2, nan};
  for (size_t i = 0; i < values.size(); ++i) x.set_double(static_cast<int64_t>(i), values[i]);
  const auto run = [&](bool descending) {
    const Tensor y = evaluated("order", {x}, {{"count", int64_t{8}}, {"descending", descending}});
    return std::vector<int64_t>(y.as<int64_t>().begin(), y.as<int64_t>().end());
  };
  EXPECT_EQ(run(false), (Dims{3, 6, 0, 1, 4, 5, 2, 7}));
  EXPECT_EQ(run(true), (Dims{2, 7, 5, 4, 0, 1, 6, 3}));
}

// All ways: few elements, a short list, parts of the range, a whole sort; narrow and wide values; many equal ones.
TEST(Procedures, Order) {
  std::mt19937 random(3);
  for (int round = 0; round < 120; ++round) {
    const DType dtype = kTypes[static_cast<size_t>(round) % kTypes.size()];
    const int64_t extent = pick(random, {0, 1, 2, 63, 64, 65, 130, 500, 1500}),
                  width = pick(random, {0, 1, 1, 1, 1, 3});
    const int64_t count = std::min(extent, pick(random, {0, 1, 5, 64, 65, 100, 300, 1500}));
    Tensor x = random_tensor(dtype, {pick(random, {1, 2, 3}), extent, width}, random, true);
    if (round % 3 == 0)  // the whole range of the type
      for (int64_t i = 0; i < x.num_elements(); ++i) {
        if (is_float(dtype))
          x.set_double(i, std::ldexp(static_cast<double>(random()) - 2e9, static_cast<int>(random() % 60) - 50));
        else x.set_int(i, static_cast<int64_t>(random()) << (random() % 33));
      }
    expect_same("order", {x}, {{"count", count}, {"descending", random() % 2 == 0}}, round % 8 == 0);
  }
  expect_same("order", {random_tensor(DType::kBool, {2, 100, 1}, random)}, {{"count", int64_t{100}}}, true);
}

TEST(Procedures, SuppressKnown) {
  Tensor boxes(DType::kF32, {1, 4, 4}), scores(DType::kF32, {1, 1, 4}), limit(DType::kI64, {}), share(DType::kF32, {});
  const std::vector<double> corners = {0, 0, 1, 1, 1, 1, 0, 0.1, 5, 5, 6, 6, 5, 5, 6, 6.1};
  for (size_t i = 0; i < corners.size(); ++i) boxes.set_double(static_cast<int64_t>(i), corners[i]);
  const std::vector<double> given = {0.9, 0.8, 0.7, 0.75};
  for (size_t i = 0; i < given.size(); ++i) scores.set_double(static_cast<int64_t>(i), given[i]);
  limit.set_int(0, 4);
  share.set_double(0, 0.85);
  const Tensor y = evaluated("suppress", {boxes, scores, limit, share}, {{"most", int64_t{4}}});
  EXPECT_EQ(std::vector<int64_t>(y.as<int64_t>().begin(), y.as<int64_t>().end()), (Dims{0, 3, -1, -1}));
}

TEST(Procedures, Suppress) {
  std::mt19937 random(4);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int round = 0; round < 30; ++round) {
    const DType dtype = round % 3 == 2 ? DType::kF64 : DType::kF32;
    const int64_t images = pick(random, {1, 2}), classes = pick(random, {1, 3}), n = pick(random, {1, 2, 17, 120});
    Tensor boxes(dtype, {images, n, 4}), scores(dtype, {images, classes, n}), limit(DType::kI64, {}), share(dtype, {}),
        lowest(dtype, {});
    for (int64_t i = 0; i < boxes.num_elements(); ++i) boxes.set_double(i, uniform(0, 1));
    // Scores repeat, and some are NaN.
    for (int64_t i = 0; i < scores.num_elements(); ++i)
      scores.set_double(i, random() % 20 == 0 ? std::nan("") : static_cast<double>(random() % 50) / 50);
    limit.set_int(0, pick(random, {0, 1, 5, 100}));
    share.set_double(0, uniform(0, 0.8));
    lowest.set_double(0, uniform(0, 0.5));
    std::vector<Tensor> inputs = {boxes, scores, limit, share};
    if (round % 2) inputs.push_back(lowest);
    expect_same("suppress", inputs, {{"most", pick(random, {0, 1, 7, 16, 130})}, {"centres", random() % 2 == 0}},
                round % 5 == 0);
  }
}

Tensor regions_of(DType dtype, const std::vector<double>& corners) {
  Tensor boxes(dtype, {static_cast<int64_t>(corners.size()) / 4, 4});
  for (size_t i = 0; i < corners.size(); ++i) boxes.set_double(static_cast<int64_t>(i), corners[i]);
  return boxes;
}

TEST(Procedures, RegionPoolKnown) {
  Tensor x(DType::kF32, {1, 2, 3, 1});
  for (int64_t i = 0; i < 6; ++i) x.set_double(i, static_cast<double>(i + 1));
  const double nan = std::nan(""), far = 1e30;
  // A pixel, nothing, half of it outside, everything, no number.
  const Tensor boxes =
      regions_of(DType::kF32, {0, 0, 1, 1, 2, 2, 1, 1, 2, 0, 4, 1, -far, -far, far, far, nan, 0, 1, 1});
  const auto run = [&](const std::string& kind) {
    const Attrs attrs = {
        {"rows", int64_t{1}}, {"columns", int64_t{1}}, {"scale", 1.0}, {"kind", kind}, {"half_pixel", true}};
    const Tensor y = evaluated("region_pool", {x, boxes, Tensor::from_ints({0, 0, 0, 0, 0})}, attrs);
    return std::vector<float>(y.as<float>().begin(), y.as<float>().begin() + 3);
  };
  EXPECT_EQ(run("average"), (std::vector<float>{1, 0, 3}));
  EXPECT_EQ(run("max"), (std::vector<float>{1, 0, 3}));
}

double uniform(std::mt19937& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

// Corners of regions of any size, some outside of every image and some turned over, and images that may not be there.
std::pair<std::vector<double>, Tensor> random_regions(int64_t count, DType numbers, std::mt19937& random) {
  std::vector<double> corners;
  Tensor image(numbers, {count});
  for (int64_t r = 0; r < count; ++r) {
    const double size = std::pow(10.0, uniform(random, -2, 2)), x = uniform(random, -9, 12),
                 y = uniform(random, -9, 12);
    const double right = x + size * uniform(random, -0.2, 1), bottom = y + size * uniform(random, -0.2, 1);
    corners.insert(corners.end(), {x, y, right, bottom});
    image.set_int(r, static_cast<int64_t>(random() % 5) - 1);
  }
  return {corners, image};
}

TEST(Procedures, RegionPool) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const DType stored = std::vector<DType>{DType::kF32, DType::kF64, DType::kF16, DType::kBF16}[round % 4];
    const DType place = stored == DType::kF64 ? DType::kF64 : DType::kF32;
    const int64_t images = pick(random, {1, 3}), height = pick(random, {1, 2, 9}), width = pick(random, {1, 5, 12}),
                  channels = pick(random, {1, 3, 64, 71, 130}), regions = pick(random, {0, 1, 5});
    const auto [corners, image] = random_regions(regions, round % 2 ? DType::kI64 : DType::kI32, random);
    const double rtol = stored == DType::kBF16 ? 1e-2 : stored == DType::kF16 ? 2e-3 : 1e-5;
    expect_same("region_pool",
                {random_tensor(stored, {images, height, width, channels}, random), regions_of(place, corners), image},
                {{"rows", pick(random, {1, 2, 7})},
                 {"columns", pick(random, {1, 3})},
                 {"scale", uniform(random, 0.3, 2)},
                 {"kind", std::string(random() % 2 ? "average" : "max")},
                 {"half_pixel", random() % 2 == 0}},
                round % 5 == 0, rtol);
  }
}

TEST(Procedures, RegionPoolGradient) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    const DType stored = round % 2 ? DType::kF32 : DType::kF64;
    const int64_t images = pick(random, {1, 3}), height = pick(random, {1, 2, 9}), width = pick(random, {1, 5, 12}),
                  channels = pick(random, {1, 3, 64, 71, 130}), regions = pick(random, {0, 1, 5}),
                  rows = pick(random, {1, 2, 7}), columns = pick(random, {1, 3});
    const auto [corners, image] = random_regions(regions, DType::kI64, random);
    expect_same("region_pool_gradient",
                {random_tensor(stored, {regions, rows, columns, channels}, random), regions_of(stored, corners), image},
                {{"rows", rows},
                 {"columns", columns},
                 {"scale", uniform(random, 0.3, 2)},
                 {"half_pixel", random() % 2 == 0},
                 {"shape", std::vector<int64_t>{images, height, width, channels}}},
                round % 5 == 0, 1e-4);
  }
}

TEST(Procedures, RegionPoolLargest) {
  std::mt19937 random(8);
  for (int round = 0; round < 40; ++round) {
    const DType stored = std::vector<DType>{DType::kF32, DType::kF64, DType::kF16, DType::kBF16}[round % 4];
    const DType place = stored == DType::kF64 ? DType::kF64 : DType::kF32;
    const int64_t images = pick(random, {1, 3}), height = pick(random, {1, 2, 9}), width = pick(random, {1, 5, 12}),
                  channels = pick(random, {1, 3, 71}), regions = pick(random, {0, 1, 5});
    const auto [corners, image] = random_regions(regions, DType::kI64, random);
    const Tensor x = random_tensor(stored, {images, height, width, channels}, random);
    const int64_t rows = pick(random, {1, 2, 7}), columns = pick(random, {1, 3});
    const double scale = uniform(random, 0.3, 2);
    for (const char* what : {"place", "share"})
      expect_same("region_pool_largest", {x, regions_of(place, corners), image},
                  {{"rows", rows},
                   {"columns", columns},
                   {"scale", scale},
                   {"what", std::string(what)},
                   {"half_pixel", round % 2 == 0}},
                  round % 5 == 0, 1e-5);
  }
}

// However large a region is, only places inside of the image are visited.
TEST(Procedures, RegionPoolOfHugeRegions) {
  std::mt19937 random(6);
  const Tensor x = random_tensor(DType::kF32, {1, 4, 4, 3}, random);
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor boxes = regions_of(DType::kF32, {-1e30, -1e30, 1e30, 1e30, -3e7, 0,   5e7, 4,   0, 0, inf,  inf,
                                                -inf,  -inf,  inf,  inf,  nan,  nan, nan, nan, 0, 0, 3e38, 1e-30});
  const Attrs attrs = {{"rows", int64_t{2}}, {"columns", int64_t{2}}, {"scale", 1.0}, {"kind", std::string("max")}};
  const Node1 node("region_pool", {x, boxes, Tensor::from_ints({0, 0, 0, 0, 0, 0})}, attrs);
  const auto y = run_interpreted(node.op.loops(node.context()),
                                 {x.with_dims({48}), boxes.with_dims({24}), Tensor::from_ints({0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(y[0].num_elements(), 6 * 4 * 3);
}

}  // namespace
}  // namespace tessera
