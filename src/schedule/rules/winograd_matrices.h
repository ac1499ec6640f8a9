// The matrices of minimal filtering F(m, 3): y = AT [(G w) * (BT x)], which computes m outputs of a 3-tap filter from
// m + 2 inputs with m + 2 products instead of 3 m; applied to rows and columns for images. Built by the Toom-Cook
// construction from interpolation points and infinity (Winograd, "Arithmetic complexity of computations", 1980;
// Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016).
#pragma once

#include <cstdint>
#include <vector>

#include "types/tensor.h"

namespace tessera {

using Matrix = std::vector<std::vector<double>>;

struct WinogradMatrices {
  int64_t m = 0;      // outputs per tile and dimension
  int64_t alpha = 0;  // inputs: m + 2; 1 where m is 1
  Matrix at;          // m x alpha
  Matrix g;           // alpha x 3; 1 x 1 where m is 1
  Matrix bt;          // alpha x alpha
};

// REQUIRES: m is 2 or 4, or 1 for windows of one place, whose matrices are 1. The points of F(4,3) are 0, +-5/8, +-3/2:
// measured error against f64 on normal data 2 to 4e-6 of the largest output, where 0, +-1, +-2 gave 7 to 15e-6 and
// direct summation gives 1 to 3e-6; F(2,3) stays below direct summation.
const WinogradMatrices& winograd_matrices(int64_t m);

// Filters w[O, C, ..., height, width] (f32, row-major; dimensions of one place may follow) as G w GT, each for itself:
// [O * C * ..., alpha of rows, alpha of columns], computed in f64.
Tensor transform_filters(const WinogradMatrices& rows, const WinogradMatrices& columns, const Tensor& w);

}  // namespace tessera
