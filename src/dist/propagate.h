// Which part of each node every rank does: shardings for all values of a graph, from those of a few.
//
// Nodes are decided in their order, for one mesh axis after the other. What a mesh axis may divide of a node are its
// factors (factors.h); taken is the one with the least cost by a simple model: bytes that ranks send to bring operands
// into the shardings that it needs (and a partial result into one that is none), bytes of operands and result that a
// rank touches, and operations. A factor that moves nothing goes before one that does, where an operand that is no
// constant is cut along the axis already. Where none is, only contractions begin to cut, those with a constant along
// the constant. Constants have no sharding until their first reader gives them one. Where operands come with other
// shardings than a node needs, they are brought there (redistribute.h).
//
// What was pinned stays: inputs and constants by name. Every decision against dividing has its reason among the
// remarks.
//
// A state is a constant that changes: its first reader says how it lies, and what it is after a call comes back to
// that. Collectives over other ranks are like any operator: each place of a mesh axis does its part of them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dist/factors.h"
#include "dist/redistribute.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "types/sharding.h"

namespace tessera::inline dist {

struct NodePlan {
  std::vector<Sharding> operands;  // that the node needs
  std::vector<Sharding> results;
  // Mesh axes along which the rows that are looked up among are divided: each rank finds its own ones, and zeros.
  std::vector<std::string> looked_up = {};
  // Dimensions of the first operand that are cut along an axis, and of which a rank needs more than its part.
  struct Window {
    std::string axis;
    int dim = -1;
    Reach reach;
  };
  std::vector<Window> windows = {};
};

struct ShardingPlan {
  Mesh mesh;
  RankSpeed speed;               // by which values are brought from one sharding to another
  std::vector<Sharding> values;  // by value, as it is made
  std::vector<NodePlan> nodes;   // by node
  // By value: a form that it is brought to once it is made, before somebody needs another one; empty: none has any.
  std::vector<std::optional<Sharding>> forms;
  std::vector<std::string> remarks;
};

// By the name of a graph's input or constant.
using Pins = std::map<std::string, Sharding>;
// The same by value. UserError TSR-2110 for a pin of something else, or that does not fit.
std::map<ValueId, Sharding> pinned_values(const Graph& graph, const Mesh& mesh, const Pins& pins);

struct PropagationRules {
  bool keeps_bits = false;  // no sum is divided: ranks compute the bits that one does, where kernels add in one order
};

// Results of the graph are brought to every rank by whoever runs the plan (localize.h), states to how they lie.
// REQUIRES: no checks, no symbols; composites are done whole by every rank, so open those that are to be divided.
// UserError TSR-2110 for a pin of something else, or that does not fit.
ShardingPlan propagate(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed,
                       PropagationRules rules = {});
// How an output of the graph lies in the end: whole, and a state as it was before.
Sharding sharding_of_output(const Graph& graph, const ShardingPlan& plan, size_t output);

// The node for parts: with the sizes among its attributes that are those of its result's. Null attributes where the
// operator's inference does not give the part of the result then.
std::optional<Attrs> local_attrs(const Graph& graph, const Node& node, const NodePlan& plan, const Mesh& mesh);
// How many rows ranks get of their neighbours for a window of the node, and how many bytes one between two others sends
// for that.
Halo halo_of(const Graph& graph, const Node& node, const NodePlan::Window& window, const Mesh& mesh);
int64_t halo_bytes(const Graph& graph, const Node& node, const NodePlan& plan, const NodePlan::Window& window,
                   const Mesh& mesh);
// The type of a rank's part.
TensorType local_type(const TensorType& type, const Sharding& sharding, const Mesh& mesh);

// One line for each value with its type and sharding, collectives between them.
std::string plan_text(const Graph& graph, const ShardingPlan& plan);

}  // namespace tessera::inline dist
