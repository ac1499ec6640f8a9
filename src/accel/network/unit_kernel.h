// A kernel as an accelerator runs it: tiles that its memories hold, and the loops over them, whose nests are its
// instructions. Tiles of sums are finished one after the other; what a step of one reads lies in buffers, of which
// virtual threads have one each, so that one is filled while another is read.
//
//   for tile: clear sums; for step of the channels: load x, load w, multiply; load what else is read; compute; store
//
// Where another queue than that of products clears, it clears the sums of the next tile before it computes with these.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "accel/network/contraction.h"
#include "accel/network/cover.h"
#include "accel/network/unit_roles.h"
#include "accel/stream.h"
#include "loop/stmt.h"

namespace tessera::inline network {

struct UnitTiling {
  std::vector<int64_t> places;            // extent of a tile along each axis of places
  int64_t blocks_out = 1, blocks_in = 1;  // of channels: of a tile, of a step
  bool channels_inner = true;             // tiles of channels change faster than those of places
  // Virtual threads of each operand, so many buffers it has: one is filled while another is read.
  int x_threads = 2, w_threads = 2, sum_threads = 2;
  bool operator==(const UnitTiling&) const = default;
};
std::string to_string(const UnitTiling& tiling);

// What the loops take besides the kernel's own activations: weights and rows in the order in which they are read.
struct UnitKernel {
  LoopProgram program;
  // For each input of `program`: a parameter of the kernel that is passed as it is, ..
  struct Input {
    enum class Kind : uint8_t { kActivation, kWeights, kRows } kind = Kind::kActivation;
    size_t param = 0;  // kActivation, kWeights
    DType dtype = DType::kI8;
    std::vector<int64_t> shape;  // kWeights, kRows
    std::vector<CoverRow> rows;  // kRows
  };
  std::vector<Input> inputs;
  UnitTiling tiling;
};

// How many blocks of `lanes` channels there are.
inline int64_t blocks_of(int64_t channels, int64_t lanes) { return (channels + lanes - 1) / lanes; }

// The layout in which the unit reads and writes a tensor: blocks of channels, whose places lie together.
Layout unit_layout(size_t rank, size_t channel_dim, int64_t lanes);
// Whether it can read and write this one: the channels of a block lie together, and blocks are whole.
bool suits_unit(const Layout& layout, const Shape& shape, size_t channel_dim, int64_t lanes);

// The tilings that the memories hold, those first that an estimate of cycles finds best: at most `most` of each form,
// which are `threads` buffers for all operands, for some, and for none. NotOffloaded with numbers when none fits.
std::variant<std::vector<UnitTiling>, NotOffloaded> tilings_of(const Accelerator& unit, const UnitRoles& roles,
                                                               const Contraction& of, const Cover& cover, int threads,
                                                               size_t most);

// REQUIRES: layouts that suit the unit, and a tiling that fits.
UnitKernel unit_kernel(const UnitRoles& roles, const Contraction& of, const Cover& cover, const UnitTiling& tiling);

// The stream of a unit's kernel, proven. UserError TSR-35xx.
InstructionStream stream_of(const Accelerator& unit, const LoopProgram& program);

}  // namespace tessera::inline network
