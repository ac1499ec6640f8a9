#include "graph_passes/quantized/byte_activations.h"

#include <map>

#include "graph_passes/quantized/copy_dequantisations.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr int64_t kGroup = 32;  // elements with one scale, as llama.cpp has it
constexpr float kMost = 127;
constexpr float kLeast = 1e-30F;  // of a group: smaller ones, whose scale may have no inverse, are zeros

bool has_blocked_weights(const Graph& graph, const Node& node) {
  if (!is_op(&node, "matmul") || node.attrs.get_or<bool>("transpose_a", false) ||
      !node.attrs.get_or<bool>("transpose_b", false))
    return false;
  const Node* weights = graph.producer(node.inputs[1]);
  const TensorType &x = graph.type(node.inputs[0]), &w = graph.type(node.inputs[1]);
  if (!weights || !dequantizes_weights(graph, *weights) || w.rank() != 2) return false;
  const auto length = as_int(x.shape.back());
  return x.dtype == DType::kF32 && length && *length > 0 && *length % kGroup == 0;
}

// Bytes and scales of rows.
struct ByteRows {
  ValueId bytes = -1, scales = -1;
};

class ByteMaker {
 public:
  ByteMaker(GraphBuilder& builder, const PassContext& ctx) : builder_(builder), ctx_(ctx) {}

  ByteRows make(ValueId x, const std::string& name, const std::string& loc) {
    builder_.set_loc(loc);
    const Shape whole = builder_.graph().type(x).shape;
    const int64_t length = *as_int(whole.back());
    Shape groups = whole, in_groups = whole, one_each = whole;
    groups.back() = length / kGroup;
    in_groups.back() = length / kGroup;
    in_groups.emplace_back(kGroup);
    one_each.back() = length / kGroup;
    one_each.emplace_back(1);
    const auto op = [&](const char* kind, const std::vector<ValueId>& operands, Attrs attrs = {}) {
      return builder_.add(ctx_.ops.get(kind), operands, std::move(attrs), name + "." + kind);
    };
    const auto scalar = [&](float value) {
      Tensor tensor(DType::kF32, {});
      tensor.as_mutable<float>()[0] = value;
      return add_constant(builder_.graph(), ctx_.ops, std::move(tensor), name + ".number", loc);
    };
    const ValueId rows = op("reshape", {x}, {{"shape", in_groups}});
    const ValueId largest =
        op("reduce", {op("abs", {rows})},
           {{"kind", std::string("max")}, {"axes", std::vector<int64_t>{std::ssize(whole)}}, {"keepdims", false}});
    const ValueId zero = op("broadcast", {scalar(0)}, {{"shape", groups}});
    const ValueId most = op("broadcast", {scalar(kMost)}, {{"shape", groups}});
    const ValueId is_any = op("gt", {largest, op("broadcast", {scalar(kLeast)}, {{"shape", groups}})});
    const ValueId inverse = op("select", {is_any, op("div", {most, largest}), zero});
    const ValueId scales = op("mul", {largest, op("broadcast", {scalar(1 / kMost)}, {{"shape", groups}})});
    const ValueId factor = op("broadcast", {op("reshape", {inverse}, {{"shape", one_each}})}, {{"shape", in_groups}});
    const ValueId whole_numbers = op("round", {op("mul", {rows, factor})});
    const ValueId bytes = op("cast", {whole_numbers}, {{"to", DType::kI8}});
    return {op("reshape", {bytes}, {{"shape", whole}}), scales};
  }

 private:
  GraphBuilder& builder_;
  const PassContext& ctx_;
};

}  // namespace

Graph byte_activations(const Graph& graph, const PassContext& ctx) {
  const bool may_ask = ctx.precision == DType::kI8 || (ctx.plan && ctx.plan->narrows());
  if (!may_ask) return graph;
  GraphRewriter rewriter(graph);
  GraphBuilder builder(rewriter.target());
  ByteMaker maker(builder, ctx);
  std::map<ValueId, ByteRows> made;  // by the operand in `graph`
  return rewriter.run(
      [&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (ctx.precision_of(node) != DType::kI8 || !has_blocked_weights(graph, node)) return {};
        const auto [entry, is_new] = made.try_emplace(node.inputs[0]);
        if (is_new) entry->second = maker.make(inputs[0], graph.value(node.inputs[0]).name, node.loc);
        builder.set_loc(node.loc);
        return {builder.add(ctx.ops.get("scaled_matmul"), {entry->second.bytes, entry->second.scales, inputs[1]}, {},
                            graph.value(node.outputs[0]).name)};
      });
}

}  // namespace tessera::inline graph_passes
