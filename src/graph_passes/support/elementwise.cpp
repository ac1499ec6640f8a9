#include "graph_passes/support/elementwise.h"

#include <algorithm>
#include <array>

#include "graph_passes/support/graph_util.h"
#include "ops/composites/composites.h"

namespace tessera::inline graph_passes {

bool is_elementwise(const Node& node) {
  static constexpr std::array<std::string_view, 7> kComposites = {"gelu",    "hard_sigmoid", "hard_swish", "mish",
                                                                  "sigmoid", "silu",         "softplus"};
  if (node.outputs.size() != 1 || node.inputs.empty()) return false;
  if (node.op->kind == OpKind::kComposite)
    return std::find(kComposites.begin(), kComposites.end(), node.attrs.get<std::string>("name")) != kComposites.end();
  if (node.op->kind != OpKind::kExpression) return false;
  // Operators with attributes say by them which places they read; cast is the exception.
  return node.op->name == "cast" ||
         (node.op->attrs.empty() && node.op->max_inputs == static_cast<int>(node.inputs.size()));
}

ValueId rebuild_elementwise(GraphBuilder& builder, const OpTable& ops, const Node& node, std::vector<ValueId> operands,
                            const std::string& name) {
  if (node.op->kind != OpKind::kComposite) return builder.add(*node.op, std::move(operands), node.attrs, name);
  const ValueId result =
      add_composite(builder, ops, node.attrs.get<std::string>("name"), std::move(operands), composite_attrs(node))[0];
  builder.graph().rename(result, builder.graph().unique_name(name));
  return result;
}

}  // namespace tessera::inline graph_passes
