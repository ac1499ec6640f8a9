// The shapes that a model declares for its values: where a shape depends on what a tensor holds when the model runs,
// the declaration says what to compile for (runtime_parameter.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "import/onnx/read/node_list.h"

namespace tessera::inline onnx_import {

class DeclaredShapes {
 public:
  // Named dimensions: the values that the dimensions of input `name` have in this import.
  void bind_dims(const onnx::GraphProto& graph, const std::string& name, const std::vector<int64_t>& dims);
  // What `graph` declares for its outputs and inner values.
  void add_graph(const onnx::GraphProto& graph);
  // The nodes of the graph, or of a subgraph of it, that are imported as long as the scope is there.
  class Scope {
   public:
    Scope(DeclaredShapes& shapes, const std::vector<FlatNode>& nodes) : shapes_(shapes) {
      shapes_.scopes_.push_back(&nodes);
    }
    ~Scope() { shapes_.scopes_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeclaredShapes& shapes_;
  };

  // The shape of value `name`: its own, or that of a value that is computed from it element by element, alone or
  // together with values of its shape and single numbers (`one_element` knows those that are imported). Empty when
  // there is none, or one that is not fixed.
  std::optional<std::vector<int64_t>> find(const std::string& name,
                                           const std::function<bool(const std::string&)>& one_element) const;

 private:
  void add(const onnx::ValueInfoProto& value);

  std::unordered_map<std::string, std::vector<int64_t>> shapes_;
  std::unordered_map<std::string, int64_t> dims_;  // by name
  std::vector<const std::vector<FlatNode>*> scopes_;
};

}  // namespace tessera::inline onnx_import
