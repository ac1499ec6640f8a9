// resize against the formulas of its coordinate modes, in double.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reference_util.h"

namespace tessera {
namespace {

struct Resize {
  std::string mode, coordinate, nearest = "round_prefer_floor";
  std::vector<double> scales;
  Dims sizes;
  bool exclude = false;
};

double coordinate_of(const Resize& r, int64_t o, int64_t extent, size_t d) {
  const double s = r.scales[d];
  const auto x = static_cast<double>(o);
  const auto out = static_cast<double>(r.sizes[d]);
  const auto in = static_cast<double>(extent);
  if (r.coordinate == "asymmetric") return x / s;
  if (r.coordinate == "align_corners") return out <= 1 ? 0 : x * (in - 1) / (out - 1);
  if (r.coordinate == "tf_half_pixel_for_nn") return (x + 0.5) / s;
  if (r.coordinate == "pytorch_half_pixel") return out <= 1 ? 0 : (x + 0.5) / s - 0.5;
  if (r.coordinate == "half_pixel_symmetric") return in / 2 * (1 - out / (s * in)) + (x + 0.5) / s - 0.5;
  return (x + 0.5) / s - 0.5;
}

double rounded_place(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  return mode == "round_prefer_floor" ? std::ceil(x - 0.5) : std::floor(x + 0.5);
}

// The elements along one dimension that make up output o, with their weights.
std::vector<std::pair<int64_t, double>> taps(const Resize& r, int64_t o, int64_t extent, size_t d) {
  const double x = coordinate_of(r, o, extent, d);
  const auto clamp = [&](double i) { return std::clamp<int64_t>(static_cast<int64_t>(i), 0, extent - 1); };
  // Exact ties must not depend on the last digit of x.
  if (r.mode == "nearest") return {{clamp(rounded_place(r.nearest, std::round(x * 1e9) / 1e9)), 1}};
  const double first = std::floor(x + 1e-12);
  const double t = x - first;
  if (r.mode == "linear") return {{clamp(first), 1 - t}, {clamp(first + 1), t}};
  const double a = -0.75;
  std::array<double, 4> weights{};
  double total = 0;
  for (int i = 0; i < 4; ++i) {
    const double distance = std::fabs(t - (i - 1));
    const double w = distance <= 1 ? (a + 2) * std::pow(distance, 3) - (a + 3) * distance * distance + 1
                                   : a * std::pow(distance, 3) - 5 * a * distance * distance + 8 * a * distance - 4 * a;
    const double at = first + i - 1;
    weights[static_cast<size_t>(i)] = r.exclude && (at < 0 || at >= static_cast<double>(extent)) ? 0 : w;
    total += weights[static_cast<size_t>(i)];
  }
  std::vector<std::pair<int64_t, double>> result;
  for (int i = 0; i < 4; ++i)
    result.emplace_back(clamp(first + i - 1), weights[static_cast<size_t>(i)] / (r.exclude ? total : 1));
  return result;
}

void check(const Resize& r, DType dtype, const Dims& dims) {
  std::mt19937 random(static_cast<unsigned>(dims.size() + r.sizes.back()));
  const Tensor x = random_tensor(random, dtype, dims);
  const auto want = reference(r.sizes, [&](const Dims& index) {
    double sum = 0;
    std::vector<std::vector<std::pair<int64_t, double>>> all;
    Dims counts;
    for (size_t d = 0; d < dims.size(); ++d) {
      all.push_back(taps(r, index[d], dims[d], d));
      counts.push_back(static_cast<int64_t>(all.back().size()));
    }
    for_each_index(counts, [&](const Dims& pick) {
      double weight = 1;
      Dims source;
      for (size_t d = 0; d < pick.size(); ++d) {
        const auto& tap = all[d][static_cast<size_t>(pick[d])];
        source.push_back(tap.first);
        weight *= tap.second;
      }
      sum += weight * at(x, source);
    });
    return sum;
  });
  Attrs attrs = {{"mode", r.mode},
                 {"coordinate", r.coordinate},
                 {"nearest_mode", r.nearest},
                 {"scales", r.scales},
                 {"sizes", r.sizes}};
  if (r.exclude) attrs.set("exclude_outside", true);
  expect_close(run_op("resize", {x}, attrs)[0], r.sizes, want,
               fmt::format("{} {} {} to [{}]", r.mode, r.coordinate, r.nearest, fmt::join(r.sizes, ",")), 2);
}

const std::vector<std::string> kCoordinates = {"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric",
                                               "asymmetric", "align_corners",      "tf_half_pixel_for_nn"};

struct Sizes {
  Dims from;
  std::vector<double> scales;
  Dims to;
};
const std::vector<Sizes> kSizes = {
    {{1, 1, 2, 3}, {1, 1, 2, 2}, {1, 1, 4, 6}},
    {{1, 2, 4, 6}, {1, 1, 0.5, 0.5}, {1, 2, 2, 3}},
    {{1, 1, 4, 4}, {1, 1, 0.6, 0.6}, {1, 1, 2, 2}},
    {{1, 1, 2, 4}, {1, 1, 3.5, 1.5}, {1, 1, 7, 6}},
    {{1, 1, 5, 3}, {1, 1, 1.0 / 5, 7.0 / 3}, {1, 1, 1, 7}},
    {{1, 1, 3, 200}, {1, 1, 1, 2}, {1, 1, 3, 400}},
    {{2, 3}, {1.2345678901, 0.7071067812}, {2, 2}},
    {{7}, {3}, {21}},
    {{1, 1, 1, 1}, {1, 1, 3, 1}, {1, 1, 3, 1}},
};

TEST(Resize, NearestOfEveryKind) {
  for (const std::string& coordinate : kCoordinates)
    for (const std::string nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
      for (const Sizes& s : kSizes) check({"nearest", coordinate, nearest, s.scales, s.to}, DType::kF32, s.from);
}

TEST(Resize, NearestOnEveryType) {
  for (DType dtype : movable_dtypes())
    check({"nearest", "asymmetric", "floor", {1, 2, 2}, {1, 4, 6}}, dtype, {1, 2, 3});
}

TEST(Resize, LinearAndCubic) {
  for (const std::string mode : {"linear", "cubic"})
    for (const std::string& coordinate : kCoordinates)
      for (DType dtype : kRealDTypes)
        for (const Sizes& s : kSizes) {
          check({mode, coordinate, "floor", s.scales, s.to}, dtype, s.from);
          if (mode == "cubic" && coordinate != "tf_half_pixel_for_nn")
            check({mode, coordinate, "floor", s.scales, s.to, true}, dtype, s.from);
        }
}

// Scales that are an operand give what the attribute gives, to the precision of their arithmetic.
TEST(Resize, TakesScalesAsAnOperand) {
  std::mt19937 random(7);
  const Tensor x = random_tensor(random, DType::kF32, {2, 5, 6});
  const std::vector<double> scales = {1.6, 2.5};
  for (const char* coordinate : {"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric"})
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      Attrs attrs{{"mode", std::string(mode)}, {"coordinate", std::string(coordinate)}, {"sizes", Dims{2, 8, 15}}};
      if (mode == std::string("cubic")) attrs.set("exclude_outside", true);
      Attrs known = attrs;
      known.set("scales", std::vector<double>{1, scales[0], scales[1]});
      attrs.set("axes", Dims{1, 2});
      const Tensor want = run_op("resize", {x}, known)[0];
      std::vector<double> values;
      for (int64_t i = 0; i < want.num_elements(); ++i) values.push_back(want.get_double(i));
      expect_close(run_op("resize", {x, tensor_of(DType::kF64, {2}, scales)}, attrs)[0], {2, 8, 15}, values,
                   fmt::format("{} {}", mode, coordinate));
    }
}

// A region between two elements, and one that reaches over the end.
TEST(Resize, CropsARegion) {
  const Tensor x = tensor_of(DType::kF32, {5}, {10, 20, 30, 40, 50});
  const Attrs attrs{{"mode", std::string("linear")},
                    {"coordinate", std::string("crop")},
                    {"sizes", Dims{3}},
                    {"extrapolation", -1.0}};
  const Tensor scale = tensor_of(DType::kF64, {1}, {0.6});
  expect_close(run_op("resize", {x, scale, tensor_of(DType::kF64, {2}, {0.125, 0.625})}, attrs)[0], {3}, {15, 25, 35},
               "within");
  expect_close(run_op("resize", {x, scale, tensor_of(DType::kF64, {2}, {0.5, 1.5})}, attrs)[0], {3}, {30, 50, -1},
               "over the end");
}

}  // namespace
}  // namespace tessera
