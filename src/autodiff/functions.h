// Derivatives of a graph as graphs: what a product with the Jacobian is, forward and backward, Jacobians and second
// derivatives as tensors.
//
// `wrt` are inputs of the graph of real element types, by their places among its own inputs; what has states keeps
// them, and derivatives are at the states' values, which do not move. Results have no nodes that they do not need. The
// graphs are graphs like any other, so that each of these functions takes what another one gives: derivatives of any
// order. UserError TSR-2072 where derivatives pass operators that have none; all are named.
#pragma once

#include <limits>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline autodiff {

// The graph's own outputs, then the gradient of the sum of the elements of output `output` with respect to each of
// `wrt`, as gradients() has them.
Graph value_and_gradients(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops);
// The gradients alone.
Graph gradients_alone(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops);

// J' g: further inputs "NAME.cotangent", one for each own output of a real type; further outputs "NAME.gradient".
// `outputs`: of the first so many own outputs alone; the others have none, and nothing is derived from them.
Graph vector_jacobian(const Graph& graph, const std::vector<size_t>& wrt, const OpTable& ops,
                      size_t outputs = std::numeric_limits<size_t>::max());
// J t: further inputs "NAME.tangent", one for each of `wrt`; further outputs "NAME.tangent", one for each own output of
// a real type.
Graph jacobian_vector(const Graph& graph, const std::vector<size_t>& wrt, const OpTable& ops);

enum class JacobianMode : uint8_t { kReverse, kForward };  // row by row of outputs, or column by column of inputs

// The graph's outputs are the derivatives of its output `output` with respect to each of `wrt`, "NAME.jacobian": their
// dimensions are the output's, then the input's.
Graph jacobian(const Graph& graph, size_t output, const std::vector<size_t>& wrt, JacobianMode mode,
               const OpTable& ops);

// Of the sum of the elements of output `output`: the gradients, then the products of the matrix of second derivatives
// with a direction, whose parts are further inputs "NAME.tangent".
Graph hessian_vector(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops);
// The second derivatives with respect to each pair of `wrt`, "A.B.hessian": the dimensions of A, then those of B.
Graph hessian(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops);

}  // namespace tessera::inline autodiff
