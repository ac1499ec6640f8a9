#include "graph_passes/rewrite/lower_conv_transpose.h"

#include "arith/simplify.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

bool applies(const Graph& graph, const Node& node) {
  if (node.op->name != "conv" || node.attrs.get_int("groups") != 1) return false;
  const TensorType& x = graph.type(node.inputs[0]);
  const TensorType& w = graph.type(node.inputs[1]);
  if (!w.is_static() || !x.layout.row_major()) return false;
  const Ints kernel = w.dims();
  bool gaps = false;
  for (size_t d = 0; d + 2 < kernel.size(); ++d) {
    const int64_t k = kernel[d + 2];
    const auto attr = [&](const char* name) { return node.attrs.get_ints(name)[d]; };
    if (attr("strides") != 1 || attr("dilations") != 1 || attr("input_dilations") != k || attr("pads_begin") != k - 1 ||
        attr("pads_end") != k - 1)
      return false;
    gaps |= k > 1;
  }
  return gaps;
}

ValueId rewrite(GraphBuilder& builder, const OpTable& ops, const std::string& name, const Node& node, ValueId x,
                ValueId w) {
  const Shape image = builder.graph().type(x).shape;
  const Ints weights = builder.graph().type(w).dims();
  const Expr batch = image[0];
  const int64_t out = weights[0], in = weights[1];
  const size_t rank = image.size() - 2;
  const auto add = [&](const char* op, ValueId operand, Attrs attrs, const std::string& suffix) {
    return builder.add(ops.get(op), {operand}, std::move(attrs), name + suffix);
  };

  // weights[o, c, k - 1 - a] becomes row (a, o), column c: window position k - 1 - a of the gapped input is where
  // output place a of a patch finds its pixel.
  Ints starts(weights.size(), 0), steps(weights.size(), 1), perm, place = {0, static_cast<int64_t>(rank) + 1};
  Shape split = {batch};
  int64_t positions = 1;
  for (size_t d = 0; d < rank; ++d) {
    starts[d + 2] = weights[d + 2] - 1;
    steps[d + 2] = -1;
    perm.push_back(static_cast<int64_t>(d) + 2);
    split.push_back(weights[d + 2]);
    place.push_back(static_cast<int64_t>(rank + 2 + d));
    place.push_back(static_cast<int64_t>(1 + d));
    positions *= weights[d + 2];
  }
  perm.insert(perm.end(), {0, 1});
  Ints matrix = {positions * out, in};
  matrix.resize(weights.size(), 1);
  const ValueId turned = add("slice", w, {{"starts", starts}, {"sizes", weights}, {"steps", steps}}, ".turned");
  const ValueId by_position = add("transpose", turned, {{"perm", perm}}, ".by_position");
  const ValueId flat = add("reshape", by_position, {{"shape", matrix}}, ".weights");

  const Ints ones(rank, 1), zeros(rank, 0);
  const ValueId patches = builder.add(*node.op, {x, flat},
                                      {{"strides", ones},
                                       {"dilations", ones},
                                       {"input_dilations", ones},
                                       {"pads_begin", zeros},
                                       {"pads_end", zeros},
                                       {"groups", int64_t{1}}},
                                      name + ".patches");

  // [N, k..., O, D...] -> [N, O, D1, k1, D2, k2, ...] -> [N, O, D1 * k1, ...]
  split.push_back(out);
  split.insert(split.end(), image.begin() + 2, image.end());
  Shape result = {batch, out};
  for (size_t d = 0; d < rank; ++d) result.push_back(normalize_size(image[d + 2] * Expr(weights[d + 2])));
  const ValueId apart = add("reshape", patches, {{"shape", split}}, ".split");
  const ValueId placed = add("transpose", apart, {{"perm", place}}, ".placed");
  return add("reshape", placed, {{"shape", result}}, "");
}

// By dimension of space, how many places behind the output make its extent a multiple of the gaps' distance, where it
// is open and none whatever the size; empty when there are none to add.
Ints places_to_add(const Graph& graph, const Node& node) {
  if (node.op->name != "conv" || !graph.type(node.inputs[1]).is_static()) return {};
  const Shape& shape = graph.type(node.outputs[0]).shape;
  const Ints& gaps = node.attrs.get_ints("input_dilations");
  Ints more(gaps.size(), 0);
  bool any = false;
  for (size_t d = 0; d < gaps.size(); ++d) {
    if (gaps[d] == 1 || as_int(shape[d + 2]) || node.attrs.get_ints("strides")[d] != 1) continue;
    const auto rest = as_int(normalize_size(floormod(shape[d + 2], gaps[d])));
    if (!rest || *rest == 0) continue;
    more[d] = gaps[d] - *rest;
    any = true;
  }
  return any ? more : Ints();
}

ValueId with_more_places(GraphBuilder& builder, const OpTable& ops, const std::string& name, const Node& node,
                         const std::vector<ValueId>& operands, const Ints& more, const Shape& sizes) {
  Ints ends = node.attrs.get_ints("pads_end");
  for (size_t d = 0; d < more.size(); ++d) ends[d] += more[d];
  Attrs attrs = node.attrs;
  attrs.set("pads_end", ends);
  const ValueId whole = builder.add(*node.op, operands, std::move(attrs), name + ".whole");
  const Ints zeros(sizes.size(), 0), ones(sizes.size(), 1);
  return builder.add(ops.get("slice"), {whole}, {{"starts", zeros}, {"sizes", sizes}, {"steps", ones}}, name);
}

}  // namespace

Graph lower_conv_transpose(const Graph& graph, const PassContext& ctx) {
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (const Ints more = places_to_add(graph, node); !more.empty()) {
          GraphBuilder builder(rewriter.target());
          builder.set_loc(node.loc);
          const ValueId result = node.outputs[0];
          return {with_more_places(builder, ctx.ops, graph.value(result).name, node, inputs, more,
                                   graph.type(result).shape)};
        }
        if (!applies(graph, node)) return {};
        GraphBuilder builder(rewriter.target());
        builder.set_loc(node.loc);
        if (ctx.remarks)
          ctx.remarks->done("lower_conv_transpose", node.loc,
                            "its windows do not overlap: a 1x1 convolution whose channels are laid out as pixels");
        return {rewrite(builder, ctx.ops, graph.value(node.outputs[0]).name, node, inputs[0], inputs[1])};
      });
}

}  // namespace tessera::inline graph_passes
