// One kernel of a chain for one block of its rows: the program that the rules write, on the block's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/fusion/chain.h"

namespace tessera::inline schedule {

// Rows of the last row axis, `count` from its base on, at the places `bases` along the other axes.
struct Block {
  std::vector<Var> bases;  // by row axis
  int64_t count = 1;
  int64_t lo = 0, hi = 0;  // of the last base
  int64_t columns = 0;     // computed of Chain::masked
};

// Where a parameter lies: element i of the kernel's memory is element i - begin + shift of the buffer.
struct Place {
  BufferPtr buffer;
  Expr begin;  // of the block's rows, on which no place then depends; null: all rows are there
  Expr shift;  // null: 0
};

// Leaves of the kernel the block's rows. `axes` are its output axes that are rows, by row axis; those behind its end or
// kNoAxis are not cut.
void cut_rows(TensorProgram& kernel, const Chain& chain, const Block& block, const std::vector<size_t>& axes);

// The kernel's loops without threads on `places`, by parameter, of which the output's is the last. Empty when no rule
// takes it as its operands are stored, or it needs other rows than the block's.
std::optional<Stmt> place_kernel(const TensorProgram& kernel, const std::vector<Place>& places, const Block& block,
                                 const AskRules& ask);

// What a chain's kernel is made of.
struct ChainCode {
  std::vector<BufferPtr> local;
  std::optional<Stmt> shared;  // for all blocks of rows: the kernels that lack the last row axis
  std::vector<Stmt> blocks;    // by block
};

}  // namespace tessera::inline schedule
