// A graph as MLIR: a function of tensors in which each expression body is one linalg.generic, for people who go on with
// MLIR, and for looking at bodies with its tools.
//
// A load whose indices are axes of the body, each once, is an operand with an indexing map; any other load is a
// tensor.extract in the region, at indices that the region computes from linalg.index, under scf.if where the body
// loads only on a condition. Composites are opened. Meaning is that of arith/expr.h: division by zero, shifts beyond
// the width and casts out of range are guarded where a constant does not show that they do not happen.
#pragma once

#include <string>

#include "graph/graph.h"

namespace tessera::inline linalg {

// Text that mlir-opt of MLIR 19 reads. UserError TSR-5140 that names all nodes which have no such form: control flow,
// procedures (sort, scatter, scans), floats of 8 bits and fewer; and for symbolic shapes.
std::string linalg_text(const Graph& graph);

}  // namespace tessera::inline linalg
