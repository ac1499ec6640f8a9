// An ONNX model taken apart, and models made of parts of it in the model's own words: what diff and reduce cut failing
// models down with. The nodes are those of the main graph; a subgraph or a function stays whole with the node that
// holds or calls it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "types/dtype.h"
#include "types/tensor.h"

namespace tessera::inline onnx_import {

struct LoadedModel;

// What is known of a value that becomes the input of a part.
struct PartType {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  bool operator==(const PartType&) const = default;
};

struct PartNode {
  std::string label;               // its name, or "<OpType>#<index>": as in Node::loc
  std::string op_type;             // operators of other domains with theirs: "com.microsoft.Gelu"
  std::vector<std::string> reads;  // without omitted ones, each once; those of subgraphs included
  std::vector<std::string> gives;
};

// Value semantics: copies share the weights' bytes with the file they came from.
class ModelParts {
 public:
  // UserError TSR-10xx when the file is missing or no sound ONNX model.
  static ModelParts read(const std::string& path);
  // The same of a model in memory, which has no external data.
  static ModelParts of_bytes(std::string_view bytes);

  // In an order in which each node reads only what earlier ones give.
  const std::vector<PartNode>& nodes() const { return nodes_; }
  const std::vector<std::string>& inputs() const { return inputs_; }  // without those that have a weight
  const std::vector<std::string>& outputs() const { return outputs_; }
  bool is_weight(const std::string& name) const { return weights_.count(name) != 0; }
  // The node that gives `name`, -1 for none.
  int producer(const std::string& name) const;
  // The nodes that read `name`.
  std::vector<int> readers(const std::string& name) const;

  // What a part is made of, in the order of its model: the inputs that it needs, and what it gives.
  struct Part {
    std::set<int> nodes;
    std::vector<std::string> inputs, outputs;
  };
  // The part with these nodes: its inputs are the values that they need from outside (no weights), its outputs those
  // of their values that are outputs of the model or read outside, or by nobody.
  Part part(const std::set<int>& nodes) const;
  // The serialised model of a part. Empty when `types` lacks an input of it. Opsets, functions and the weights that are
  // needed come along; types of outputs are left to whoever reads the model. UserError TSR-1061 above 2 GB.
  std::optional<std::string> write(const Part& part, const std::map<std::string, PartType>& types) const;

 private:
  explicit ModelParts(std::shared_ptr<LoadedModel> model);

  std::shared_ptr<LoadedModel> model_;
  std::vector<PartNode> nodes_;
  std::vector<int> index_;  // of each node in the file
  std::vector<std::string> inputs_, outputs_;
  std::map<std::string, int> weights_, producers_;  // by name: index in the file; index in nodes_
  std::map<std::string, std::vector<int>> readers_;
};

}  // namespace tessera::inline onnx_import
