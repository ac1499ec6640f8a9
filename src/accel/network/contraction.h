// A kernel's definition as an accelerator sees it: sums of products of an operand that arrives and one that is known,
// over windows of places, and what is computed of each finished sum. A kernel without sums is only the latter.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "te/tensor_program.h"

namespace tessera::inline network {

// Along one dimension of the operand x, but for channels: place = stride * axis + sum of dilation * window + first, and
// zeros where that is outside of the extent.
struct PlaceDim {
  int axis = -1;  // of Contraction::places; -1: none
  int64_t stride = 0, first = 0, extent = 1;
  std::vector<std::pair<int, int64_t>> windows;  // of Contraction::windows, with dilations
  bool padded = false;
};

struct WindowAxis {
  Var var;
  int64_t extent = 1;
};

struct Contraction {
  const TensorProgram* kernel = nullptr;
  const Stage* reduction = nullptr;  // null: nothing is summed
  // Axes of the output: channels, which w and not x depends on, and places.
  size_t channel_axis = 0;
  int64_t channels = 1;
  std::vector<size_t> places;  // axes, outermost first
  std::vector<int64_t> place_extents;
  // What is summed.
  size_t x_param = 0, w_param = 0;
  size_t x_channel_dim = 0;
  int64_t summed_channels = 1;
  Var summed_channel;
  std::vector<PlaceDim> x_dims;  // of each dimension of x; that of channels is empty
  std::vector<WindowAxis> windows;
  std::vector<Expr> w_index;  // in terms of the reduction's axes
  DType x_dtype = DType::kI8, w_dtype = DType::kI8;
  // Of the output in terms of its axes; loads of the reduction's result stand for the sum.
  Expr value;

  const Stage& output() const { return kernel->output(); }
  int64_t window() const;
  int64_t multiply_adds() const;
};

// Why a kernel is nothing for an accelerator.
struct NotOffloaded {
  std::string reason;
};

// `kernel` outlives what is made.
std::variant<Contraction, NotOffloaded> contraction_of(const TensorProgram& kernel);

}  // namespace tessera::inline network
