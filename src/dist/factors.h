// What of a node may be divided among ranks, read off its body.
//
// A *factor* is an iteration of the body: one of its axes, or of its reduced axes; of a view (reshape), a dimension of
// the result that is the outermost of those that a dimension of the operand is made of, or the other way round. Ranks
// may each do a part of a factor where
// - every load that mentions it does so by an index that is the factor itself and runs over all of a dimension, so that
//   a rank needs its own part of the operand, and
// - nothing else depends on where in the factor an iteration is: no condition, no value, no other index.
// A part of a reduced factor gives a partial result, of the body's combiner.
//
// An iteration of a window over the first operand (conv, reduce_window) needs rows around its own ones: a rank gets
// those at its borders from its neighbours, a *halo*.
//
// What is looked up in an operand, by an index that is data, and nothing else, has a factor more: the rows that are
// looked up among. A rank that has a part of them finds what is there, and zeros for the rest; the result is a sum of
// these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "types/collective.h"

namespace tessera::inline dist {

// Iteration i needs the rows step * i + low .. step * i + high of the first operand; those outside of it are padding.
struct Reach {
  int64_t step = 1, low = 0, high = 0;
};

// How many rows ranks get of their neighbours: `rows` of the operand and `iterations` cut in `ranks` equal parts each.
// None where some rank needs more than its neighbours have.
struct Halo {
  int64_t before = 0, after = 0;  // the most that any rank needs
};
std::optional<Halo> halo_of(const Reach& reach, int64_t rows, int64_t iterations, int64_t ranks);

struct Factor {
  std::string name;  // "i0", "k": as the body calls it
  int64_t extent = 1;
  int result_dim = -1;              // -1: it is reduced
  std::vector<int> operand_dims;    // by operand: the dimension that follows the factor; -1: none, each rank needs all
  std::string refused;              // why it may not be divided; empty: it may
  bool looked_up = false;           // rows of a table, of which the result is a partial sum
  std::optional<Reach> reach = {};  // of a window over the first operand
};

struct NodeFactors {
  std::vector<Factor> factors;
  CollectiveCombiner combiner = CollectiveCombiner::kNone;  // of reduced factors
  // By operand: the result is a linear function of it with nothing else (is_linear_in), so that a partial sum of the
  // operand gives a partial sum of the result.
  std::vector<bool> linear;
};

// Of nodes of one result whose sizes are numbers: expressions, views. None for all others, which every rank does whole.
std::optional<NodeFactors> factors_of(const Graph& graph, const Node& node);

}  // namespace tessera::inline dist
