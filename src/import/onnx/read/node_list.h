// The nodes of a model as one flat list in an order in which every value is defined before it is used: calls of
// model-local functions are replaced by their nodes.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "import/onnx/read/model_file.h"

namespace tessera::inline onnx_import {

struct FlatNode {
  const onnx::NodeProto* proto;  // owned by the LoadedModel
  std::string label;             // its name, or "<OpType>#<index>"; nodes of a function are "<call>/<node>"
  const OpsetVersions* opsets;
};

// The version of the opset that the node's operator comes from; 0 when the model does not import its domain.
int64_t opset_version(const FlatNode& node);

// `is_known` says whether the operator is imported directly, so that a function of the same name is not opened.
// `defined` are the names of graph inputs and initializers. UserError: TSR-1010 a name that nothing defines, TSR-1011 a
// name defined twice, TSR-1012 a cycle, TSR-1050 a recursive function, TSR-1051 too many nodes, TSR-1052 a bad call.
std::vector<FlatNode> flatten_nodes(LoadedModel& model, const std::set<std::string>& defined,
                                    const std::function<bool(const FlatNode&)>& is_known);

// The nodes of a subgraph of `node`, in the same kind of order; `defined` are the names that are known around it and
// those of its own initializers. flatten_nodes has opened calls of model-local functions in it. UserError: TSR-1010,
// TSR-1011, TSR-1012.
std::vector<FlatNode> flatten_subgraph(const onnx::GraphProto& graph, const FlatNode& node,
                                       const std::set<std::string>& defined);

// Every name that a node reads, those that its subgraphs take from outside included.
std::vector<std::string> read_names(const onnx::NodeProto& node);

}  // namespace tessera::inline onnx_import
