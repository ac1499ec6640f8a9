#include "graph_passes/quantized/cancel_quantisation.h"

#include <cmath>
#include <optional>

#include "graph_passes/support/graph_util.h"
#include "ops/composites/composites.h"

namespace tessera::inline graph_passes {
namespace {

// How numbers are stored as integers.
struct Scale {
  double scale = 0;
  int64_t zero = 0;
  DType dtype = DType::kU8;
  bool operator==(const Scale&) const = default;
};

// Of a quantize or dequantize with one constant scale for all, where it is a number that f32 has room around.
std::optional<Scale> scale_of(const Graph& graph, const Node& node, DType integers) {
  const Tensor* scale = constant_value(graph, node.inputs[1]);
  const Tensor* zero = node.inputs.size() > 2 ? constant_value(graph, node.inputs[2]) : nullptr;
  if (!scale || scale->dtype() != DType::kF32 || scale->num_elements() != 1 || (node.inputs.size() > 2 && !zero) ||
      dtype_bits(integers) > 16 || composite_attrs(node).has("axis"))
    return std::nullopt;
  const double value = scale->get_double(0);
  if (!(value > 0x1p-80 && value < 0x1p80)) return std::nullopt;
  return Scale{value, zero ? static_cast<int64_t>(zero->get_double(0)) : 0, integers};
}

bool is_max_pool(const Node& node) { return is_composite(&node, "max_pool") || is_composite(&node, "global_max_pool"); }

bool keeps_bytes(const Node& node) {
  return is_op(&node, "reshape") || is_op(&node, "transpose") || is_op(&node, "slice") || is_max_pool(node);
}

}  // namespace

Graph cancel_quantisation(const Graph& graph, const PassContext& ctx) {
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>&) -> std::vector<ValueId> {
        if (!is_composite(&node, "quantize")) return {};
        const DType to = graph.type(node.outputs[0]).dtype;
        const auto wanted = scale_of(graph, node, to);
        if (!wanted) return {};
        std::vector<const Node*> between;  // from the last to the first
        const Node* at = graph.producer(node.inputs[0]);
        for (; at && keeps_bytes(*at) && !has_symbolic_attrs(*at); at = graph.producer(at->inputs[0]))
          between.push_back(at);
        if (!is_composite(at, "dequantize") || scale_of(graph, *at, graph.type(at->inputs[0]).dtype) != wanted)
          return {};
        GraphBuilder builder(rewriter.target());
        builder.set_loc(node.loc);
        const OpDef& cast = ctx.ops.get("cast");
        ValueId bytes = rewriter.mapped(at->inputs[0]);
        for (size_t i = between.size(); i-- > 0;) {
          if (!is_max_pool(*between[i])) {
            bytes = builder.add(*between[i]->op, {bytes}, between[i]->attrs);
            continue;
          }
          // A window of padding alone is less than all, and becomes the least integer there is.
          Tensor least(DType::kI32, {});
          least.as_mutable<int32_t>()[0] = is_signed_int(to) ? -(1 << (dtype_bits(to) - 1)) : 0;
          bytes = builder.add(cast, {bytes}, {{"to", DType::kI32}});
          bytes = add_composite(builder, ctx.ops, between[i]->attrs.get<std::string>("name"), {bytes},
                                composite_attrs(*between[i]))[0];
          bytes = builder.add(ctx.ops.get("max"),
                              {bytes, add_constant(rewriter.target(), ctx.ops, std::move(least), "least", node.loc)});
          bytes = builder.add(cast, {bytes}, {{"to", to}});
        }
        if (ctx.remarks) ctx.remarks->done("cancel_quantisation", node.loc, "bytes stay what they were");
        return {bytes};
      });
}

}  // namespace tessera::inline graph_passes
