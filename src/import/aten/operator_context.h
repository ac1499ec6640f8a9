// What the handler of one ATen operator sees: the node's arguments by the names of the operator's schema, and ways to
// add the nodes of our graph that stand for it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "import/aten/read/program.h"
#include "import/common/emitter.h"

namespace tessera::inline aten {

// What the nodes of a program share.
struct AtenImport : EmitState {
  const AtenProgram& program;
  std::map<std::string, ValueId> tensors = {};                                 // by name; those that are known so far
  std::map<std::string, Expr> sizes = {};                                      // symbolic integers, by name
  std::map<std::string, Expr> symbols = {};                                    // of types
  std::set<std::string> read = {};                                             // names that a node or an output reads
  std::function<std::optional<ValueId>(const std::string& name)> lookup = {};  // makes weights when they are first read
};

// An operand's type, and how much it counts where types are promoted: PyTorch's numbers and tensors without dimensions
// only count where their kind (bool, integer, float) is a wider one.
struct Operand {
  DType dtype = DType::kF32;
  enum class Weight : uint8_t { kNumber, kScalar, kTensor } weight = Weight::kTensor;
};

class AtenContext : public Emitter {
 public:
  AtenContext(AtenImport& state, const AtenNode& node);

  const std::string& op_type() const override { return node_.target; }
  const std::string& label() const override { return node_.name; }
  const std::string& overload() const { return overload_; }  // "Tensor"; "default"

  // ---- arguments; `name` is the schema's. What is left out has the value `otherwise`; without one it must be there
  // ----
  bool has(const std::string& name) const;  // given, and not None
  ValueId tensor(const std::string& name);
  std::optional<ValueId> maybe_tensor(const std::string& name);
  std::vector<std::optional<ValueId>> tensors(const std::string& name);  // a list, of which some may be left out
  std::vector<ValueId> all_tensors(const std::string& name);             // UnsupportedNode when one is left out
  int64_t whole(const std::string& name, std::optional<int64_t> otherwise = {});
  std::vector<int64_t> integers(const std::string& name, std::optional<std::vector<int64_t>> otherwise = {});
  // One for each of `count` dimensions, of a single number or none as well; no list stands for `otherwise`.
  std::vector<int64_t> per_dimension(const std::string& name, size_t count, int64_t otherwise);
  Expr size(const std::string& name);
  Shape sizes(const std::string& name);
  double number(const std::string& name, std::optional<double> otherwise = {});
  bool truth(const std::string& name, std::optional<bool> otherwise = {});
  std::string text(const std::string& name, const std::string& otherwise = {});
  // A tensor, a number or a size.
  Operand operand(const std::string& name);
  ValueId as(const std::string& name, DType dtype);
  const AtenArgument* argument(const std::string& name) const;
  const AtenArgument& argument(size_t position) const;
  size_t num_arguments() const { return node_.arguments.size(); }
  Expr size_of(const ArgumentItem& item);  // a number, or a symbol's value

  // ---- types ----
  // What PyTorch computes in for such operands.
  static DType promoted(const std::vector<Operand>& operands);
  // The dtype that the program declares for result i; of the default, when it declares none.
  DType result_dtype(DType otherwise, size_t i = 0) const;
  // The shape that the program declares for result i; empty when it cannot be read.
  std::optional<Shape> result_shape(size_t i = 0) const;
  size_t num_results() const { return results_.size(); }
  bool wants(size_t i) const;  // whether something reads result i
  int64_t dimension(const std::string& name, int rank, std::optional<int64_t> otherwise = {});
  // Dimensions that a list names; all when it is empty or left out.
  std::vector<int64_t> dimensions(const std::string& name, int rank);

  // ---- results ----
  void out(size_t i, ValueId value) { outputs_[i] = value; }
  void out(ValueId value) { outputs_[0] = value; }
  void out_size(Expr value) { size_ = std::move(value); }
  const std::map<size_t, ValueId>& outputs() const { return outputs_; }
  const std::optional<Expr>& size_result() const { return size_; }
  const std::vector<std::string>& results() const { return results_; }  // names; empty for those that are not used

  AtenImport& state() { return state_; }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override;

 private:
  const AtenArgument& required(const std::string& name) const;
  [[noreturn]] void wrong_kind(const std::string& name, const std::string& legal) const;
  ValueId look_up(const std::string& name);

  AtenImport& state_;
  const AtenNode& node_;
  std::string overload_;
  std::vector<std::string> results_;
  std::map<size_t, ValueId> outputs_;
  std::optional<Expr> size_;
};

// The parts of a target: "aten", "add", "Tensor".
struct OperatorName {
  std::string library, name, overload;
};
OperatorName operator_name(const std::string& target);

}  // namespace tessera::inline aten
