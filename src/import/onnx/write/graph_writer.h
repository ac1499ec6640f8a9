// Writes the nodes of a graph, and of its regions as ONNX subgraphs.
//
// If and Loop read what they need from the scope around them, so that a region's captured operands and invariants are
// the names of those values, and only what an iteration hands over is an input of a subgraph. Names are unique in the
// whole model.
#pragma once

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/control_flow.h"
#include "graph/graph.h"
#include "import/onnx/write/block_products.h"
#include "import/onnx/write/export_context.h"

namespace tessera::inline onnx_import {

inline size_t index(ValueId id) { return static_cast<size_t>(id); }

inline bool is_constant(const Graph& graph, ValueId value) {
  const Node* producer = graph.producer(value);
  return producer && producer->op->kind == OpKind::kConstant;
}

class GraphWriter {
 public:
  // With `data`, constants' bytes are left out of the model and listed there, in the order of their offsets in the file
  // `data_name`.
  GraphWriter(ExportContext& context, std::vector<TensorPtr>* data, std::string data_name)
      : context_(context), data_(data), data_name_(std::move(data_name)) {}

  // `names`, one for each value, has those that are named already.
  void write_nodes(const Graph& graph, std::vector<std::string>& names);
  void write_copy(const std::string& from, const std::string& to, const std::string& loc);
  void write_initializer(const TensorPtr& tensor, const std::string& name);
  bool uses_own_domain() const { return uses_own_domain_; }
  bool uses_contrib_domain() const { return uses_contrib_domain_; }

  // Each constant begins at a multiple of this, so that it can be used where it is mapped.
  static int64_t aligned(int64_t offset) { return (offset + 63) / 64 * 64; }

 private:
  using Names = std::vector<std::string>;

  void write_node(const Graph& graph, const Node& node, const Names& names, const BlockProducts& products);
  void write_operator(const Graph& graph, const Node& node, const Names& names);
  // A product with weights in groups as MatMulNBits (block_products.h).
  void write_block_product(const Graph& graph, const Node& node, const Names& names);
  void write_bind_size(const Node& node, const Names& names);
  void open(const Node& node, const Names& outer);
  // `is_product`: the name itself is left to a product that has it, so that layers keep theirs when pairs of quantisation
  // are made of them.
  std::string node_name(const std::string& loc, bool is_product = false);
  void keep_names_of_products(const Graph& graph);
  // A node in the current scope with one result, whose name is the answer.
  std::string helper(const std::string& op, const Names& inputs, const std::string& hint);
  onnx::NodeProto& last_node() { return *context_.scope().mutable_node(context_.scope().node_size() - 1); }

  // ---- control flow (control_flow_nodes.cpp) ----
  void write_if(const Graph& graph, const Node& node, const Names& names);
  void write_loop(const Graph& graph, const Node& node, const Names& names);
  void write_scan_node(const Graph& graph, const Node& node, const LoopParts& parts, const Names& names);
  void write_loop_node(const Graph& graph, const Node& node, const LoopParts& parts, const Names& names);
  void write_results_without_iterations(const Graph& graph, const Node& node, const LoopParts& parts,
                                        const Names& names);
  // The region's nodes in the current scope, given names for its inputs. The names of its results are those of values
  // that nodes of this scope make, each once.
  Names write_region(const Graph& region, const Names& inputs, const std::string& loc);
  std::string as_scalar(const Graph& graph, ValueId value, const Names& names);

  ExportContext& context_;
  std::vector<TensorPtr>* data_;
  std::string data_name_;
  int64_t offset_ = 0;
  bool uses_own_domain_ = false, uses_contrib_domain_ = false;
  std::unordered_set<std::string> node_names_, names_of_products_;
};

}  // namespace tessera::inline onnx_import
