// The loops of a Winograd convolution, of fixed or open sizes.
#pragma once

#include <string>
#include <vector>

#include "schedule/choose.h"
#include "schedule/rules/winograd/winograd_match.h"

namespace tessera::inline schedule {

// What the loops compute, with memory addressed by one flat index.
struct WinogradKernel {
  std::vector<BufferPtr> params;  // the kernel's, then the output
  std::vector<Var> loops;         // of the output's blocked dimensions, outermost first
  Expr value;                     // the epilogue of `result_var`
  Var result_var;
  Expr out_index;
  Expr inside;  // null, or where `loops` lie within the output's channels, when `value` needs that
};

// Extents, and how the tiles of an image become strips. All of it is constant where sizes are.
struct WinogradSizes {
  Expr images;  // as FilteredConv::images
  Expr height, width, out_height, out_width;
  Expr tiles, tiles_wide;
  Expr strips, strip;  // strips of an image, tiles of a strip: not more than the plan's
  // Tiles of a strip are a multiple of the rows of a product's tile and, in the last of these, of `step`; 0 where they
  // are what the plan says.
  int64_t step = 0;
  int64_t usual_strip = 0;  // what `strip` mostly is
};

// The sizes of a convolution whose every extent is fixed.
WinogradSizes fixed_sizes(const FilteredConv& conv, const WinogradPlan& plan);

// Rows and vectors of a product's tile; `refused` is not empty when the knobs name none.
struct WinogradTile {
  int64_t rows = 1, vectors = 1;
  std::string refused;
  bool prefetch = false;  // weights, before they are used
};
WinogradTile ask_winograd_tile(const FilteredConv& conv, const WinogradPlan& plan, const Target& target, Knobs& knobs);

// `kernel.params[conv.w]` becomes the buffer of transformed weights.
Stmt emit_winograd(const FilteredConv& conv, const WinogradPlan& plan, const WinogradSizes& sizes,
                   const WinogradTile& tile, WinogradKernel& kernel, const Target& target);

// How the weights are stored.
PackedParam winograd_packing(const FilteredConv& conv, const WinogradPlan& plan);

}  // namespace tessera::inline schedule
