// How packed_panels cuts a product, and the loops that follow from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/kernel/linear_kernel.h"
#include "target/target.h"

namespace tessera::inline schedule {

// A kernel as products of matrices, one for each of the other outputs: out[others, row, column] is the sum over the
// steps of of_rows(others, row, steps) * of_columns(others, column, steps). Neighbouring columns are neighbours in the
// output. The factors are in the sums' type.
struct PanelProduct {
  LinearKernel kernel;
  std::vector<OutputLoop> others;
  Var row, column;
  int64_t num_rows = 1, num_columns = 1;
  std::vector<Axis> steps;  // of more than one iteration each, outermost first
  Expr of_rows, of_columns;
  std::vector<Expr> column_guards;  // where one does not hold, of_columns is 0 and reads nothing
};

enum class RowOrder : uint8_t { kInPlace, kByStep, kByRow };

struct PanelTiling {
  const Target* target = nullptr;
  std::string name;
  int64_t lanes = 1;
  // A tile in registers, and how many of them down and across share what is packed.
  int64_t vectors = 1, rows = 1;
  int64_t tiles_down = 1, panels = 1;
  // Steps are taken block by block: `block` iterations of steps[cut] with all those within it. Sums begin anew in each
  // block, and blocks are added up in order.
  size_t cut = 0;
  int64_t block = 1;
  // Rows: read where they are; or copied, those of a tile side by side for each step, or the steps of each row.
  RowOrder row_order = RowOrder::kInPlace;

  int64_t width() const { return vectors * lanes; }
};

// The steps of a block when it is whole.
int64_t block_steps(const PanelProduct& product, const PanelTiling& tiling);

Stmt emit_panels(const PanelProduct& product, const PanelTiling& tiling);

}  // namespace tessera::inline schedule
