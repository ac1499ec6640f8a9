// What the handler of one TFLite operator sees: the operator's operands with their quantisation, its options, and ways
// to add the nodes of our graph that stand for it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "import/common/emitter.h"
#include "import/tflite/read/model_file.h"
#include "import/tflite/subgraphs.h"

namespace tessera::inline tflite_import {

class OperatorContext;

struct ComplexValue {
  ValueId real = -1, imaginary = -1;
};

// What the operators of one graph of a model share.
struct TfliteImport : EmitState {
  const TfliteModel& model;
  const tflite::SubGraph& proto;
  Evaluator& evaluator;
  Subgraphs& subgraphs;
  GraphLevel& level;
  std::vector<TfliteTensor> tensors = {};             // by number
  std::vector<std::optional<ValueId>> values = {};    // of those that are known so far
  std::map<int32_t, int> resources = {};              // tensors that are handles
  std::map<int32_t, ComplexValue> complex = {};       // tensors of complex numbers
  std::function<ValueId(int32_t index)> lookup = {};  // makes constants when they are first read
  // A state of the model (a tensor that is a variable): its value after a run.
  std::function<void(int32_t index, ValueId value)> set_state = {};
};

class OperatorContext : public Emitter {
 public:
  OperatorContext(TfliteImport& state, const tflite::Operator& node);

  const std::string& op_type() const override { return name_; }
  const std::string& label() const override { return label_; }
  tflite::BuiltinOperator code() const { return code_; }
  int32_t version() const;

  // ---- operands ----
  int num_inputs() const;
  bool has(int i) const;
  ValueId in(int i);  // UserError TSR-1105 when it is left out
  const TfliteTensor& tensor(int i) const;
  std::optional<int> resource(int i) const;  // when it is the handle of one
  SubgraphValue entering(int i);             // as a graph's input
  ComplexValue complex(int i) const;
  void require_inputs(int min, int max);                            // max < 0: any number
  std::vector<int64_t> const_ints(int i, const std::string& what);  // UnsupportedNode when it is not constant
  int64_t const_int(int i, const std::string& what);
  std::optional<Tensor> const_tensor(int i) { return constant(in(i)); }

  // ---- options; those that a file leaves out have the values that the schema gives them ----
  template <typename Options>
  const Options& options() const {
    const auto* options = node_.builtin_options_as<Options>();
    return options ? *options : none<Options>();
  }
  template <typename Options>
  const Options& options2() const {
    const auto* options = node_.builtin_options2_as<Options>();
    return options ? *options : none<Options>();
  }
  const tflite::Operator& node() const { return node_; }

  // ---- results ----
  int num_outputs() const { return node_.outputs() ? static_cast<int>(node_.outputs()->size()) : 0; }
  const TfliteTensor& output(int i) const;
  // UserError TSR-1105 when it is of another type than the model declares.
  void out(int i, ValueId value);
  void out_resource(int i, int resource);
  void out_complex(int i, ComplexValue value);
  const std::vector<std::pair<int32_t, ValueId>>& results() const { return results_; }
  void set_state(int i, ValueId value) { state_.set_state(index(i), value); }

  // ---- quantisation ----
  bool is_quantized(const TfliteTensor& tensor) const;  // integers that stand for real numbers
  float scale(const TfliteTensor& tensor) const;        // UserError TSR-1105 unless there is exactly one, above 0
  int64_t zero_point(const TfliteTensor& tensor) const;

  TfliteImport& state() { return state_; }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override;

 private:
  template <typename Options>
  static const Options& none();
  int32_t index(int i) const { return node_.inputs()->Get(static_cast<uint32_t>(i)); }

  TfliteImport& state_;
  const tflite::Operator& node_;
  tflite::BuiltinOperator code_;
  std::string name_, label_;
  std::vector<std::pair<int32_t, ValueId>> results_;
};

// A table without any field: all of them have their defaults. Four bytes are the distance to its table of fields, whose
// two numbers are its own size and the table's.
template <typename Options>
const Options& OperatorContext::none() {
  alignas(4) static constexpr unsigned char kBytes[] = {4, 0, 4, 0, 4, 0, 0, 0};
  return *reinterpret_cast<const Options*>(kBytes + 4);
}

}  // namespace tessera::inline tflite_import
