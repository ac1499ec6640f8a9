// Adds the nodes of one node of a model to a graph: operators, constants, casts and moves, with the reader's own
// messages where they do not fit. Knows nothing of the format that is read; a reader's class for the node it is at
// derives from Emitter.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "import/common/constants.h"
#include "support/error.h"

namespace tessera::inline import_common {

// What of a node is refused.
enum class Refusal : uint8_t {
  kOperator,        // the operator, as it stands there
  kOpenDimensions,  // dimensions that only a run knows, for which no choice of sizes could be imported
  kOpenLength,      // a number of steps that only a run knows: as a loop, it could not be imported
  kOpenElements,    // a shape that only a run knows: for blocks of its elements, it could not be imported
};

// The node is legal but cannot be imported; reported together with all others of the model.
struct UnsupportedNode {
  std::string reason;  // as it is reported
  Refusal refusal = Refusal::kOperator;
  std::string cause = {};  // unless kOperator: the reason for which the form that was tried is refused
};

// A refusal of a form that was tried because of something that only a run knows.
UnsupportedNode refused_form(Refusal refusal, const std::string& reason, const std::string& cause);

// A list of extents, places or amounts: numbers, expressions of the graph's symbols, or both.
class SizeList {
 public:
  SizeList() = default;
  SizeList(std::initializer_list<Expr> sizes) : sizes_(sizes) {}
  SizeList(Shape sizes) : sizes_(std::move(sizes)) {}                                  // NOLINT: a Shape is one
  SizeList(const std::vector<int64_t>& sizes) : sizes_(sizes.begin(), sizes.end()) {}  // NOLINT: so are numbers
  template <typename It>
  SizeList(It begin, It end) : sizes_(begin, end) {}

  const Shape& sizes() const { return sizes_; }

 private:
  Shape sizes_;
};

// What the emitters of one block of nodes share.
struct EmitState {
  const OpTable& ops;
  Graph& graph;
  GraphBuilder& builder;
  ConstantFinder constants;
  std::map<std::pair<DType, uint64_t>, ValueId> scalars = {};  // by the bits of the double, of an i64 by its own
};

class Emitter {
 public:
  explicit Emitter(EmitState& state) : emit_(state) {}
  virtual ~Emitter() = default;
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  virtual const std::string& op_type() const = 0;  // the operator's name in the model
  virtual const std::string& label() const = 0;    // the node's name in the model

  // ---- types ----
  const TensorType& type(ValueId v) const { return emit_.graph.type(v); }
  DType dtype(ValueId v) const { return type(v).dtype; }
  int rank(ValueId v) const { return type(v).rank(); }
  Shape shape(ValueId v) const { return type(v).shape; }
  // The extents as numbers, for whatever cannot be said of expressions. UnsupportedNode when one is symbolic.
  std::vector<int64_t> dims(ValueId v) const;
  int64_t num_elements(ValueId v) const;
  bool is_static(ValueId v) const { return type(v).is_static(); }
  bool has_one_element(ValueId v) const;  // in every run
  // The number of elements, as an expression.
  Expr count(ValueId v) const { return count(shape(v)); }
  static Expr count(const Shape& shape);
  // `axis` counted from the front; malformed when it is not in -rank .. rank-1.
  int axis(int64_t axis, int rank, const std::string& name = "axis");
  std::vector<int64_t> axes(std::vector<int64_t> axes, int rank);  // also refuses repeated ones; keeps the order

  // ---- values that are known while the model is read ----
  std::optional<Tensor> constant(ValueId v) { return emit_.constants.find(v); }
  // The elements of a list or scalar of integers as expressions of the graph's symbols; empty when they depend on more
  // than sizes.
  std::optional<Shape> known_sizes(ValueId v);
  // A vector of such elements as a value: a constant where all are numbers.
  ValueId size_values(const Shape& sizes);

  // ---- errors ----
  // The model breaks the rules of its format here. What does not fit for symbols may fit for numbers: of a graph with
  // symbols it is a SymbolicShapeError.
  [[noreturn]] void malformed(const std::string& found, const std::string& legal, const std::string& hint = "") const;
  [[noreturn]] void unsupported(const std::string& reason) const { throw UnsupportedNode{reason}; }
  // UserError TSR-1023 unless `v` has at most 2^40 elements, its empty dimensions not counted, and 64 dimensions.
  // Symbolic extents count with their smallest value.
  void check_size(ValueId v) const;

  // ---- building ----
  // Each value that is made passes check_size: products of extents of one value do not overflow.
  const OpDef* find_op(const std::string& name) const { return emit_.ops.find(name); }
  ValueId op(std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});
  ValueId composite(std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return composite_results(name, std::move(inputs), std::move(attrs))[0];
  }
  std::vector<ValueId> composite_results(std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});
  // A node with regions; all its results.
  std::vector<ValueId> with_regions(std::string_view name, std::vector<ValueId> inputs, Attrs attrs,
                                    std::vector<GraphPtr> regions);
  ValueId constant_value(Tensor tensor);
  ValueId scalar(DType dtype, double value);  // one node per value and graph
  ValueId integer(int64_t value);             // of dtype i64, exactly; one node as well
  ValueId scalar_like(ValueId v, double value) { return scalar(dtype(v), value); }
  ValueId integer(const Expr& value);  // a size as an i64 scalar
  ValueId integer(int value) { return integer(static_cast<int64_t>(value)); }
  ValueId ints(std::vector<int64_t> values) { return constant_value(Tensor::from_ints(std::move(values))); }
  ValueId reshape(ValueId v, const SizeList& dims);  // a constant is given the other shape
  ValueId cast(ValueId v, DType dtype);
  ValueId transpose(ValueId v, std::vector<int64_t> perm);
  ValueId broadcast(ValueId v, const SizeList& dims);
  ValueId slice(ValueId v, const SizeList& starts, const SizeList& sizes, std::vector<int64_t> steps);
  ValueId reduce(const std::string& kind, ValueId v, std::vector<int64_t> axes, bool keepdims);
  ValueId iota(const SizeList& dims, int64_t axis, DType dtype = DType::kI64);
  ValueId zeros(DType dtype, const SizeList& dims);  // a constant unless that is large or symbolic
  ValueId add(ValueId a, ValueId b) { return op("add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("div", {a, b}); }
  // A vector of `channels` as an operand that is broadcast over axis 1 of a rank-`rank` tensor: [1,C,1,...].
  ValueId per_channel(ValueId vector, int rank);
  // Products of batches of matrices. Vectors count as matrices with one row (left) or one column (right), which the
  // result does not have.
  ValueId matrix_product(ValueId a, ValueId b);

 protected:
  // With the reader's own id.
  virtual Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                          const std::string& hint) const = 0;

 private:
  void check_shape(const Shape& shape) const;
  [[noreturn]] void needs_fixed_sizes(ValueId v) const;
  void find_equal_sizes(std::string_view name, const std::vector<ValueId>& inputs, const Attrs& attrs) const;

  EmitState& emit_;
};

}  // namespace tessera::inline import_common
