// The processes that share a computation, in a grid: "data=2,model=4" are eight, two rows of four. A process is called
// by its *rank*, its place in the grid in row-major order: the last axis is counted first. Those that differ only in
// their places along some of the axes are a *group*; a collective takes place in each group of its axes by itself.
//
// Immutable values; no errors but those of parsing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline types {

struct MeshAxis {
  std::string name;    // letters, digits and '_', beginning with a letter
  int64_t extent = 1;  // from 1
  bool operator==(const MeshAxis&) const = default;
};

struct Mesh {
  std::vector<MeshAxis> axes;  // names differ
  bool operator==(const Mesh&) const = default;

  int64_t ranks() const;
  std::string to_string() const;          // "data=2,model=4"
  int find(std::string_view name) const;  // the number of an axis; -1 where there is none of this name
  // Where a rank stands along each axis, and back.
  std::vector<int64_t> place_of(int64_t rank) const;
  int64_t rank_at(const std::vector<int64_t>& place) const;
  // How many ranks a group along these axes has.
  int64_t group_size(const std::vector<std::string>& along) const;
  // The ranks of the group that `rank` is in, ascending along the axes in the order given: the first one varies
  // slowest.
  std::vector<int64_t> group_of(int64_t rank, const std::vector<std::string>& along) const;
};

inline constexpr int64_t kMostRanks = 1 << 16;

// Empty when `text` is such a grid of at most kMostRanks; else why not, in a few words.
std::string parse_mesh(std::string_view text, Mesh& mesh);
// "data,model" as a list; empty when each is an axis of the mesh and none stands twice, else why not.
std::string parse_mesh_axes(std::string_view text, const Mesh& mesh, std::vector<std::string>& axes);

}  // namespace tessera::inline types
