// What follows from a tiling: how many tiles and steps there are, how large a tile's operands are, and what they take
// of the memories.
#pragma once

#include <cstdint>
#include <vector>

#include "accel/network/unit_kernel.h"

namespace tessera::inline network {

struct TileSizes {
  TileSizes(const UnitRoles& roles, const Contraction& of, const Cover& cover, const UnitTiling& tiling);

  int64_t blocks_out_all = 1, blocks_in_all = 1;  // of the kernel
  int64_t tiles_out = 1, tiles_of_places = 1, steps = 1;
  std::vector<int64_t> tiles_of;  // along each axis of places
  // Of x, along each dimension but the channels'.
  std::vector<size_t> x_dim;            // its number
  std::vector<bool> compact;            // only what is read is loaded
  std::vector<int64_t> spans;           // of windows
  std::vector<int64_t> local;           // places of a tile
  bool x_once = false, w_once = false;  // it stays for all tiles of channels, or of places
  int64_t x_threads = 1, w_threads = 1, sum_threads = 1;
  int64_t vectors = 1;  // of a tile
  // Whether the next tile's sums are cleared before this one's are computed with: where another queue does it, that of
  // products would wait for all that stands before it there.
  bool clears_ahead(const UnitRoles& roles) const;
  int64_t x_bytes = 0, w_bytes = 0, sums_bytes = 0;
  // Whether the memories of the product's operands hold them.
  bool fit(const Accelerator& unit, const UnitRoles& roles) const;
  // Of what is computed of sums: the buffers, and the one that each step writes.
  std::vector<DType> buffers;
  std::vector<size_t> buffer_of;

 private:
  void plan_buffers(const Contraction& of, const Cover& cover, const UnitTiling& tiling, int product_queue);
};

}  // namespace tessera::inline network
