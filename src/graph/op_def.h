// What an operator is: one OpDef, written in one file of src/ops. Everything else is derived from it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "loop/stmt.h"
#include "te/body.h"
#include "types/tensor.h"

namespace tessera::inline graph {

// What an operator's functions see of one node.
struct OpContext {
  const OpDef& op;
  const std::vector<TensorType>& inputs;
  const Attrs& attrs;
  const std::vector<GraphPtr>& regions;
  const std::string& loc;

  // Throws a UserError with the operator's name and this node's location.
  [[noreturn]] void fail(const std::string& id, const std::string& found, const std::string& legal,
                         const std::string& hint = "") const;
};

enum class OpKind : uint8_t {
  kExpression,  // has a body
  kProcedure,   // an algorithm over whole tensors (sort, scan, scatter): has loops, and an evaluator of its own
  kView,        // a reinterpretation of the row-major bytes (reshape): no data moves
  kConstant,    // attribute `value`
  kComposite,   // attribute `name`, one region of primitives
  kGroup,       // made by the fusion pass: one region that becomes one kernel
  kIf,          // one of two regions (graph/control_flow.h, also for the two below)
  kLoop,        // a region, again and again
  kCall,        // attribute `name`, one region that other calls of that name share
  kBindSize,    // gives a data symbol its value (graph/data_sizes.h)
};

enum class AttrKind : uint8_t {
  kBool,
  kInt,
  kFloat,
  kString,
  kInts,
  kFloats,
  kDType,
  kLayout,
  kTensor,
  kSizes,  // integers or expressions of the graph's symbols; see Attr
};

struct AttrDef {
  std::string name;
  AttrKind kind;
  bool required = true;
  std::string doc;
};

class Adjoint;

struct OpDef {
  std::string name;  // "conv"
  std::string doc;   // one sentence
  OpKind kind = OpKind::kExpression;
  int min_inputs = 1;
  int max_inputs = 1;  // -1: any number
  std::vector<AttrDef> attrs;
  // Types of the results; calls ctx.fail on operands that do not fit. Never looks at layouts (they are dropped).
  std::function<std::vector<TensorType>(const OpContext& ctx)> infer;
  // REQUIRES: kind == kExpression and types that `infer` accepted. Logical indices.
  std::function<Body(const OpContext& ctx)> body{};
  // REQUIRES: kind == kProcedure and types that `infer` accepted; one result. What it means, written plainly: the
  // reference of `loops`, which shares no code with them.
  std::function<Tensor(const OpContext& ctx, const std::vector<const Tensor*>& inputs)> evaluate{};
  // The same as loops: a parameter for each operand in order, row-major (any shape with as many elements), then the
  // result. UserError TSR-2030 where a size that the loops need as a number is symbolic.
  std::function<LoopProgram(const OpContext& ctx)> loops{};
  // The gradients of the operands, one for each, from those of the results (graph/adjoint.h). Null: the operator has no
  // results that are real numbers, or no rule yet.
  std::function<std::vector<ValueId>(Adjoint& a)> gradient{};
  // A graph in text form with one node of this operator, and its `run` lines: executed as a test. See ops/README.md.
  std::string example;
};

// The operators that a parser, builder or importer may use, by name.
class OpTable {
 public:
  explicit OpTable(std::vector<const OpDef*> ops);
  const OpDef* find(std::string_view name) const;  // null when unknown
  const OpDef& get(std::string_view name) const;   // InternalError when unknown
  std::span<const OpDef* const> all() const { return ops_; }

 private:
  std::vector<const OpDef*> ops_;  // sorted by name
};

// Attribute presence and kinds, operand count, then `infer`. UserError TSR-2xxx with `loc` when they do not fit.
std::vector<TensorType> infer_types(const OpDef& op, const std::vector<TensorType>& inputs, const Attrs& attrs,
                                    const std::vector<GraphPtr>& regions, const std::string& loc);
// The body of a node of `graph`. REQUIRES: an operator of kind kExpression.
Body node_body(const Graph& graph, const Node& node);
// Loops and value of a node of kind kProcedure.
LoopProgram node_loops(const Graph& graph, const Node& node);
Tensor evaluate_procedure(const Graph& graph, const Node& node, const std::vector<const Tensor*>& inputs);

}  // namespace tessera::inline graph
