// The matrices of minimal filtering F(m, r): y = AT [(G w) * (BT x)], which computes m outputs of an r-tap filter from
// m + r - 1 inputs with so many products instead of r m; applied to rows and columns for images. Built by the Toom-Cook
// construction from interpolation points and infinity (Winograd, "Arithmetic complexity of computations", 1980;
// Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016).
#pragma once

#include <cstdint>
#include <vector>

#include "types/tensor.h"

namespace tessera::inline schedule {

using Matrix = std::vector<std::vector<double>>;

struct WinogradMatrices {
  int64_t m = 0;      // outputs per tile and dimension
  int64_t alpha = 0;  // inputs: m + r - 1
  Matrix at;          // m x alpha
  Matrix g;           // alpha x r
  Matrix bt;          // alpha x alpha
};

// Whether there are matrices of F(m, taps).
bool has_winograd_matrices(int64_t m, int64_t taps);
// The points of F(4,3) are 0, +-5/8, +-3/2: measured error of F(4x4,3x3) against f64 on normal data 2 to 4e-6 of the
// largest output, where 0, +-1, +-2 gave 7 to 15e-6 and direct summation gives 1 to 3e-6. F(2,3) stays below direct
// summation, and so does F(2,5) with 0, +-3/4, +-3/2. With eight inputs a tile, F(6,3), F(4,5) and F(2,7) along one
// dimension stay at 2e-6 (direct summation: 0.6 to 1.2e-6). They are not for two: F(6x6,3x3) would be 7 to 17 % faster
// than F(4x4,3x3) on a Zen 4, but is 1.1e-5 off at best, whatever the points. REQUIRES: has_winograd_matrices.
const WinogradMatrices& winograd_matrices(int64_t m, int64_t taps);

// Filters w[O, C, ..., height, width] (f32, row-major; dimensions of one place may follow) as G w GT, each for itself:
// [O * C * ..., alpha of rows, alpha of columns], computed in f64.
Tensor transform_filters(const WinogradMatrices& rows, const WinogradMatrices& columns, const Tensor& w);

}  // namespace tessera::inline schedule
