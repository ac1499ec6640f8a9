// Graph -> ONNX model. What ONNX can say exactly is written with its standard operators; a node without a standard
// form that reads back as the same node is written as an operator of the domain "ai.tessera", which only we read.
// Reading the model back gives a graph with the same structural hash (graph/hash.h), with these exceptions, which
// compute the same by other nodes:
// - groups (which only fusion makes), calls, and composites that nothing defines are opened;
// - a graph output that is an input or another output too becomes a copy with a name of its own;
// - `if` becomes If, a scan Scan, and any other `loop` a Loop, whose body gathers slices and writes rows itself where
//   it may end early;
// - products with weights in groups that have scales of their own (dequantize_blocks of u4 and u8) become
//   com.microsoft's MatMulNBits, which is read with a reshape or two;
// - symbols are names of dimensions, without their ranges, and sizes are computed from the shapes of the inputs;
// - a state NAME is an input NAME with its initial value as the initializer, and an output NAME.next; that they are one
//   state stands in the metadata (read/model_states.h).
// ONNX has no checks: what they watch is left out.
#pragma once

#include <string>

#include "graph/graph.h"
#include "support/error.h"

namespace tessera::inline onnx_import {

// The graph has no ONNX form: error TSR-1060.
class NoOnnxForm : public UserError {
 public:
  using UserError::UserError;
};

// NoOnnxForm for a graph that has no ONNX form (layouts, sizes that do not follow from the shapes of the inputs
// by integer arithmetic or that a run finds among its data, a state of symbolic size that begins with zeros), TSR-1061
// when the model would exceed protobuf's 2 GB. Weights are not copied more than the serialisation needs.
std::string export_onnx_bytes(const Graph& graph);

// The same into a file. Constants of together more than `external_bytes` go into PATH.data beside it, as external
// data. UserError TSR-6004 when a file cannot be written.
void export_onnx_file(const Graph& graph, const std::string& path, int64_t external_bytes = int64_t{1} << 30);

}  // namespace tessera::inline onnx_import
