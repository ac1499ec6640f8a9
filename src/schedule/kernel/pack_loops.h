// Packing as a loop program, for weights that arrive at run time: what pack() does to a constant.
#pragma once

#include <cstdint>
#include <string>

#include "loop/stmt.h"
#include "schedule/kernel/pack.h"
#include "target/target.h"

namespace tessera::inline schedule {

// Why no loops pack so; empty when some do. Pieces of numbers are cut from constants alone: they are chosen by what the
// numbers are.
std::string run_time_packing_problem(const PackedParam& packed, DType dtype);

// Packs part number `part` of weights of so many elements: parameters are the weights, of elements or of 32-bit words,
// and the packed part, both of one dimension. Bit for bit what pack() stores, but for Winograd's transform, which is
// computed in f32 here. REQUIRES: no run_time_packing_problem.
//
// Weights whose vectors do not lie side by side are turned first, a tile of 16 x 16 words in registers at a time, chunk
// by chunk in the first level of cache; elements of 8 or 16 bits as they lie in words, which are taken apart behind
// that.
LoopProgram pack_loops(const std::string& name, const PackedParam& packed, size_t part, DType dtype, int64_t elements,
                       const Target& target);

}  // namespace tessera::inline schedule
