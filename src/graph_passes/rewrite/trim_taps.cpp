#include "graph_passes/rewrite/trim_taps.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "arith/simplify.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

// Which taps stay, per spatial dimension, and the pads of the smaller filter.
struct Trimmed {
  Ints first, count, pads_begin, pads_end;
};

// `taps`: extents of the filter. Empty: all are needed, or sizes are no numbers.
std::optional<Trimmed> trimmed(const Attrs& attrs, const Shape& image, const Shape& places, const Ints& taps) {
  const Ints &strides = attrs.get_ints("strides"), &dilations = attrs.get_ints("dilations"),
             &gaps = attrs.get_ints("input_dilations");
  Trimmed result{{}, {}, attrs.get_ints("pads_begin"), attrs.get_ints("pads_end")};
  bool changes = false;
  for (size_t d = 0; d < taps.size(); ++d) {
    const auto extent = as_int(image[d + 2]), outputs = as_int(places[d + 2]);
    if (!extent || !outputs || *extent < 1 || *outputs < 1) return std::nullopt;
    // Tap k of the place p reads p * stride + k * dilation - pad, within 0 and `last` where it meets the image.
    const int64_t last = (*extent - 1) * gaps[d], pad = result.pads_begin[d], step = dilations[d];
    const int64_t farthest = (*outputs - 1) * strides[d];
    const int64_t low = std::max<int64_t>(pad - farthest, 0), high = last + pad;
    const int64_t first = std::min((low + step - 1) / step, taps[d] - 1);
    const int64_t end = std::min(high >= 0 ? high / step : 0, taps[d] - 1);
    if (end < first) return std::nullopt;  // nothing meets the image
    const int64_t begin = pad - first * step, rest = result.pads_end[d] - (taps[d] - 1 - end) * step;
    const bool fits = begin >= 0 && rest >= 0;
    result.first.push_back(fits ? first : 0);
    result.count.push_back(fits ? end - first + 1 : taps[d]);
    if (!fits) continue;
    changes |= end - first + 1 < taps[d];
    result.pads_begin[d] = begin;
    result.pads_end[d] = rest;
  }
  if (!changes) return std::nullopt;
  return result;
}

Attrs with_pads(Attrs attrs, const Trimmed& trim) {
  attrs.set("pads_begin", trim.pads_begin);
  attrs.set("pads_end", trim.pads_end);
  return attrs;
}

bool all_are(const Ints& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
}

// Of a filter as large as the image, which stands in one place: a product of matrices.
std::optional<ValueId> as_product(GraphBuilder& builder, const PassContext& ctx, const Attrs& attrs, ValueId x,
                                  ValueId dy, const Ints& window) {
  const auto image = static_dims(builder.graph().type(x).shape), places = static_dims(builder.graph().type(dy).shape);
  if (!image || !places || attrs.get_int("groups") != 1 || !all_are(attrs.get_ints("pads_begin"), 0) ||
      !all_are(attrs.get_ints("pads_end"), 0) || !all_are(attrs.get_ints("input_dilations"), 1) ||
      !std::equal(window.begin(), window.end(), image->begin() + 2, image->end()) ||
      !all_are(Ints(places->begin() + 2, places->end()), 1) || !all_are(attrs.get_ints("dilations"), 1))
    return std::nullopt;
  int64_t read = (*image)[1];
  for (const int64_t extent : window) read *= extent;
  const auto matrix = [&](ValueId v, int64_t columns) {
    return builder.add(ctx.ops.get("reshape"), {v}, {{"shape", Ints{(*image)[0], columns}}});
  };
  const ValueId product = builder.add(ctx.ops.get("matmul"), {matrix(dy, (*places)[1]), matrix(x, read)},
                                      {{"transpose_a", true}, {"transpose_b", false}});
  Ints filter = {(*places)[1], (*image)[1]};
  filter.insert(filter.end(), window.begin(), window.end());
  return builder.add(ctx.ops.get("reshape"), {product}, {{"shape", filter}});
}

}  // namespace

Graph trim_taps(const Graph& graph, const PassContext& ctx) {
  GraphRewriter rewriter(graph);
  GraphBuilder builder(rewriter.target());
  return rewriter.run(
      [&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        const bool is_gradient = node.op->name == "conv_weights";
        if (!is_gradient && node.op->name != "conv") return {};
        const ValueId filter = is_gradient ? node.outputs[0] : node.inputs[1];
        const ValueId places = is_gradient ? node.inputs[1] : node.outputs[0];
        const auto dims = static_dims(graph.type(filter).shape);
        if (!dims) return {};
        const Ints taps(dims->begin() + 2, dims->end());
        const auto trim = trimmed(node.attrs, graph.type(node.inputs[0]).shape, graph.type(places).shape, taps);
        if (!trim) return {};
        builder.set_loc(node.loc);
        Attrs attrs = with_pads(node.attrs, *trim);
        Ints starts = {0, 0}, sizes = {(*dims)[0], (*dims)[1]};
        starts.insert(starts.end(), trim->first.begin(), trim->first.end());
        sizes.insert(sizes.end(), trim->count.begin(), trim->count.end());
        if (!is_gradient) {
          const ValueId part = builder.add(ctx.ops.get("slice"), {inputs[1]},
                                           {{"starts", starts}, {"sizes", sizes}, {"steps", Ints(dims->size(), 1)}});
          return {builder.add(*node.op, {inputs[0], part}, std::move(attrs))};
        }
        attrs.set("window", trim->count);
        const auto product = as_product(builder, ctx, attrs, inputs[0], inputs[1], trim->count);
        const ValueId part = product ? *product : builder.add(*node.op, inputs, std::move(attrs));
        auto none = std::make_shared<Tensor>(graph.type(filter).dtype, Ints{});
        const ValueId zero = builder.add(ctx.ops.get("constant"), {}, {{"value", TensorPtr(std::move(none))}});
        Ints behind(dims->size());
        for (size_t d = 0; d < behind.size(); ++d) behind[d] = (*dims)[d] - starts[d] - sizes[d];
        return {builder.add(ctx.ops.get("pad"), {part, zero},
                            {{"low", starts}, {"high", behind}, {"mode", std::string("constant")}})};
      });
}

}  // namespace tessera::inline graph_passes
