#include "schedule/kernel/winograd_matrices.h"

#include "support/error.h"

namespace tessera::inline schedule {
namespace {

// Coefficients of the product of (x - p) over `points` without number `left_out`, lowest power first.
std::vector<double> polynomial(const std::vector<double>& points, size_t left_out) {
  std::vector<double> result = {1};
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == left_out) continue;
    result.push_back(0);
    for (size_t k = result.size(); k-- > 0;) result[k] = (k > 0 ? result[k - 1] : 0) - points[i] * result[k];
  }
  return result;
}

WinogradMatrices build(int64_t m, int64_t taps, const std::vector<double>& points) {
  WinogradMatrices result;
  result.m = m;
  result.alpha = m + taps - 1;
  const auto alpha = static_cast<size_t>(result.alpha), count = static_cast<size_t>(taps);
  result.at.assign(static_cast<size_t>(m), std::vector<double>(alpha, 0));
  result.g.assign(alpha, std::vector<double>(count, 0));
  result.bt.assign(alpha, std::vector<double>(alpha, 0));
  for (size_t j = 0; j < points.size(); ++j) {
    double scale = 1;
    for (size_t k = 0; k < points.size(); ++k)
      if (k != j) scale *= points[j] - points[k];
    double power = 1;
    for (size_t i = 0; i < alpha; ++i, power *= points[j]) {
      if (i < result.at.size()) result.at[i][j] = power;
      if (i < count) result.g[j][i] = power / scale;
    }
    const std::vector<double> row = polynomial(points, j);
    for (size_t i = 0; i < row.size(); ++i) result.bt[j][i] = row[i];
  }
  result.at.back()[alpha - 1] = 1;
  result.g[alpha - 1][count - 1] = 1;
  result.bt[alpha - 1] = polynomial(points, points.size());
  return result;
}

}  // namespace

bool has_winograd_matrices(int64_t m, int64_t taps) {
  return (m == 1 && taps == 1) || (m == 2 && (taps == 3 || taps == 5 || taps == 7)) ||
         (m == 4 && (taps == 3 || taps == 5)) || (m == 6 && taps == 3);
}

const WinogradMatrices& winograd_matrices(int64_t m, int64_t taps) {
  static const WinogradMatrices one = {1, 1, {{1}}, {{1}}, {{1}}};
  static const WinogradMatrices two = build(2, 3, {0, 1, -1});
  static const WinogradMatrices four = build(4, 3, {0, 0.625, -0.625, 1.5, -1.5});
  static const WinogradMatrices six = build(6, 3, {0, 0.5, -0.5, 1, -1, 2, -2});
  static const WinogradMatrices two_of_five = build(2, 5, {0, 0.75, -0.75, 1.5, -1.5});
  static const WinogradMatrices four_of_five = build(4, 5, {0, 0.5, -0.5, 1, -1, 1.75, -1.75});
  static const WinogradMatrices two_of_seven = build(2, 7, {0, 0.5, -0.5, 1, -1, 2, -2});
  check(has_winograd_matrices(m, taps), "there are no such matrices");
  switch (taps) {
    case 1: return one;
    case 3: return m == 2 ? two : m == 4 ? four : six;
    case 5: return m == 2 ? two_of_five : four_of_five;
    default: return two_of_seven;
  }
}

Tensor transform_filters(const WinogradMatrices& rows, const WinogradMatrices& columns, const Tensor& w) {
  const size_t height = rows.g[0].size(), width = columns.g[0].size();
  const auto window = static_cast<int64_t>(height * width);
  check(w.dtype() == DType::kF32 && w.num_elements() % window == 0, "filters of f32 of that size expected");
  const int64_t filters = w.num_elements() / window;
  Tensor result(DType::kF32, {filters, rows.alpha, columns.alpha});
  const float* in = w.as<float>().data();
  float* out = result.as_mutable<float>().data();
  const auto high = static_cast<size_t>(rows.alpha), wide = static_cast<size_t>(columns.alpha);
  std::vector<double> half(high * width);
  for (int64_t filter = 0; filter < filters; ++filter, in += window, out += high * wide) {
    for (size_t i = 0; i < high; ++i)
      for (size_t x = 0; x < width; ++x) {
        double sum = 0;
        for (size_t y = 0; y < height; ++y) sum += rows.g[i][y] * static_cast<double>(in[y * width + x]);
        half[i * width + x] = sum;
      }
    for (size_t i = 0; i < high; ++i)
      for (size_t j = 0; j < wide; ++j) {
        double sum = 0;
        for (size_t x = 0; x < width; ++x) sum += half[i * width + x] * columns.g[j][x];
        out[i * wide + j] = static_cast<float>(sum);
      }
  }
  return result;
}

}  // namespace tessera::inline schedule
