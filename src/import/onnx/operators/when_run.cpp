#include "import/onnx/operators/when_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "import/onnx/model_file.h"
#include "import/onnx/operators/handlers.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

FlowType tensor_type(NodeContext& c, int i) {
  FlowType type = c.flow_type(c.binding(i));
  if (!type.is_tensor()) c.malformed(fmt::format("input {} is {}", i, type.to_string()), "a tensor");
  return type.of_any_shape();
}

// Operand `i`, a list of integers, or the attribute that came before it; -1 when there is neither.
SlotId list(NodeContext& c, int i, const std::string& name, int64_t since) {
  if (c.version() >= since) {
    if (c.has(i))
      if (const DType dtype = tensor_type(c, i).dtype; dtype != DType::kI64 && dtype != DType::kI32)
        c.malformed(fmt::format("{} is {}", c.input_name(i, name), dtype_name(dtype)), "integers");
    return c.slot(i);
  }
  if (!c.attrs.has(name)) return -1;
  return c.slot(Binding(c.ints(c.attrs.get_ints(name))));
}

// Every operand that is no single constant is broadcast to one shape, and the operator's kernel runs over it in pieces
// of a fixed size.
void elementwise(NodeContext& c) {
  std::vector<SlotId> inputs;
  std::vector<FlowType> results;
  const int32_t piece = c.state().elementwise(c.node(), inputs, results);
  for (const std::string& name : c.attrs.unread()) c.attrs.ignore(name);  // the piece's import has read them
  if (inputs.empty()) c.unsupported("no operand with a shape");
  FlowStep step{FlowOp::kElementwise, std::move(inputs), {}, {}, piece, {}, c.step_loc()};
  int output = 0;
  for (const FlowType& type : results) {
    while (!c.wants(output)) ++output;
    step.outputs.push_back(c.new_slot(type));
    step.ints.push_back(type.dtype == DType::kString);
    c.out(output++, c.from_slot(step.outputs.back(), type, false));
  }
  c.add_step(std::move(step));
}

void shape(NodeContext& c) {
  c.require_inputs(1, 1);
  tensor_type(c, 0);
  c.out(0, c.step(FlowOp::kShape, {c.slot(0)}, {{}, DType::kI64, DType::kI64, Ints{-1}}, false,
                  {c.attrs.get_int("start", 0), c.attrs.get_int("end", INT64_MAX)}));
}

void size(NodeContext& c) {
  c.require_inputs(1, 1);
  tensor_type(c, 0);
  c.out(0, c.step(FlowOp::kSize, {c.slot(0)}, {{}, DType::kI64, DType::kI64, Ints{}}, true));
}

void slice(NodeContext& c) {
  const FlowType type = tensor_type(c, 0);
  SlotId starts = -1, ends = -1, axes = -1, steps = -1;
  if (c.version() < 10) {
    starts = c.slot(Binding(c.ints(c.attrs.require_ints("starts"))));
    ends = c.slot(Binding(c.ints(c.attrs.require_ints("ends"))));
    if (c.attrs.has("axes")) axes = c.slot(Binding(c.ints(c.attrs.get_ints("axes"))));
  } else {
    c.require_inputs(3, 5);
    starts = list(c, 1, "starts", 10), ends = list(c, 2, "ends", 10), axes = list(c, 3, "axes", 10),
    steps = list(c, 4, "steps", 10);
  }
  c.out(0, c.step(FlowOp::kSlice, {c.slot(0), starts, ends, axes, steps}, type, false));
}

void reshape(NodeContext& c) {
  const FlowType type = tensor_type(c, 0);
  const SlotId shape = list(c, 1, "shape", 5);
  if (shape < 0) c.malformed("no shape", "a shape");
  c.out(0, c.step(FlowOp::kReshape, {c.slot(0), shape}, type, false, {c.attrs.get_int("allowzero", 0)}));
}

void squeeze(NodeContext& c) {
  const FlowType type = tensor_type(c, 0);
  c.out(0, c.step(FlowOp::kSqueeze, {c.slot(0), list(c, 1, "axes", 13)}, type, false));
}

void unsqueeze(NodeContext& c) {
  const FlowType type = tensor_type(c, 0);
  const SlotId axes = list(c, 1, "axes", 13);
  if (axes < 0) c.malformed("no axes", "a list of axes");
  c.out(0, c.step(FlowOp::kUnsqueeze, {c.slot(0), axes}, type, false));
}

void transpose(NodeContext& c) {
  const FlowType type = tensor_type(c, 0);
  c.out(0, c.step(FlowOp::kTranspose, {c.slot(0)}, type, false, c.attrs.get_ints("perm")));
}

void gather(NodeContext& c) {
  c.require_inputs(2, 2);
  const FlowType type = tensor_type(c, 0), indices = tensor_type(c, 1);
  if (indices.dtype != DType::kI32 && indices.dtype != DType::kI64)
    c.malformed(fmt::format("indices {}", indices.to_string()), "i32 or i64");
  c.out(0, c.step(FlowOp::kGather, {c.slot(0), c.slot(1)}, type, false, {c.attrs.get_int("axis", 0)}));
}

void expand(NodeContext& c) {
  c.require_inputs(2, 2);
  const FlowType type = tensor_type(c, 0);
  c.out(0, c.step(FlowOp::kExpand, {c.slot(0), list(c, 1, "shape", 8)}, type, false));
}

void concat(NodeContext& c) {
  c.require_inputs(1, -1);
  const FlowType type = tensor_type(c, 0);
  std::vector<SlotId> parts;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (const FlowType other = tensor_type(c, i); other.dtype != type.dtype)
      c.malformed(fmt::format("operands {} and {}", type.to_string(), other.to_string()), "one type");
    parts.push_back(c.slot(i));
  }
  const int64_t axis = c.version() < 4 ? c.attrs.get_int("axis", 1) : c.attrs.require_int("axis");
  c.out(0, c.step(FlowOp::kConcat, std::move(parts), type, false, {axis}));
}

void flatten(NodeContext& c) {
  c.require_inputs(1, 1);
  const FlowType type = tensor_type(c, 0);
  c.out(0, c.step(FlowOp::kFlatten, {c.slot(0)}, type, false, {c.attrs.get_int("axis", 1)}));
}

void cast(NodeContext& c) {
  const FlowType from = tensor_type(c, 0);
  constexpr int kText = onnx::TensorProto::STRING;
  if (from.dtype != DType::kString && c.attrs.get_int("to", 0) != kText) return elementwise(c);
  c.unsupported("a cast of strings whose shape is known only when the model runs");
}

struct Row {
  std::string_view op;
  WhenRun handler;
};

// Sorted by name.
constexpr std::array kRows = {
    Row{"Abs", elementwise},
    Row{"Acos", elementwise},
    Row{"Acosh", elementwise},
    Row{"Add", elementwise},
    Row{"And", elementwise},
    Row{"Asin", elementwise},
    Row{"Asinh", elementwise},
    Row{"Atan", elementwise},
    Row{"Atanh", elementwise},
    Row{"BitShift", elementwise},
    Row{"BitwiseAnd", elementwise},
    Row{"BitwiseNot", elementwise},
    Row{"BitwiseOr", elementwise},
    Row{"BitwiseXor", elementwise},
    Row{"Cast", cast},
    Row{"Ceil", elementwise},
    Row{"Celu", elementwise},
    Row{"Clip", elementwise},
    Row{"Concat", concat},
    Row{"Cos", elementwise},
    Row{"Cosh", elementwise},
    Row{"Div", elementwise},
    Row{"Elu", elementwise},
    Row{"Equal", elementwise},
    Row{"Erf", elementwise},
    Row{"Exp", elementwise},
    Row{"Expand", expand},
    Row{"Flatten", flatten},
    Row{"Floor", elementwise},
    Row{"Gather", gather},
    Row{"Gelu", elementwise},
    Row{"Greater", elementwise},
    Row{"GreaterOrEqual", elementwise},
    Row{"HardSigmoid", elementwise},
    Row{"HardSwish", elementwise},
    Row{"IsInf", elementwise},
    Row{"IsNaN", elementwise},
    Row{"LeakyRelu", elementwise},
    Row{"Less", elementwise},
    Row{"LessOrEqual", elementwise},
    Row{"Log", elementwise},
    Row{"Max", elementwise},
    Row{"Mean", elementwise},
    Row{"Min", elementwise},
    Row{"Mish", elementwise},
    Row{"Mod", elementwise},
    Row{"Mul", elementwise},
    Row{"Neg", elementwise},
    Row{"Not", elementwise},
    Row{"Or", elementwise},
    Row{"Pow", elementwise},
    Row{"Reciprocal", elementwise},
    Row{"Relu", elementwise},
    Row{"Reshape", reshape},
    Row{"Round", elementwise},
    Row{"Selu", elementwise},
    Row{"Shape", shape},
    Row{"Sigmoid", elementwise},
    Row{"Sign", elementwise},
    Row{"Sin", elementwise},
    Row{"Sinh", elementwise},
    Row{"Size", size},
    Row{"Slice", slice},
    Row{"Softplus", elementwise},
    Row{"Softsign", elementwise},
    Row{"Sqrt", elementwise},
    Row{"Squeeze", squeeze},
    Row{"Sub", elementwise},
    Row{"Sum", elementwise},
    Row{"Tan", elementwise},
    Row{"Tanh", elementwise},
    Row{"ThresholdedRelu", elementwise},
    Row{"Transpose", transpose},
    Row{"Unsqueeze", unsqueeze},
    Row{"Where", elementwise},
    Row{"Xor", elementwise},
};

}  // namespace

WhenRun find_when_run(const onnx::NodeProto& node) {
  if (!standard_domain(node.domain()).empty()) return nullptr;
  const auto row = std::lower_bound(kRows.begin(), kRows.end(), node.op_type(),
                                    [](const Row& r, const std::string& name) { return r.op < name; });
  return row != kRows.end() && row->op == node.op_type() ? row->handler : nullptr;
}

}  // namespace tessera
