// Our operators as ONNX nodes of the domain "ai.tessera": the op_type is the name of the primitive or composite, the
// attributes carry what the node's attributes carry. Numbers that ONNX would round to single precision are tensors of
// doubles. Written and read by this room only; version 1.
#pragma once

#include <string>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

class NodeContext;

inline constexpr const char* kOwnDomain = "ai.tessera";

// Writes op_type, domain and attributes. REQUIRES: not a constant or group.
void write_own_node(const Node& node, onnx::NodeProto& proto);
// UnsupportedNode for an operator that we do not have; UserError for attributes that do not fit.
void import_own_node(NodeContext& c);

}  // namespace tessera::inline onnx_import
