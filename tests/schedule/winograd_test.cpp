// The matrices of minimal filtering hold exactly on small integers where f64 is exact, and to its rounding otherwise.
#include "schedule/kernel/winograd_matrices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tessera {
namespace {

std::vector<double> times(const Matrix& matrix, const std::vector<double>& vector) {
  std::vector<double> result;
  for (const auto& row : matrix) {
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) sum += row[i] * vector[i];
    result.push_back(sum);
  }
  return result;
}

// Outputs of a tile, places of a window.
class Winograd : public testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  const WinogradMatrices& matrices = winograd_matrices(GetParam().first, GetParam().second);
  const int64_t taps = GetParam().second;
};

TEST_P(Winograd, MatricesFilterLikeTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> w(static_cast<size_t>(taps)), x(static_cast<size_t>(matrices.alpha));
    for (double& value : w) value = static_cast<double>(random() % 201) - 100;
    for (double& value : x) value = static_cast<double>(random() % 201) - 100;
    const std::vector<double> u = times(matrices.g, w);
    std::vector<double> v = times(matrices.bt, x);
    for (size_t i = 0; i < v.size(); ++i) v[i] *= u[i];
    const std::vector<double> y = times(matrices.at, v);
    ASSERT_EQ(y.size(), static_cast<size_t>(matrices.m));
    for (size_t i = 0; i < y.size(); ++i) {
      double want = 0;
      for (size_t k = 0; k < w.size(); ++k) want += w[k] * x[i + k];
      EXPECT_NEAR(y[i], want, 1e-8);
    }
  }
}

TEST_P(Winograd, FiltersAreTransformedOnBothSides) {
  Tensor w(DType::kF32, {2, 3, taps, taps});
  for (int64_t i = 0; i < w.num_elements(); ++i) w.set_double(i, static_cast<double>(i % 11) - 5);
  const Tensor u = transform_filters(matrices, matrices, w);
  ASSERT_EQ(u.dims(), (std::vector<int64_t>{6, matrices.alpha, matrices.alpha}));
  for (int64_t filter = 0; filter < 6; ++filter)
    for (int64_t i = 0; i < matrices.alpha; ++i)
      for (int64_t j = 0; j < matrices.alpha; ++j) {
        double want = 0;
        for (int64_t y = 0; y < taps; ++y)
          for (int64_t x = 0; x < taps; ++x)
            want += matrices.g[static_cast<size_t>(i)][static_cast<size_t>(y)] *
                    matrices.g[static_cast<size_t>(j)][static_cast<size_t>(x)] *
                    w.get_double((filter * taps + y) * taps + x);
        EXPECT_NEAR(u.get_double((filter * matrices.alpha + i) * matrices.alpha + j), want, 1e-5);
      }
}

TEST_P(Winograd, FiltersOfOnePlaceAlongADimensionAreTransformedAlongTheOther) {
  const WinogradMatrices& one = winograd_matrices(1, 1);
  Tensor w(DType::kF32, {4, taps});
  for (int64_t i = 0; i < w.num_elements(); ++i) w.set_double(i, static_cast<double>(i % 7) - 3);
  const Tensor rows = transform_filters(matrices, one, w), columns = transform_filters(one, matrices, w);
  ASSERT_EQ(rows.dims(), (std::vector<int64_t>{4, matrices.alpha, 1}));
  ASSERT_EQ(columns.dims(), (std::vector<int64_t>{4, 1, matrices.alpha}));
  for (int64_t filter = 0; filter < 4; ++filter)
    for (int64_t i = 0; i < matrices.alpha; ++i) {
      double want = 0;
      for (int64_t x = 0; x < taps; ++x)
        want += matrices.g[static_cast<size_t>(i)][static_cast<size_t>(x)] * w.get_double(filter * taps + x);
      EXPECT_NEAR(rows.get_double(filter * matrices.alpha + i), want, 1e-6);
      EXPECT_NEAR(columns.get_double(filter * matrices.alpha + i), want, 1e-6);
    }
}

INSTANTIATE_TEST_SUITE_P(Tiles, Winograd,
                         testing::Values(std::pair<int64_t, int64_t>{2, 3}, std::pair<int64_t, int64_t>{4, 3},
                                         std::pair<int64_t, int64_t>{6, 3}, std::pair<int64_t, int64_t>{2, 5},
                                         std::pair<int64_t, int64_t>{4, 5}, std::pair<int64_t, int64_t>{2, 7}));

}  // namespace
}  // namespace tessera
