// An ONNX model that can be made smaller, step by step: the edits that `tessera reduce` tries on models that cannot be
// imported (those that can are cut as graphs, diagnose/graph_edit.h). Each gives a changed copy or nothing where it
// would change nothing or the model would no longer be whole. Whether the result still means anything is for whoever
// reads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "types/dtype.h"

namespace tessera::inline onnx_import {

// What is known of a value that becomes an input or an output.
struct EditType {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  bool operator==(const EditType&) const = default;
};

class EditableModel {
 public:
  using Types = std::map<std::string, EditType>;  // of values, as far as they are known

  // Of a model in binary form, which stands in `path` in some form: weights in other files come into the model.
  // UserError TSR-10xx when it is no ONNX model.
  static EditableModel read(std::string_view bytes, const std::string& path);
  // The same of a model in memory, which has no external data.
  static EditableModel of_bytes(std::string_view bytes);

  std::string bytes() const;  // UserError TSR-1061 above 2 GB, the limit of protobuf
  int num_nodes() const;
  int num_outputs() const;
  int64_t num_elements() const;       // of weights
  std::vector<int64_t> dims() const;  // different dimensions above 1 of inputs and weights, the largest first

  std::vector<std::string> input_names() const;  // without those that have a weight
  std::set<std::string> values_given() const;    // by nodes of the main graph

  // The model with these values as outputs, and nothing that they do not need. Inputs are declared as `types` say.
  EditableModel with_outputs(const std::vector<std::string>& names, const Types& types) const;
  // Only these nodes: values that the others gave become inputs, and values that nobody reads any more outputs.
  std::optional<EditableModel> with_nodes(const std::set<int>& nodes) const;
  // Only this output, with what it needs.
  std::optional<EditableModel> with_output(int output) const;
  // Whoever reads the node's first result reads its operand `operand` instead, which has the same type.
  std::optional<EditableModel> without_node(int node, int operand) const;
  // `to` in place of every dimension `from` of inputs and weights, and of every number `from` in lists of integers;
  // weights lose what lies behind.
  std::optional<EditableModel> with_dimension(int64_t from, int64_t to) const;
  // Without an attribute, or with a float weight of ones: one of `num_details()` edits. Empty where there is nothing to
  // make plainer.
  int num_details() const;
  std::optional<EditableModel> with_plain_detail(int detail) const;
  // With what is known of its values; outputs are declared so.
  EditableModel with_types(Types types) const;
  // Without texts for people, declared types inside, functions and weights that nobody uses.
  EditableModel tidied() const;

 private:
  struct Proto;  // hides protobuf
  explicit EditableModel(std::shared_ptr<const Proto> proto, Types types = {})
      : proto_(std::move(proto)), types_(std::move(types)) {}
  std::optional<EditableModel> without_attribute(int node, int attribute) const;
  std::optional<EditableModel> with_plain_weight(int weight) const;

  std::shared_ptr<const Proto> proto_;
  Types types_;
};

}  // namespace tessera::inline onnx_import
