// Constant weights as the rows of a matrix, one for each output, and the integers that stand for them: which grid of
// numbers an output, or a group of its terms, has, and which integer of the grid each number becomes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "types/tensor.h"

namespace tessera::inline quantize {

struct WeightRows {
  int64_t rows = 0, terms = 0;  // outputs, and numbers of each
  std::vector<float> numbers;   // row by row

  std::span<const float> row(int64_t r) const {
    return std::span(numbers).subspan(static_cast<size_t>(r * terms), static_cast<size_t>(terms));
  }
};

// `axis`: of the outputs. What else the tensor has are the terms, in its order.
WeightRows rows_of(const Tensor& weights, size_t axis);

struct IntegerGrid {
  int64_t low = -127, high = 127;
  int64_t group = 0;       // neighbouring terms of a row that share a scale; 0: all of them
  bool has_zero = false;   // an integer of its own for zero in each group
  bool one_scale = false;  // for all groups of all rows
  // The scale that is nearest in the mean square. Otherwise the one whose largest integer is the largest magnitude, as
  // the composite fake_quantize_weights has it.
  bool fits_scale = false;
};

// real = (integer - zero) * scale
struct IntegerRows {
  int64_t rows = 0, terms = 0, group = 0, groups = 0;  // groups of a row
  std::vector<int16_t> integers;                       // row by row
  std::vector<float> scales;                           // group by group
  std::vector<int16_t> zeros;                          // the same

  size_t group_of(int64_t row, int64_t term) const { return static_cast<size_t>(row * groups + term / group); }
  float real(int64_t row, int64_t term) const {
    const size_t g = group_of(row, term);
    return static_cast<float>(integers[static_cast<size_t>(row * terms + term)] - zeros[g]) * scales[g];
  }
};

// Each number becomes the integer that is nearest. UserError TSR-2091 for weights that are not finite; `name` is that
// of the layer.
IntegerRows nearest_integers(const WeightRows& weights, const IntegerGrid& grid, const std::string& name);

// How many rows are all zeros in integers though their numbers are not: numbers that are too small for a scale of their
// own, or for the one that all rows share.
int64_t vanished_rows(const IntegerRows& integers, const WeightRows& weights);

// Chooses for each number the integer below or above it, so that the products with the data from which `gram` was made
// change least: the rounding that AdaRound (Nagel and others, 2020) looks for by gradients, found by descent from
// number to number. `gram` is the sum of x x^T over the data's columns x, terms x terms; where a convolution has groups
// of channels, one for each, and rows belong to them in order.
void round_for_data(IntegerRows& integers, const WeightRows& weights, const IntegerGrid& grid,
                    std::span<const float> gram, int64_t gram_groups = 1);

// The integers with the shape of the weights they were made from; dtype i8.
Tensor integer_tensor(const IntegerRows& rows, const std::vector<int64_t>& dims, size_t axis);
// The real numbers that they stand for, in f32.
Tensor real_tensor(const IntegerRows& rows, const std::vector<int64_t>& dims, size_t axis);

// As dequantize_blocks reads them: bytes u8[rows, groups * group * bits / 8], the lowest bits of a byte first, scales
// f32[rows, groups], and zero points packed like the bytes. REQUIRES: integers of 0 .. 2^bits - 1.
struct PackedRows {
  Tensor bytes, scales, zeros;
};
PackedRows packed_rows(const IntegerRows& rows, int bits);

}  // namespace tessera::inline quantize
