// How a tensor lies on the ranks of a mesh.
//
// Along each dimension it is cut in as many equal parts as the mesh axes that are named there have places; a rank has
// the part of its own place. Mesh axes that no dimension names have copies. A tensor may also be *partial* along mesh
// axes: what it means is then the sum (or product, minimum, maximum) of what the ranks along them have.
//
// Text: "@{data,_}" (dimension 0 is cut along `data`, dimension 1 is whole), "@{data.model}" (along both, the first one
// counts first), "@{_,_}+sum(model)". Behind a type: "f32[64,256]@{data,_}+sum(model)", where extents are those of the
// whole tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "types/collective.h"
#include "types/mesh.h"

namespace tessera::inline types {

struct PartialAxis {
  std::string axis;
  CollectiveCombiner combiner = CollectiveCombiner::kSum;
  bool operator==(const PartialAxis&) const = default;
};

struct Sharding {
  std::vector<std::vector<std::string>> dims;  // mesh axes along each dimension
  std::vector<PartialAxis> partial;            // in the order of their names
  bool operator==(const Sharding&) const = default;

  static Sharding replicated(size_t rank) { return {std::vector<std::vector<std::string>>(rank), {}}; }
  bool is_replicated() const;  // every rank has all of it, and it is not partial
  // The dimension that a mesh axis cuts; -1: none.
  int dim_of(std::string_view axis) const;
  bool is_partial(std::string_view axis) const;
  std::string to_string() const;
};

// Empty when `text` is a sharding over the mesh, no axis twice; else why not, in a few words.
std::string parse_sharding(std::string_view text, const Mesh& mesh, Sharding& sharding);
// Empty when a tensor of these extents can lie so: as many dimensions, each divided evenly. Else why not.
std::string check_sharding(const Sharding& sharding, const std::vector<int64_t>& dims, const Mesh& mesh);
// The extents of a rank's part. REQUIRES: check_sharding accepts it.
std::vector<int64_t> local_dims(const Sharding& sharding, const std::vector<int64_t>& dims, const Mesh& mesh);
// Where the rank's part begins. REQUIRES: the same.
std::vector<int64_t> local_begin(const Sharding& sharding, const std::vector<int64_t>& dims, const Mesh& mesh,
                                 int64_t rank);

}  // namespace tessera::inline types
