// How a tensor's logical index becomes the index of its buffer. A layout is the list of the buffer's dimensions,
// outermost first, each taken from one logical axis: the whole axis (`1`), its quotient by a block (`1/16`) or its
// remainder (`1%16`). The blocked image layout NCHW16c is {0,1/16,2,3,1%16}. An axis whose extent is not a multiple
// of its block is padded at the end; the padding's contents are unspecified and no operator's result depends on it.
// The empty list is the row-major layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::inline types {

struct LayoutDim {
  enum class Part : uint8_t { kWhole, kQuotient, kRemainder };
  int axis = 0;
  Part part = Part::kWhole;
  int64_t block = 1;
  bool operator==(const LayoutDim&) const = default;
};

struct Layout {
  std::vector<LayoutDim> dims;  // empty: row-major

  bool row_major() const { return dims.empty(); }
  bool operator==(const Layout&) const = default;
  std::string to_string() const;  // "{0,1/16,2,3,1%16}"; "" when row-major
  // Axis `axis` of a rank-`rank` tensor split by `block`, the remainder innermost.
  static Layout blocked(int rank, int axis, int64_t block);
  // The block of the innermost remainder dimension and its axis; {-1, 1} when there is none.
  LayoutDim inner_block() const;
};

}  // namespace tessera::inline types
