// Graphs of a model that operators of another one run, and resources: variables by name, which all graphs share.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "arith/simplify.h"
#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline tflite_import {

// What enters or leaves a graph: a value, or the handle of a resource.
struct SubgraphValue {
  ValueId value = -1;
  int resource = -1;
};

// One of our graphs (the whole model's, or a region's) while nodes are added to it.
struct GraphLevel {
  const OpTable& ops;
  Graph& graph;
  GraphBuilder& builder;
  std::map<int, ValueId> resources = {};  // what they are by now
  KnownSymbols* symbols = nullptr;        // of the whole model's graph where data may decide sizes
};

// A graph has operators that were refused; they are in the list of failures already.
struct SubgraphRefused {};

class Subgraphs {
 public:
  virtual ~Subgraphs() = default;
  // Adds the nodes of a graph of the model to that of `level`; its results. SubgraphRefused, UserError.
  virtual std::vector<SubgraphValue> inlined(GraphLevel& level, int32_t index,
                                             const std::vector<SubgraphValue>& inputs) = 0;
  // Runs it for the values that resources have before the model's first run.
  virtual void run_once(int32_t index) = 0;
  // The resources that a graph, or one that it runs, names.
  virtual const std::set<int>& resources_of(int32_t index) = 0;
  virtual int resource_named(const std::string& name) = 0;
  virtual const std::string& resource_name(int resource) const = 0;
  // Of its value; null when no operator says it.
  virtual const TensorType* resource_type(int resource) const = 0;
};

}  // namespace tessera::inline tflite_import
