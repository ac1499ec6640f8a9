// How register_tile cuts a kernel, and the loops that follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loop/intrinsic.h"
#include "schedule/choose.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/register_tile/tile_shape.h"

namespace tessera::inline schedule {

struct ReduceLoop {
  Var var;
  int64_t extent = 1;      // constant part of the trip count
  Expr dynamic_extent;     // when the last block is shorter; null otherwise
  int axis = 0;            // index into LinearKernel::reduce
  int64_t multiplier = 1;  // of the axis' place per step
  bool expanded = false;   // copied per iteration, because rows take part or not depending on it
};

// A stretch of row tiles in which the same rows take part.
struct RowRun {
  int64_t first_tile = 0, num_tiles = 0;
  int64_t rows = 0;                                 // rows stored
  std::vector<std::pair<int64_t, int64_t>> active;  // per assignment of the expanded loops: rows [first, second)
};

// Blocks of the vector axis that tiles take alike: groups of `vectors` blocks, then fewer that are left, then a block
// with fewer lanes.
struct BlockGroups {
  int64_t first_block = 0, count = 1, vectors = 1, lanes = 1;
};

// How a packed operand is read: the variable of each of its dimensions, and which of them are blocks.
struct PackedOrder {
  std::vector<Var> vars;
  size_t block = 0;
};

// Columns behind the whole blocks that are dot products along the reduction's only loop.
struct DotColumns {
  int64_t count = 0;     // 0: none
  int64_t rows = 1;      // of outputs that are summed at once
  int64_t elements = 0;  // of their weights, behind those of the whole blocks
  Var column;
  Expr update;  // the product, in terms of `column`, with the factor that is read for rows first
};

// The last block of the vector axis, where the output has few of its lanes: a vector holds, for each of `lanes`
// columns, neighbours along the last loop of the reduction.
struct SplitBlock {
  int64_t columns = 0;   // 0: none
  int64_t lanes = 1;     // `columns`, rounded up to a power of 2
  int64_t elements = 0;  // of its weights, behind those of the whole blocks
  Var place;             // of a neighbour
  Expr update;           // the product, in terms of the vector axis (the column) and of `place`
};

struct Tiling {
  LinearKernel kernel;
  const Target* target = nullptr;
  std::string name;
  // The vector axis.
  OutputLoop vector;
  bool blocked = false;  // it is the remainder of a blocked axis, whose quotient is `block`
  OutputLoop block;      // variable of the block index; made up when the axis is whole
  int64_t width = 1;     // elements per block: the width of a vector
  int64_t full_blocks = 1, partial_lanes = 0;
  // Lanes of the last full block that the output has, where the operands have them all; 0: all.
  int64_t stored_lanes = 0;
  std::optional<OutputLoop> row;
  std::vector<OutputLoop> others;  // outermost first
  std::vector<ReduceLoop> reduce;
  Expr update;  // what is combined, guards removed
  // The same for each of block_groups, where operands are stored by groups: in terms of the group's number and of the
  // block's number in it. Empty where they are stored by blocks.
  std::vector<Expr> updates;
  Var group, member;
  // With dot products: the intrinsic, and the variable of the place in a pair or in a group of four along the last of
  // `reduce`, which steps from group to group.
  const TensorIntrinsic* dot = nullptr;
  Var place;
  int64_t depth() const { return dot ? dot->depth : 1; }
  std::vector<Expr> guards;  // hoisted conditions without the row axis
  std::vector<Expr> row_guards;
  std::vector<PackedParam> packed;
  std::vector<PackedOrder> orders;  // of packed
  int64_t block_elements = 0;       // from block to block of the last packed operand
  std::vector<RowRun> runs;
  DotColumns dots;
  SplitBlock split;
  TileShape shape;
  Expr store_guard;
  // Knobs of the loops around the tiles; see emit_tiling_loops.
  int64_t place_block = 0, group_block = 0;
  int64_t parallel = kJoinAll;
  int64_t unroll = 1;  // steps of the innermost loop of the reduction
  bool prefetch = true;
};

std::vector<BlockGroups> block_groups(const Tiling& t);
// Outputs beside the row axis that share a group of weights.
int64_t places_beside_rows(const Tiling& t);
// The load of an image that lies row by row in far memory, in a sum over few channels; null when there is none.
Expr image_of(const Tiling& t);
// The load of which each vector of outputs reads another one in each row (depthwise convolutions, pooling); null when
// there is none.
Expr own_load(const Tiling& t);
// Whether so few outputs share a group of weights that these come from memory about as fast as they are used: they are
// one stream, of which the next group is asked for while this one is used (weights_ahead). Measured on Zen 5 with 50 to
// 70 MB of weights, sums of 768 and 3072: products of 8 rows take 1.07 ms instead of 1.49 and 1.33 instead of 2.16, of
// 16 rows 1.8 instead of 2.55 and 2.05 instead of 2.4. Fewer than 5 rows gain nothing.
bool streams_weights(const Tiling& t);
// The load of an image in blocks of channels of which a tile reads some pixels each, where it is more than the second
// level of cache holds and the blocks are more streams than the machine follows by itself: then pixels are asked for
// ahead, and near_places of the loop behind that over groups pass by all groups while they stay in cache. Null, and 0,
// when it is no such kernel.
Expr scattered_image_of(const Tiling& t);
int64_t near_places(const Tiling& t);
// The number of the product's factor that rows differ in, if the other one is the packed operand and vectors along
// `loop` can take both: it is contiguous there, and the same for all columns. REQUIRES: one packed operand.
std::optional<size_t> factor_of_rows(const Tiling& t, const ReduceLoop& loop);
// Makes dot products of the columns behind the whole blocks where that takes less time.
// REQUIRES: operands are packed, and nothing is decided that depends on the number of blocks.
void choose_dot_columns(Tiling& t, Knobs& knobs);
// The columns of these rows.
Stmt emit_dot_columns(const Tiling& t, const VarMap& outer, const Expr& first_row, int64_t rows);

// Splits the last block where that takes less time. REQUIRES: as above.
void choose_split_block(Tiling& t, Knobs& knobs, const std::string& suffix);
// The tiling whose only block is the split one.
Tiling tiling_of_split_block(const Tiling& t);

// The loops over groups of blocks, other axes and tiles of rows, with the tiles in them.
Stmt emit_tiling_loops(const Tiling& t);

}  // namespace tessera::inline schedule
