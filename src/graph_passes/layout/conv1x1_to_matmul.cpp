#include "graph_passes/layout/conv1x1_to_matmul.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "arith/simplify.h"
#include "graph_passes/support/elementwise.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

// Rows of fewer pixels are too short for the product's vectors.
constexpr int64_t kFewestPixels = 128;

bool is_image(const TensorType& type) { return type.rank() == 4 && type.dtype == DType::kF32; }

// A 1x1 convolution of one image that neither pads nor leaves out pixels.
bool is_pointwise(const Graph& graph, const Node& node) {
  if (node.op->name != "conv" || node.attrs.get_int("groups") != 1) return false;
  const TensorType& x = graph.type(node.inputs[0]);
  const TensorType& w = graph.type(node.inputs[1]);
  if (!is_image(x) || !is_image(w) || !x.layout.row_major()) return false;
  return is_const_int(x.shape[0], 1) && typical_size(x.shape[2] * x.shape[3]) >= kFewestPixels &&
         is_const_int(w.shape[2], 1) && is_const_int(w.shape[3], 1) && all_of_list(node, "strides", 1) &&
         all_of_list(node, "input_dilations", 1) && all_of_list(node, "pads_begin", 0) &&
         all_of_list(node, "pads_end", 0);
}

// The sets of images that nodes connect, and the convolutions at each.
class ConnectedImages {
 public:
  explicit ConnectedImages(const Graph& graph) : set_(graph.values().size()), convolutions_(graph.values().size()) {
    std::iota(set_.begin(), set_.end(), 0);
    for (const Node& node : graph.nodes()) {
      if (is_op(&node, "constant")) continue;
      std::optional<ValueId> first;
      const auto join = [&](ValueId id) {
        if (graph.type(id).rank() != 4 || is_op(graph.producer(id), "constant")) return;
        if (first) set_[find(id)] = find(*first);
        first = id;
      };
      const bool conv = is_op(&node, "conv");
      for (size_t i = 0; i < (conv ? 1 : node.inputs.size()); ++i) join(node.inputs[i]);
      for (const ValueId output : node.outputs) join(output);
    }
    for (const Node& node : graph.nodes())
      if (is_op(&node, "conv")) ++convolutions_[find(node.outputs[0])];
  }

  bool is_alone(const Node& conv) { return convolutions_[find(conv.outputs[0])] == 1; }

 private:
  size_t find(ValueId id) {
    auto at = static_cast<size_t>(id);
    while (set_[at] != at) at = set_[at] = set_[set_[at]];
    return at;
  }

  std::vector<size_t> set_;
  std::vector<int> convolutions_;
};

class PixelMultiplier {
 public:
  PixelMultiplier(const Graph& graph, const PassContext& ctx)
      : source_(graph), ctx_(ctx), images_(graph), rewriter_(graph) {}

  Graph run() {
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      if (is_pointwise(source_, node) && images_.is_alone(node)) return multiply(node, inputs);
      return follow(node, inputs);
    });
  }

 private:
  Graph& target() { return rewriter_.target(); }

  ValueId reshape(GraphBuilder& builder, ValueId value, const Shape& shape, const std::string& name) {
    return builder.add(ctx_.ops.get("reshape"), {value}, {{"shape", shape}}, name);
  }

  // `flat` as the image that `node` gives.
  std::vector<ValueId> as_image(GraphBuilder& builder, const Node& node, ValueId flat) {
    const Value& result = source_.value(node.outputs[0]);
    const ValueId image = reshape(builder, flat, result.type.shape, result.name);
    flat_[image] = flat;
    return {image};
  }

  std::vector<ValueId> multiply(const Node& node, const std::vector<ValueId>& inputs) {
    const std::string name = source_.value(node.outputs[0]).name;
    const Shape image = target().type(inputs[0]).shape, weights = target().type(inputs[1]).shape;
    if (ctx_.remarks)
      ctx_.remarks->done("conv1x1_to_matmul", node.loc,
                         "no other convolution reads or writes its images: a product of its weights and the pixels");
    GraphBuilder builder(target());
    builder.set_loc(node.loc);
    const ValueId pixels =
        reshape(builder, inputs[0], {image[1], normalize_size(image[2] * image[3])}, name + ".pixels");
    const ValueId matrix = reshape(builder, inputs[1], {weights[0], weights[1]}, name + ".weights");
    return as_image(builder, node, builder.add(ctx_.ops.get("matmul"), {matrix, pixels}, {}, name + ".product"));
  }

  // An elementwise node on images of which one is flat.
  std::vector<ValueId> follow(const Node& node, const std::vector<ValueId>& inputs) {
    const auto is_flat = [&](ValueId id) { return flat_.contains(id); };
    if (!is_elementwise(node) || std::none_of(inputs.begin(), inputs.end(), is_flat)) return {};
    const TensorType& type = source_.type(node.outputs[0]);
    if (type.rank() != 4) return {};
    const Shape& full = type.shape;
    std::vector<std::optional<Shape>> shapes;
    for (const ValueId input : inputs) {
      if (is_flat(input) && !equal_shapes(target().type(input).shape, full)) return {};
      shapes.push_back(flat_shape(target().type(input).shape, full));
      if (!is_flat(input) && !shapes.back()) return {};
    }
    GraphBuilder builder(target());
    builder.set_loc(node.loc);
    std::vector<ValueId> operands;
    for (size_t i = 0; i < inputs.size(); ++i)
      operands.push_back(is_flat(inputs[i])
                             ? flat_.at(inputs[i])
                             : reshape(builder, inputs[i], *shapes[i], target().value(inputs[i]).name + ".flat"));
    const std::string& name = source_.value(node.outputs[0]).name;
    return as_image(builder, node, rebuild_elementwise(builder, ctx_.ops, node, std::move(operands), name + ".flat"));
  }

  // The shape that an operand of shape `dims`, stretched to `full`, has beside [channels, pixels]; none where it is
  // stretched along one of the two dimensions of the pixels alone.
  static std::optional<Shape> flat_shape(Shape dims, const Shape& full) {
    dims.insert(dims.begin(), full.size() - dims.size(), Expr(1));
    if (equal_sizes(dims[2], full[2]) && equal_sizes(dims[3], full[3]))
      return Shape{dims[1], normalize_size(dims[2] * dims[3])};
    if (is_const_int(dims[2], 1) && is_const_int(dims[3], 1)) return Shape{dims[1], 1};
    return std::nullopt;
  }

  const Graph& source_;
  const PassContext& ctx_;
  ConnectedImages images_;
  GraphRewriter rewriter_;
  std::map<ValueId, ValueId> flat_;  // of an image: the same as [channels, pixels]
};

}  // namespace

Graph conv1x1_to_matmul(const Graph& graph, const PassContext& ctx) {
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return is_pointwise(graph, n); }))
    return graph;
  return PixelMultiplier(graph, ctx).run();
}

}  // namespace tessera::inline graph_passes
