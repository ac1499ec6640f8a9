// How many vectors and rows a register tile has: a small model of one core's issue limits.
#pragma once

#include <cstdint>
#include <string>

#include "schedule/kernel/knobs.h"

namespace tessera::inline schedule {

struct TileProblem {
  int64_t rows = 1;                 // extent of the row axis
  int64_t blocks = 1;               // vector blocks along the vector axis
  int64_t registers_per_block = 1;  // a block may need several registers
  int64_t steps = 1;                // length of the reduction
  int registers = 16;               // vector registers of the machine
  // Bytes of a block's vectors for all steps, and of the second level of cache from which every row of tiles reads
  // them again; 0 where they are not known to be read in that order.
  int64_t block_bytes = 0, cache_bytes = 0;
  int64_t row_bytes = 0;                     // from one row's operand to the next row's
  int64_t most_vectors = 8, most_rows = 28;  // of a tile
  // Each row and vector has an operand of its own (depthwise convolutions, pooling) instead of one that all vectors
  // share.
  bool is_depthwise = false;
};

struct TileShape {
  int64_t vectors = 1;
  int64_t rows = 1;
};

// The shape with the least predicted time over the whole output, remainders included. Accumulators, the vectors of
// one step and a broadcast fit the registers.
TileShape choose_tile(const TileProblem& problem);

// The same, or what the knobs "vectors" and "rows", followed by `suffix`, say. `refused` is not empty when the rows are
// not there or the tile does not fit `all_registers` of the machine (0: problem.registers).
struct AskedTile : TileShape {
  std::string refused;
};
AskedTile ask_tile(const TileProblem& problem, Knobs& knobs, int all_registers = 0, const std::string& suffix = "");

// Predicted time of a reduction over `steps` for one of `rows` rows of a block of `width` elements of which the output
// has `columns`, when neighbours along the reduction share its vectors (rules/split_block.cpp); in multiply-add issue
// slots, of which the whole block takes `steps`.
double split_block_cost(int64_t columns, int64_t width, double steps, int64_t rows);

}  // namespace tessera::inline schedule
