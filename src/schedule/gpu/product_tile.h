// What the rules for products on GPUs share: which axes of the output are rows and columns of a product, where a tile's
// operands are read, and what is stored of a finished sum.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/kernel/linear_kernel.h"

namespace tessera::inline schedule {

// The two factors of what is summed.
struct Factors {
  Expr a, b;
};
// A product; or one that a condition on the variables of one factor alone makes zero, as padding does.
std::optional<Factors> factors_of(const Expr& value);

bool is_const_zero(const Expr& e);

// An operand of a product: a depends on its rows, b on its columns.
struct ProductOperand {
  Expr factor;
  FlatAxes axes;  // rows, or columns
  Expr first;     // place of a tile's first one
  int64_t tile = 1;
  bool by_steps = false;  // neighbours in memory are steps of the sum, rather than rows or columns
};

class ProductTile {
 public:
  // `kernel` outlives the object.
  ProductTile(const LinearKernel& kernel, Factors factors) : kernel_(kernel), factors_(std::move(factors)) {}

 protected:
  // Finds the axes. The reason why tiles are no way to compute the kernel; empty when they are.
  std::string find_axes();
  // As FlatAxes::extent: to choose by.
  int64_t row_tiles() const { return (a_side_.axes.extent + a_side_.tile - 1) / a_side_.tile; }
  int64_t column_tiles() const { return (b_side_.axes.extent + b_side_.tile - 1) / b_side_.tile; }
  bool fits_grid() const;
  // Loops over blocks around what `make` makes, which may use what comes below. REQUIRES: the sides' `tile` is set.
  Stmt in_blocks(const std::function<Stmt()>& make);

  struct Read {
    Expr value;   // of the operand, or of another expression in the same terms
    Expr inside;  // whether there is one
  };
  // `value` at a place of a tile and a step of the sum. `multiple`: steps that are always there together.
  Read read(const ProductOperand& side, const Expr& value, const Expr& place, const Expr& step, int64_t multiple) const;
  // The results that follow from a finished sum of the tile.
  Stmt store_results(const Expr& row_of_tile, const Expr& column_of_tile, const Expr& sum) const;

  const LinearKernel& kernel_;
  Factors factors_;
  ProductOperand a_side_, b_side_;
  FlatAxes batch_, steps_;
  Bounds bounds_;

 private:
  VarMap plane_;
  std::vector<Expr> inside_;  // what holds of places inside the logical extents
};

}  // namespace tessera::inline schedule
