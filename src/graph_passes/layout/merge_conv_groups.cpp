#include "graph_passes/layout/merge_conv_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "graph_passes/layout/images.h"
#include "graph_passes/support/elementwise.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

constexpr int kChannels = 1;

struct Groups {
  int64_t count = 0;
  int64_t inputs = 0, outputs = 0;  // channels of one
  int64_t joined = 0;               // so many become one
};

// The groups of a convolution that is to be rewritten.
std::optional<Groups> narrow_groups(const Graph& graph, const Node& node, const PassContext& ctx) {
  if (node.op->name != "conv" || !is_image(graph.type(node.outputs[0]), ctx)) return std::nullopt;
  const TensorType& x = graph.type(node.inputs[0]);
  const TensorType& w = graph.type(node.inputs[1]);
  const auto channels = as_int(x.shape[kChannels]);
  if (!channels || !w.is_static() || !x.layout.row_major()) return std::nullopt;
  Groups groups;
  groups.count = node.attrs.get_int("groups");
  groups.inputs = w.dims()[1];
  groups.outputs = w.dims()[0] / groups.count;
  const bool depthwise = groups.inputs == 1 && groups.outputs == 1;
  if (groups.count == 1 || depthwise) return std::nullopt;
  const int64_t block = channel_block(ctx);
  const auto needed = [&](int64_t width) { return block / std::gcd(block, width); };
  groups.joined = std::min(groups.count, std::lcm(needed(groups.inputs), needed(groups.outputs)));
  if (groups.joined == 1) return std::nullopt;
  return groups;
}

class GroupWidener {
 public:
  GroupWidener(const Graph& graph, const PassContext& ctx) : source_(graph), ctx_(ctx), rewriter_(graph) {}

  Graph run() {
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      const auto groups = narrow_groups(source_, node, ctx_);
      return groups ? widen(node, inputs, *groups) : follow(node, inputs);
    });
  }

 private:
  Graph& target() { return rewriter_.target(); }

  std::vector<ValueId> widen(const Node& node, const std::vector<ValueId>& inputs, const Groups& groups) {
    const std::string& name = source_.value(node.outputs[0]).name;
    const int64_t left = groups.count % groups.joined;
    const int64_t even = groups.count - left;
    if (ctx_.remarks)
      ctx_.remarks->done("merge_conv_groups", node.loc,
                         fmt::format("its {} groups of {} channels are joined, {} at a time, to whole blocks{}",
                                     groups.count, groups.inputs, groups.joined,
                                     left > 0 ? fmt::format("; {} left over are computed apart", left) : ""));
    GraphBuilder builder(target());
    builder.set_loc(node.loc);
    if (left == 0) return {convolve(builder, node, inputs[0], inputs[1], groups, name)};
    std::vector<ValueId> parts;
    const auto part = [&](int64_t first, int64_t count, const std::string& suffix) {
      Groups some = groups;
      some.count = count;
      some.joined = std::min(count, groups.joined);
      const ValueId x =
          slice(builder, inputs[0], 1, first * groups.inputs, count * groups.inputs, name + suffix + ".x");
      const ValueId w =
          slice(builder, inputs[1], 0, first * groups.outputs, count * groups.outputs, name + suffix + ".w");
      parts.push_back(convolve(builder, node, x, w, some, name + suffix));
    };
    part(0, even, ".even");
    part(even, left, ".left");
    return together(builder, parts, name);
  }

  // The convolution `node` of other operands in `groups.count / groups.joined` groups; no rest.
  ValueId convolve(GraphBuilder& builder, const Node& node, ValueId x, ValueId w, const Groups& groups,
                   const std::string& name) {
    Attrs attrs = node.attrs;
    attrs.set("groups", groups.count / groups.joined);
    return builder.add(*node.op, {x, joined_weights(builder, w, groups, name)}, attrs, name);
  }

  ValueId joined_weights(GraphBuilder& builder, ValueId w, const Groups& groups, const std::string& name) {
    const int64_t n = groups.joined;
    if (n == 1) return w;
    Ints dims = target().type(w).dims();
    Tensor same(DType::kBool, {n, 1, n, 1});
    for (int64_t i = 0; i < n; ++i) same.set_int(i * n + i, 1);
    const int64_t taps = std::accumulate(dims.begin() + 2, dims.end(), int64_t{1}, std::multiplies<>());
    const auto& reshape = ctx_.ops.get("reshape");
    const Ints apart = {groups.count / n, n, groups.outputs, 1, groups.inputs * taps};
    const ValueId rows = builder.add(reshape, {w}, {{"shape", apart}}, name + ".groups");
    const ValueId mask = add_constant(target(), ctx_.ops, std::move(same), name + ".same_group", builder.loc());
    const ValueId zero =
        add_constant(target(), ctx_.ops, Tensor(target().type(w).dtype, {}), name + ".zero", builder.loc());
    const ValueId wide = builder.add(ctx_.ops.get("select"), {mask, rows, zero}, {}, name + ".wide");
    dims[1] *= n;
    return builder.add(reshape, {wide}, {{"shape", dims}}, name + ".weights");
  }

  ValueId slice(GraphBuilder& builder, ValueId value, size_t axis, int64_t start, int64_t size,
                const std::string& name) {
    Shape sizes = target().type(value).shape;
    Ints starts(sizes.size(), 0), steps(sizes.size(), 1);
    starts[axis] = start;
    sizes[axis] = size;
    return builder.add(ctx_.ops.get("slice"), {value}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}}, name);
  }

  // The result of whoever computes `parts`, one behind the other along the channels.
  std::vector<ValueId> together(GraphBuilder& builder, std::vector<ValueId> parts, const std::string& name) {
    const ValueId whole = builder.add(ctx_.ops.get("concat"), parts, {{"axis", int64_t{kChannels}}}, name);
    parts_[whole] = std::move(parts);
    return {whole};
  }

  // An elementwise node on an image in two parts and on constants.
  std::vector<ValueId> follow(const Node& node, const std::vector<ValueId>& inputs) {
    if (!is_elementwise(node)) return {};
    const auto in_parts = std::find_if(inputs.begin(), inputs.end(), [&](ValueId id) { return parts_.contains(id); });
    if (in_parts == inputs.end() || !same_shape(source_.type(node.outputs[0]).shape, target().type(*in_parts).shape))
      return {};
    const std::vector<ValueId> images = parts_.at(*in_parts);
    for (const ValueId input : inputs)
      if (input != *in_parts && !constant_value(target(), input)) return {};
    const auto rank = static_cast<size_t>(target().type(*in_parts).rank());
    GraphBuilder builder(target());
    builder.set_loc(node.loc);
    const std::string& name = source_.value(node.outputs[0]).name;
    std::vector<ValueId> results;
    int64_t start = 0;
    for (const ValueId image : images) {
      const std::string part_name = fmt::format("{}.part{}", name, results.size());
      const int64_t channels = *as_int(target().type(image).shape[kChannels]);
      std::vector<ValueId> operands;
      for (const ValueId input : inputs)
        operands.push_back(input == *in_parts ? image : channels_of(builder, input, rank, start, channels, part_name));
      results.push_back(rebuild_elementwise(builder, ctx_.ops, node, std::move(operands), part_name));
      start += channels;
    }
    return together(builder, std::move(results), name);
  }

  // What of an operand, stretched to an image of rank `rank`, is beside its channels from `start` on.
  ValueId channels_of(GraphBuilder& builder, ValueId operand, size_t rank, int64_t start, int64_t count,
                      const std::string& name) {
    const Ints dims = target().type(operand).dims();
    if (dims.size() + 1 < rank) return operand;
    const size_t axis = dims.size() + 1 - rank;
    return dims[axis] == 1 ? operand : slice(builder, operand, axis, start, count, name + ".operand");
  }

  const Graph& source_;
  const PassContext& ctx_;
  GraphRewriter rewriter_;
  std::map<ValueId, std::vector<ValueId>> parts_;  // of an image in the target: what it was put together from
};

}  // namespace

Graph merge_conv_groups(const Graph& graph, const PassContext& ctx) {
  const auto is_narrow = [&](const Node& node) { return narrow_groups(graph, node, ctx).has_value(); };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), is_narrow)) return graph;
  return GroupWidener(graph, ctx).run();
}

}  // namespace tessera::inline graph_passes
