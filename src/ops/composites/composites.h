// Composites: operators that are made of primitives. A composite node carries its name, its attributes and a region of
// primitives that says what it computes; any pass may open it, and everything that holds for primitives is derived
// from the region.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline ops {

class CompositeBody;

struct CompositeDef {
  std::string name;  // "softmax"
  std::string doc;   // one sentence
  int min_operands = 1;
  int max_operands = 1;
  std::vector<AttrDef> attrs;
  // Adds the primitives to the region and returns the results.
  std::function<std::vector<ValueId>(CompositeBody& body)> build;
  // `name(x: f32[2]) {attributes}`, then `run` lines as in ops/README.md; results are called y (or y0, y1, ...).
  std::string example;
  // As of an operator (graph/op_def.h), for what its primitives would get wrong at a kink, or lose digits or time in;
  // null: the composite is opened, and its primitives have the rules.
  std::function<std::vector<ValueId>(Adjoint& a)> gradient{};
};

// What `build` works with: the region, its operands (the region's inputs) and the composite's attributes.
class CompositeBody {
 public:
  CompositeBody(GraphBuilder& builder, const OpTable& ops, const OpContext& context, std::vector<ValueId> operands)
      : builder_(builder), ops_(ops), context_(context), operands_(std::move(operands)) {}

  size_t num_operands() const { return operands_.size(); }
  ValueId operand(size_t i) const { return operands_[i]; }
  const Attrs& attrs() const { return context_.attrs; }
  const OpContext& context() const { return context_; }  // for the checks of ops/op_util.h
  const TensorType& type(ValueId value) const { return builder_.graph().type(value); }
  DType dtype() const { return type(operands_[0]).dtype; }  // of the first operand

  ValueId add(std::string_view op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(ops_.get(op), std::move(inputs), std::move(attrs));
  }
  // A constant of rank 0.
  ValueId scalar(double value, DType dtype);
  ValueId scalar(double value) { return scalar(value, dtype()); }
  // `value op scalar`, the constant in the value's type.
  ValueId add_scalar(std::string_view op, ValueId value, double constant) {
    return add(op, {value, scalar(constant, type(value).dtype)});
  }
  // reduce over `axes` with keepdims.
  ValueId reduce(std::string_view kind, ValueId value, std::vector<int64_t> axes);
  // value / (the product of its extents along `axes` - fewer): a mean from a sum. `of` is what the sum was taken of.
  ValueId divide_by_count(ValueId value, ValueId of, const std::vector<int64_t>& axes, int64_t fewer = 0);
  // The mean over `axes`; of integers truncated. Of small floats it is computed in f32: their sum, and the count, may
  // leave a range that the mean does not.
  ValueId mean(ValueId x, const std::vector<int64_t>& axes, bool keepdims);
  // The value itself where it has the shape, or the type, already.
  ValueId reshape(ValueId value, Shape shape);
  ValueId cast(ValueId value, DType dtype);
  // The extent as an integer; TSR-2030 when it is symbolic.
  int64_t static_extent(const Expr& extent, const std::string& what) const;

 private:
  GraphBuilder& builder_;
  const OpTable& ops_;
  const OpContext& context_;
  std::vector<ValueId> operands_;
};

// The one list, by name.
std::span<const CompositeDef* const> all_composites();
const CompositeDef* find_composite(std::string_view name);  // null when unknown

// The definition that a composite node of this graph has its name and its region from; null for a composite of one's
// own, whatever its name.
const CompositeDef* definition_of(const Graph& graph, const Node& node, const OpTable& ops);

// Adds one `composite` node with the definition's region; returns its results. UserError (with the builder's loc)
// when operands or attributes do not fit, TSR-2033 for an unknown name.
std::vector<ValueId> add_composite(GraphBuilder& builder, const OpTable& ops, std::string_view name,
                                   std::vector<ValueId> operands, Attrs attrs = {});

// The families, each in the file of its name; only composites.cpp needs them.
const std::vector<CompositeDef>& activation_composites();
const std::vector<CompositeDef>& normalization_composites();
const std::vector<CompositeDef>& softmax_composites();
const std::vector<CompositeDef>& gemm_composites();
const std::vector<CompositeDef>& pooling_composites();
const std::vector<CompositeDef>& reduction_composites();
const std::vector<CompositeDef>& conv_transpose_composites();
const std::vector<CompositeDef>& attention_composites();
const std::vector<CompositeDef>& loss_composites();
const std::vector<CompositeDef>& optimizer_composites();
const std::vector<CompositeDef>& resizing_composites();
const std::vector<CompositeDef>& quantization_composites();

}  // namespace tessera::inline ops
