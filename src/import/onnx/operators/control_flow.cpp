#include <fmt/format.h>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/tensor_reader.h"

namespace tessera {
namespace {

std::vector<ValueId> open_branch(NodeContext& c, const onnx::GraphProto& branch, const std::string& name) {
  if (branch.input_size() > 0) c.malformed(fmt::format("{} has {} inputs", name, branch.input_size()), "none");
  std::vector<ValueId> results = c.open(branch);
  if (std::ssize(results) < c.num_outputs())
    c.malformed(fmt::format("{} gives {} values for {} outputs", name, results.size(), c.num_outputs()),
                "as many values as the node has outputs");
  return results;
}

}  // namespace

// Shapes are known while importing, so that most conditions are constants: only the branch taken is imported. Otherwise
// both are computed, which is right because no operator has side effects or fails while running, and one is selected.
void import_if(NodeContext& c) {
  c.require_inputs(1, 1);
  const onnx::GraphProto& then_branch = c.attrs.require_graph("then_branch");
  const onnx::GraphProto& else_branch = c.attrs.require_graph("else_branch");
  const ValueId condition = c.in(0);
  if (const TensorType& type = c.type(condition); type.dtype != DType::kBool || checked_num_elements(type.dims()) != 1)
    c.malformed(fmt::format("the condition is {}", type.to_string()), "one bool");

  if (const auto taken = c.constant(condition)) {
    const bool yes = taken->get_int(0) != 0;
    const auto results = open_branch(c, yes ? then_branch : else_branch, yes ? "then_branch" : "else_branch");
    for (int i = 0; i < c.num_outputs(); ++i) c.out(i, results[static_cast<size_t>(i)]);
    return;
  }
  const auto yes = open_branch(c, then_branch, "then_branch"), no = open_branch(c, else_branch, "else_branch");
  const ValueId scalar = c.reshape(condition, {});
  for (int i = 0; i < c.num_outputs(); ++i) {
    const ValueId a = yes[static_cast<size_t>(i)], b = no[static_cast<size_t>(i)];
    if (c.dtype(a) != c.dtype(b) || c.dims(a) != c.dims(b))
      c.unsupported(
          fmt::format("the condition depends on the model's inputs, and output {} is {} in one branch, {} in "
                      "the other",
                      i, c.type(a).to_string(), c.type(b).to_string()));
    if (c.wants(i)) c.out(i, c.op("select", {scalar, a, b}));
  }
}

}  // namespace tessera
