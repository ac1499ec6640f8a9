// The schedule rules. See schedule.h for what a rule promises.
#pragma once

#include <variant>

#include "schedule/choose.h"

namespace tessera::inline schedule {

using RuleResult = std::variant<ScheduledKernel, Declined>;

// Products with constant weights that are stored as less than floats, and made floats in registers: matrices in blocks
// of a few bits (dequantize_blocks), bytes with scales, halves. Of few rows or many, which a run may decide; each sum
// is taken step by step.
RuleResult blocked_weights(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Rows of bytes with scales times such weights, where these are small numbers with factors and offsets: sums of bytes.
RuleResult blocked_bytes(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Convolutions over blocked rows, images and volumes with constant weights, whose windows have three or five places
// along two dimensions of stride 1, or up to seven along one, by minimal filtering: F(2x2) and F(4x4) take 2.25 and 4
// times fewer products of 3x3 places, F(2x2) 2.8 of 5x5; F(2) and F(4) 1.5 and 2 of 3 places, 1.7 and 2.5 of 5,
// F(2) 1.75 of 7. What else a window has of frames is summed as channels are. Replaces the summation by another
// algorithm: the error is that of winograd_matrices.h, and an infinite or NaN input makes NaN of all outputs of its
// tile.
RuleResult winograd(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// The same of rows or images of open extents (and batches): strips of so many tiles, the last of which is made of those
// that are left.
RuleResult open_winograd(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols, const Target& target);

// Products of bf16 with weights, by a machine's two-dimensional tiles (AMX).
RuleResult matrix_tile(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Products of f32 with weights as six products of three pieces of bf16, by AMX or AVX512-BF16 (`--fp32 pieces`). Sums
// are taken in another order than a sequence of multiply-adds, and each product is off by at most 2^-25 of itself; rows
// for which that does not hold (very small, very large, infinite or NaN) are multiplied in f32.
RuleResult bf16x3(const TensorProgram& kernel, const Target& target, Knobs& knobs);
// Why a compile does not want them for this kernel: not at all, or because multiply-adds are expected to be as fast.
std::string bf16x3_not_wanted(const TensorProgram& kernel, const Target& target, Fp32Products fp32);

// Sums of products of two operands that a run knows, over many steps: gradients of convolutions' weights, products of
// matrices with long sums. Block by block of the steps, both factors are packed in panels that stay in cache, where
// they are not read as they lie, and a tile of outputs (vectors x rows) is accumulated in registers over the block.
// Where the steps are cut follows from the kernel's shape alone, and so do the sums' bits: not from threads, caches or
// vectors.
RuleResult packed_panels(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Products of few rows by a matrix of a run that is too large for the nearest cache, as it lies: row by row of the
// matrix, while the sums of all columns wait in cache. Each sum is taken step by step, as in register_tile.
RuleResult streamed_product(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Depthwise convolutions of bytes with constant weights over images in blocks of channels: each lane sums two or four
// products of its own channel in one instruction.
RuleResult window_dots(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Reductions whose output has an axis along which all operands are read contiguously or not at all: convolutions,
// matrix products, depthwise convolutions, pooling, column sums. A tile of outputs (vectors x rows) is accumulated in
// registers over the whole reduction; constant operands, and weights of a run, are packed in the order of use. Products
// with the zeros that stand around an image, or that a transposed convolution puts between its elements, may be left
// out: no NaN comes of them and an infinite weight.
RuleResult register_tile(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Windows that slide along the output's contiguous axis (pooling of rows, with padding): lanes of neighbouring outputs,
// the window step by step.
RuleResult window_rows(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Reductions along contiguous memory (row sums, softmax maxima): lanes of partial results, combined at the end.
RuleResult row_reduce(const TensorProgram& kernel, const Target& target, Knobs& knobs);
RuleResult lane_reduce(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Everything without a reduction: contiguous vectors along the innermost dimension of the output, loops merged as far
// as the operands' addresses allow; in parts, where conditions come out the same over each (regions.h).
RuleResult injective(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// What no other rule takes: one output element at a time, the outer loops in parallel.
RuleResult scalar_loops(const TensorProgram& kernel, const Target& target, Knobs& knobs);

// Kernels of sizes that only a run knows, where the other rules have no kernel of a tile for them: vectors where memory
// is contiguous, extents and strides as they come.
RuleResult dynamic_loops(const TensorProgram& kernel, const Target& target, Knobs& knobs);

}  // namespace tessera::inline schedule
