// What the handler of one StableHLO operator sees: operands, attributes, the types that the module declares for its
// results, its regions, and ways to add the nodes of our graph that stand for it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "import/common/emitter.h"
#include "import/common/region_scope.h"
#include "import/stablehlo/read/module_text.h"

namespace tessera::inline stablehlo {

using Ints = std::vector<int64_t>;

// Operators of a region are refused; they are in the list of failures already.
struct RegionRefused {};

// A region that becomes a graph of its own: of an `if` or a `loop`.
class HloRegionGraph {
 public:
  virtual ~HloRegionGraph() = default;
  virtual Emitter& emit() = 0;
  virtual ValueId input(const TensorType& type) = 0;  // before anything is captured
  // A value of the graph around it.
  virtual ValueId captured(ValueId outer) = 0;
  virtual std::vector<ValueId> run(const HloRegion& region, const std::vector<ValueId>& arguments) = 0;
  virtual void output(ValueId value) = 0;
  virtual CapturedRegion finish() = 0;
};

// A complex value is two real ones. There are no complex values in a graph: whoever walks over the module has numbers
// for them, which are no ids of values and go through frames and calls in their place.
struct ComplexParts {
  ValueId re, im;
};
constexpr ValueId kFailedValue = -1;  // of an operator that could not be imported
constexpr bool is_complex(ValueId v) { return v < kFailedValue; }

// Whoever walks over the module, for handlers of operators with regions and of calls.
class HloWalk {
 public:
  virtual ~HloWalk() = default;
  // Adds the operators of a region in place; what it returns. RegionRefused.
  virtual std::vector<ValueId> inlined(const HloRegion& region, const std::vector<ValueId>& arguments) = 0;
  virtual std::vector<ValueId> called(const std::string& function, const std::vector<ValueId>& arguments) = 0;
  virtual std::unique_ptr<HloRegionGraph> begin_region(const std::string& name, const Emitter& around) = 0;
  virtual ValueId complex_value(const ComplexParts& parts) = 0;
  virtual ComplexParts parts_of(ValueId complex) const = 0;
  // What a region of scalars gives for vectors of arguments; empty when it is more than arithmetic on them.
  virtual std::optional<std::vector<Tensor>> sampled(const HloRegion& region, const std::vector<Tensor>& arguments) = 0;
};

class HloContext : public Emitter {
 public:
  HloContext(EmitState& state, HloWalk& walk, const HloOperation& op, std::vector<ValueId> operands);

  const std::string& op_type() const override { return op_.name; }
  const std::string& label() const override { return label_; }

  // ---- operands ----
  size_t num_operands() const { return operands_.size(); }
  ValueId in(size_t i) const;  // malformed when there is none
  const std::vector<ValueId>& operands() const { return operands_; }

  // The parts of a complex operand.
  ComplexParts parts(size_t i) const;

  // Whether a value is the number of its place along `axis`.
  bool counts_along(ValueId v, int64_t axis) const;

  // ---- attributes; without `otherwise` they must be there ----
  const HloAttr* attribute(const std::string& name) const { return op_.attributes.find(name); }
  int64_t whole(const std::string& name, std::optional<int64_t> otherwise = {}) const;
  Ints integers(const std::string& name, std::optional<Ints> otherwise = {}) const;
  // One for each of `count` dimensions; `otherwise` for all when there is no list.
  Ints per_dimension(const std::string& name, size_t count, int64_t otherwise) const;
  // Pairs, as a matrix; zeros when there is none.
  std::vector<std::array<int64_t, 2>> pairs(const std::string& name, size_t count) const;
  bool truth(const std::string& name, bool otherwise) const;
  std::string word(const std::string& name, const std::string& otherwise = {}) const;
  // Lists of a dictionary that is an attribute; none when it has no such list.
  Ints numbers_of(const std::string& dictionary, const std::string& name) const;
  int64_t number_of(const std::string& dictionary, const std::string& name, int64_t otherwise) const;

  // ---- results ----
  size_t num_results() const { return op_.results.size(); }
  const HloType& result_type(size_t i = 0) const;  // malformed when there is none
  DType result_dtype(size_t i = 0) const;          // UnsupportedNode for elements that we do not have
  Ints result_dims(size_t i = 0) const;            // UnsupportedNode when one is open
  void out(ValueId value) { out(0, value); }
  void out(size_t i, ValueId value);
  void out(const ComplexParts& parts) { out(0, walk_.complex_value(parts)); }
  const std::vector<ValueId>& results() const { return results_; }
  // The results of this operator with other, real operands, and of real numbers where its own are complex.
  std::vector<ValueId> as_real(std::vector<ValueId> operands);

  // ---- regions ----
  const HloRegion& region(size_t i) const;
  size_t num_regions() const { return op_.regions.size(); }
  HloWalk& walk() { return walk_; }
  // The one operator that a region of two arguments applies to them: "add", "mul", "min", "max", "and", "or"; "first"
  // and "second" for one that returns an argument; empty for any other.
  static std::string combiner_of(const HloRegion& region);

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override;

 private:
  EmitState& state_;
  HloWalk& walk_;
  const HloOperation& op_;
  std::string label_;
  std::vector<ValueId> operands_, results_;
};

// The name that messages, `explain` and profiles call an operator by.
std::string label_of(const HloOperation& op);

}  // namespace tessera::inline stablehlo
