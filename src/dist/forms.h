// The shardings that a value is there in, on every rank: as it was made, and what it was brought to since. Whoever
// needs another one begins with the nearest.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "dist/redistribute.h"
#include "graph/graph.h"

namespace tessera::inline dist {

class Forms {
 public:
  Forms(const Graph& graph, const Mesh& mesh, const RankSpeed& speed) : graph_(graph), mesh_(mesh), speed_(speed) {}

  void add(ValueId value, const Sharding& sharding);
  // The form to begin with, and the moves from there; the forms on the way are there then. REQUIRES: it has one.
  std::pair<Sharding, std::vector<Move>> bring(ValueId value, const Sharding& to);

 private:
  const Graph& graph_;
  const Mesh& mesh_;
  const RankSpeed& speed_;
  std::map<ValueId, std::vector<Sharding>> forms_;  // in the order in which they came
};

}  // namespace tessera::inline dist
