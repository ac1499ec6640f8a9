// The common start of every schedule rule: the kernel's stages with all memory addressed by one flat index, so that a
// rule reasons about coefficients of loop variables instead of layouts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arith/simplify.h"
#include "loop/stmt.h"
#include "te/extremum_place.h"
#include "te/tensor_program.h"

namespace tessera::inline schedule {

// One loop of the output: a whole logical axis, or the quotient or remainder part of a blocked one.
struct OutputLoop {
  Var var;
  int64_t extent = 1;  // 0: a run decides about it
  int axis = 0;
  LayoutDim::Part part = LayoutDim::Part::kWhole;
  int64_t stride = 0;  // elements of the output per step; 0: a run decides about them
  Expr size = {};      // the extent in any case; null where a rule makes loops of its own
};

// A further result, stored at the index of the first one. In terms of the output's loops, or of results of reductions.
struct LinearResult {
  BufferPtr out;  // one-dimensional
  Expr value;
};

// A reduction; several go over the same places.
struct LinearReduction {
  Combiner combiner = Combiner::kSum;
  Expr value;
  DType dtype = DType::kF32;  // of partial results
  Var result_var;             // stands for it when it is finished, in its own type
  // Of the place of another one's extremum; in terms of the kernel's loops it is `value`.
  // Types of 32 bits hold the places of most kernels, as many in a vector as there are elements.
  std::optional<ExtremumPlace> pair = {};
};

// REQUIRES (make_linear_kernel): static shapes, or what the caller can do with; reductions and epilogues, no zero-sized
// output.
struct LinearKernel {
  std::vector<BufferPtr> params;     // one-dimensional; kernel parameters, then the results
  std::vector<int64_t> param_block;  // the layout's inner block of each parameter; 1 when row-major
  std::vector<OperandKind> kinds;    // of each parameter; of results kActivation
  std::vector<OutputLoop> loops;     // one per physical dimension of the output, outermost first
  std::vector<Expr> logical;         // the output's logical index in terms of the loops
  std::vector<int64_t> extents;      // of the logical axes; 0: a run decides about it
  Expr out_index;                    // flat
  bool padded = false;               // some loop values lie beyond the logical extents
  Expr value;                        // injective value, or the epilogue with `result_var` for the reduction
  Var result_var;                    // stands for the finished reduction; null when injective
  // The reduction, in terms of `loops` and `reduce`:
  Combiner combiner = Combiner::kNone;
  std::vector<Axis> reduce;
  Expr reduce_value;
  DType reduce_dtype = DType::kF32;
  Bounds bounds;  // of all loop and reduce variables
  std::vector<LinearResult> more_results;
  std::vector<LinearReduction> more_reductions;

  const BufferPtr& out() const { return params[params.size() - 1 - more_results.size()]; }
  size_t num_results() const { return 1 + more_results.size(); }
  bool may_be_packed(size_t param) const { return kinds[param] != OperandKind::kActivation; }
  // Condition under which the loops' values are inside the logical extents; null when always.
  Expr inside() const;
};

// What the caller can do with: several results and reductions, or also such as are the places of others' extrema.
enum class Results : uint8_t { kOne, kSeveral, kPairs };

enum class Sizes : uint8_t { kFixed, kOpen };

// Empty with a reason in `why` when the kernel does not meet the requirements, or is not what the caller can do with.
std::optional<LinearKernel> make_linear_kernel(const TensorProgram& program, std::string& why,
                                               Results results = Results::kOne, Sizes sizes = Sizes::kFixed);
// The same of a kernel that reduces, whose output has no padding.
std::optional<LinearKernel> make_flat_reduction(const TensorProgram& program, std::string& why,
                                                Results results = Results::kOne);

// The first one and the further ones; none of an injective kernel.
std::vector<LinearReduction> all_reductions(const LinearKernel& kernel);
// The values that the kernel reduces; and those and what its results store.
void for_each_reduced_value(LinearKernel& kernel, const std::function<void(Expr&)>& visit);
void for_each_reduced_value(const LinearKernel& kernel, const std::function<void(const Expr&)>& visit);
void for_each_value(LinearKernel& kernel, const std::function<void(Expr&)>& visit);

// Whether every load in `e` stays inside its buffer for all values within `bounds`.
bool loads_in_bounds(const Expr& e, const Bounds& bounds);

// Makes two axes, blocks and places in a block, of each reduced axis along which an operand in blocks is not linear: so
// that its places are contiguous. Axes that do not end with a whole block stay.
void split_blocked_reductions(LinearKernel& kernel);

// The reduced axis along which some load is contiguous and every other load linear: the last such, else -1.
int contiguous_reduced_axis(const LinearKernel& kernel);

// Merges neighbouring loops whose combined variable addresses all memory linearly, innermost first. Only loops for
// which `may_merge` says so.
void merge_loops(LinearKernel& kernel,
                 const std::function<bool(const OutputLoop& outer, const OutputLoop& inner)>& may_merge);

}  // namespace tessera::inline schedule
