// Our operators as ONNX nodes of the domain "ai.tessera": the op_type is the name of the primitive or composite, the
// attributes carry what the node's attributes carry. Numbers that ONNX would round to single precision are tensors of
// doubles. Lists of sizes in which symbols stand are operands behind the node's own, in the order in which the
// attribute `size_operands` names them ("low,high"). Written and read by this room only; version 1.
#pragma once

namespace tessera::inline onnx_import {

class NodeContext;
struct NodeExport;

inline constexpr const char* kOwnDomain = "ai.tessera";

// Writes op_type, domain, attributes and inputs. REQUIRES: not a constant or group, nor a node with control flow.
void write_own_node(NodeExport& e);
// UnsupportedNode for an operator that we do not have; UserError for attributes that do not fit.
void import_own_node(NodeContext& c);

}  // namespace tessera::inline onnx_import
