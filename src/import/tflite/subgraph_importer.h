// The walk over the operators of one graph of a model.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/evaluator.h"
#include "import/common/failure_list.h"
#include "import/tflite/operator_context.h"
#include "import/tflite/subgraphs.h"

namespace tessera::inline tflite_import {

class SubgraphImporter {
 public:
  // UserError unless each tensor has at most one operator that makes it, which stands before those that read it.
  SubgraphImporter(const TfliteModel& model, const tflite::SubGraph& proto, GraphLevel& level, Evaluator& evaluator,
                   Subgraphs& subgraphs, FailureList& failures);

  const std::vector<TfliteTensor>& tensors() const { return state_.tensors; }
  void bind(int32_t tensor, SubgraphValue value);
  bool is_bound(int32_t tensor) const { return state_.values[static_cast<size_t>(tensor)].has_value(); }
  // A variable, by the value that it has before a run; `new_states` has what it is then.
  void add_state(int32_t tensor, ValueId value);
  const std::map<int32_t, ValueId>& new_states() const { return new_states_; }

  void import_operators();
  // REQUIRES: no operator was refused.
  SubgraphValue result(int32_t tensor);
  std::string tensor_name(int32_t index) const;

 private:
  void check_definitions() const;
  bool has_data(const tflite::Tensor& tensor) const;
  [[noreturn]] void twice(int32_t index) const;
  [[noreturn]] void undefined(int32_t index, const std::string& reader) const;
  void find_needed();
  bool changes_resources(const tflite::Operator& node) const;
  ValueId lookup(int32_t index);
  void mark_failed(const tflite::Operator& node);
  void import(const tflite::Operator& node);
  void name_result(int32_t index, ValueId value);

  const TfliteModel& model_;
  const tflite::SubGraph& proto_;
  GraphLevel& level_;
  Subgraphs& subgraphs_;
  FailureList& failures_;
  TfliteImport state_;
  std::vector<bool> used_, needed_, failed_;
  std::map<int32_t, ValueId> new_states_;
  std::unordered_set<ValueId> named_;
};

}  // namespace tessera::inline tflite_import
