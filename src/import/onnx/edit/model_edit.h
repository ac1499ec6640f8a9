// An ONNX model that can be made smaller, step by step: the edits that `tessera reduce` tries. Each gives a changed
// copy or nothing where it would change nothing or the model would no longer be whole. Whether the result still means
// anything is for whoever reads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "import/onnx/edit/model_parts.h"

namespace tessera::inline onnx_import {

class EditableModel {
 public:
  using Types = std::map<std::string, PartType>;  // of values, as far as they are known

  // Weights in other files come into the model. UserError TSR-10xx when the file is missing or no ONNX model.
  static EditableModel read(const std::string& path);

  std::string bytes() const;
  int num_nodes() const;
  int num_outputs() const;
  int num_weights() const;
  int num_attributes(int node) const;
  int64_t num_elements() const;       // of weights
  std::vector<int64_t> dims() const;  // different dimensions above 1 of inputs and weights, the largest first

  // Only these nodes: values that the others gave become inputs, and values that nobody reads any more outputs.
  std::optional<EditableModel> with_nodes(const std::set<int>& nodes, const Types& types) const;
  // Only this output, with what it needs.
  std::optional<EditableModel> with_output(int output) const;
  // Whoever reads the node's first result reads its operand `operand` instead, which has the same type.
  std::optional<EditableModel> without_node(int node, int operand, const Types& types) const;
  std::optional<EditableModel> without_attribute(int node, int attribute) const;
  // `to` in place of every dimension `from` of inputs and weights, and of every number `from` in lists of integers;
  // weights lose what lies behind.
  std::optional<EditableModel> with_dimension(int64_t from, int64_t to) const;
  // A float weight of ones.
  std::optional<EditableModel> with_plain_weight(int weight) const;
  // Every output declared as `types` know it.
  EditableModel declared(const Types& types) const;
  // Without texts for people, declared types inside, functions and weights that nobody uses.
  EditableModel tidied() const;

 private:
  struct Proto;  // hides protobuf
  explicit EditableModel(std::shared_ptr<const Proto> proto) : proto_(std::move(proto)) {}
  std::shared_ptr<const Proto> proto_;
};

}  // namespace tessera::inline onnx_import
