// Derivatives of graphs as graphs: gradients, products with Jacobians forward and backward, Jacobians, second
// derivatives. What comes out is a graph like any other: compiled, interpreted, written, and differentiated again.
//
//   const builder::Graph step = builder::value_and_grad(g, "loss", {"w", "b"});
//   tessera::compile_file(step, "step.so");
//
// `wrt` names inputs of real element types; none: all of them. `output` names an output; "": the first one. States are
// inputs that nobody gives: nothing is differentiated with respect to them, and they change as in the graph.
// Conventions at kinks and ties are PyTorch's (docs/training.md).
// Errors: CompileError TSR-2072 naming all operators on the way that have no gradient, TSR-2073 for a name that is no
// input or output, or none of real numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph.h"

namespace tessera::builder {

using Names = std::vector<std::string>;

// The gradients of the sum of the elements of `output`, one for each of `wrt`: outputs "NAME.gradient".
Graph grad(const Graph& graph, const std::string& output = "", const Names& wrt = {});
// The graph's own outputs, then the gradients.
Graph value_and_grad(const Graph& graph, const std::string& output = "", const Names& wrt = {});

// J' g: further inputs "NAME.cotangent", one for each output of real numbers; further outputs "NAME.gradient".
Graph vjp(const Graph& graph, const Names& wrt = {});
// J t: further inputs "NAME.tangent", one for each of `wrt`; further outputs "NAME.tangent", one for each output of
// real numbers. Loops need no bound.
Graph jvp(const Graph& graph, const Names& wrt = {});

// The derivatives of `output` with respect to each of `wrt`, "NAME.jacobian": the dimensions of the output, then those
// of the input. By rows (backward) or by columns (forward), a loop over the elements of the one or the others.
enum class Jacobian { kAuto, kReverse, kForward };
Graph jacobian(const Graph& graph, const std::string& output = "", const Names& wrt = {},
               Jacobian mode = Jacobian::kAuto);
// Second derivatives of the sum of the elements of `output` with respect to each pair of `wrt`, "A.B.hessian".
Graph hessian(const Graph& graph, const std::string& output = "", const Names& wrt = {});
// The gradients, then the products of the second derivatives with a direction, whose parts are further inputs
// "NAME.tangent".
Graph hvp(const Graph& graph, const std::string& output = "", const Names& wrt = {});

// Adds what `part` computes of `operands` to `graph`, node by node, and answers its outputs. TSR-2060 for a value of
// another graph, TSR-2005 for operands that are not the part's inputs, TSR-2070 for a part with states.
Values add_graph(Graph& graph, const Graph& part, const Values& operands);

// One node of a graph as a graph of its own, with the constants that it reads.
struct Piece {
  Graph graph;
  std::vector<int32_t> inputs, outputs;  // numbers of values of the whole
};
// The nodes of a graph one after the other, constants aside, and what its inputs and outputs are. An output that is a
// constant has a piece of its own.
struct Pieces {
  std::vector<Piece> pieces;
  std::vector<int32_t> inputs, outputs;
};
Pieces pieces_of(const Graph& graph);

}  // namespace tessera::builder
