// What the graph of a region sees of the graph around it while a node with control flow is imported. A region uses
// nothing but its own inputs: what it names outside becomes an input of it, which the node passes as an operand.
// Constants are repeated instead, and so are sizes that the graph around it computes from its symbols, so that both are
// known in the region, too.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "import/common/constants.h"

namespace tessera::inline import_common {

// A region's graph and, for its last inputs, the values of the graph around it that they are.
struct CapturedRegion {
  Graph graph;
  std::vector<ValueId> captured;
};

class RegionScope {
 public:
  // The graphs, and what belongs to them, must outlive the scope.
  RegionScope(const Graph& outer, ConstantFinder& outer_constants, const OpTable& ops, Graph& region,
              GraphBuilder& builder)
      : outer_(outer), outer_constants_(outer_constants), ops_(ops), region_(region), builder_(builder) {}

  // A value of the graph around the region, which is no constant, in the region.
  ValueId captured(ValueId outer);
  // The region, whose nodes are those of `live`.
  CapturedRegion finish(Graph live) const;

 private:
  ValueId size_values(const Shape& sizes, const TensorType& type);

  const Graph& outer_;
  ConstantFinder& outer_constants_;
  const OpTable& ops_;
  Graph& region_;
  GraphBuilder& builder_;
  std::unordered_map<ValueId, ValueId> inputs_;  // by the value of the graph around it
  std::vector<ValueId> captured_;                // those values, in the order of the inputs
};

}  // namespace tessera::inline import_common
