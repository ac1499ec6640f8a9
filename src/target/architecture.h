// What an architecture has, by what its features are called: one row for each register file and unit. To add an
// architecture is to add rows, and its intrinsics.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::inline target {

enum class Isa : uint8_t {
  kX86_64,
  kAArch64,
  kRiscv64,
  kReference,  // no machine: what decisions that hold everywhere are taken for
  kOther,
};

inline constexpr std::string_view kReferenceTriple = "reference";

// A file of vector registers, and what is computed in it.
struct VectorFile {
  std::string_view needs;  // the features that make it, "avx2,fma"; empty for what every machine has
  int bits = 128;          // of a register
  int registers = 16;
  bool fused = false;   // multiply-adds are rounded once
  bool masked = false;  // an operation may leave lanes out at no cost
};

struct Architecture {
  Isa isa;
  std::string_view triple;              // what its triples begin with
  std::string_view intrinsics;          // what the names of its intrinsics begin with, "x86."
  std::span<const VectorFile> vectors;  // from the best on; the last one needs nothing
};
// Of those that nobody knows: 128 bits, 16 registers.
const Architecture& architecture_of(std::string_view triple);

// A unit that multiplies tiles of two dimensions, whose sums stay in it.
struct MatrixUnit {
  std::string_view name;
  std::string_view needs;
  int tiles = 8;  // that it holds
  int rows = 16;  // of a tile
  int row_bytes = 64;
};
// Of all architectures, in the order in which they are preferred.
std::span<const MatrixUnit> matrix_units();

// The feature of the unit that is plain memory: what is made of a machine's tiles, on machines without them.
inline constexpr std::string_view kPortableTiles = "portable-tiles";

}  // namespace tessera::inline target
