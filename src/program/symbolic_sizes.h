// Sizes of programs whose named dimensions get values in a run: what is computed from those values before it.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// A value for each symbol, in their order.
using SizePoint = std::vector<int64_t>;

SizePoint largest_sizes(const std::vector<SymbolRange>& symbols);
SizePoint smallest_sizes(const std::vector<SymbolRange>& symbols);

// The value of an i64 expression of the symbols.
int64_t value_at(const Expr& e, const std::vector<SymbolRange>& symbols, const SizePoint& point);

// Of the physical shape.
int64_t bytes_at(const TensorType& type, const std::vector<SymbolRange>& symbols, const SizePoint& point);
Expr bytes_formula(const TensorType& type);

// Dimensions of inputs and outputs that are neither constant nor a symbol themselves, each once, in their order. Those
// that data decide stand there with their bounds, for which callers have memory.
std::vector<Expr> derived_dims(const Program& program);

// A dimension of an output that data decide.
struct DecidedDim {
  size_t output = 0, axis = 0;
  Expr size;  // of the program's symbols, when all have their values
};
std::vector<DecidedDim> decided_dims(const Program& program);

// A piece of the host's arena, as large as the bounds of data symbols make it. In a run it begins where the last of
// those ends that are below it: the order of the pieces is that of the plan for the largest sizes.
struct ArenaPart {
  size_t piece = 0;           // of a flow
  BufferId storage = -1;      // as storage_buffer gives it
  Expr bytes;                 // rounded up to kBufferAlign
  std::vector<size_t> below;  // numbers of parts that come before this one and are alive at the same time
};

// In an order in which each comes behind those below it; of a flow, those of the pieces with symbols. REQUIRES: a
// planned program.
std::vector<ArenaPart> arena_parts(const Program& program);

// Whether the expression has a symbol of this piece of a flow, or of a program without one.
bool is_of_piece(const Expr& e, const Program& program, size_t piece);
// The piece that the call belongs to; 0 without a flow.
size_t piece_of_call(const Program& program, size_t call);

}  // namespace tessera::inline program
