// How a node reads its operands, found from its body: what the rules about layouts and fusion are derived from.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline graph_passes {

enum class OperandAccess : uint8_t {
  kNone,         // the operand is not read
  kIdentity,     // at the output's own index, shapes being equal
  kBroadcast,    // like numpy: at the output's index, or at 0 along stretched dimensions
  kChannelwise,  // rank 4 or more, dimensions 0 and 1 at the output's own index, anything along the others
  kOther,
};

struct Accesses {
  bool reduction = false;
  // A sum of products of two operands: what the contraction kernels take.
  bool contraction = false;
  std::vector<OperandAccess> operands;
  // For each operand: whether some element of it may be read more than once to compute the whole output.
  std::vector<bool> repeats;
  // For each operand: at how many different indices one output element (one step of the reduction) reads it.
  std::vector<int> reads;
  // For each operand: whether its elements say where another operand is read.
  std::vector<bool> indexes;
  // Arithmetic per output element (per step of a reduction): 1 for an addition and its like, 8 for division and
  // transcendental functions; index arithmetic not counted.
  int work = 0;

  bool elementwise() const;  // no reduction; all operands identity or broadcast
};

// REQUIRES: an operator of kind kExpression.
Accesses accesses_of(const Graph& graph, const Node& node);

}  // namespace tessera::inline graph_passes
