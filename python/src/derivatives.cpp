#include "derivatives.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "tessera/derivatives.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

using builder::Graph;
using builder::Names;

void add_derivatives(nb::module_& m) {
  m.def("grad", &builder::grad, "graph"_a, "output"_a, "wrt"_a, "The gradients alone.");
  m.def("value_and_grad", &builder::value_and_grad, "graph"_a, "output"_a, "wrt"_a,
        "The graph's own outputs, then the gradients.");
  m.def("vjp", &builder::vjp, "graph"_a, "wrt"_a, "Cotangents to gradients.");
  m.def("jvp", &builder::jvp, "graph"_a, "wrt"_a, "Tangents of inputs to tangents of outputs.");
  m.def(
      "jacobian",
      [](const Graph& graph, const std::string& output, const Names& wrt, const std::string& mode) {
        const auto chosen = mode == "reverse"   ? builder::Jacobian::kReverse
                            : mode == "forward" ? builder::Jacobian::kForward
                                                : builder::Jacobian::kAuto;
        return builder::jacobian(graph, output, wrt, chosen);
      },
      "graph"_a, "output"_a, "wrt"_a, "mode"_a, "Derivatives of an output, as tensors.");
  m.def("hessian", &builder::hessian, "graph"_a, "output"_a, "wrt"_a, "Second derivatives, as tensors.");
  m.def("hvp", &builder::hvp, "graph"_a, "output"_a, "wrt"_a, "Gradients, and second derivatives along a direction.");
  m.def("add_graph", &builder::add_graph, "graph"_a, "part"_a, "operands"_a,
        "Adds what another graph computes of these values; its outputs.");
  m.def(
      "pieces",
      [](const Graph& graph) {
        const builder::Pieces whole = builder::pieces_of(graph);
        nb::list pieces;
        for (const builder::Piece& piece : whole.pieces)
          pieces.append(nb::make_tuple(piece.graph, piece.inputs, piece.outputs));
        return nb::make_tuple(pieces, whole.inputs, whole.outputs);
      },
      "graph"_a,
      nb::sig("def pieces(graph: Graph) -> tuple[list[tuple[Graph, list[int], list[int]]], list[int], list[int]]"),
      "Each node as a graph with the numbers of its operands and results; the numbers of inputs and outputs.");
}

}  // namespace tessera::python
