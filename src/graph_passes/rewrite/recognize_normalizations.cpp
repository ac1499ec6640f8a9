#include <algorithm>
#include <cmath>

#include "arith/simplify.h"
#include "graph_passes/rewrite/recognizers.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

// reduce of this kind with keepdims: what and over which axes.
const Node* kept_reduce(const Graph& graph, ValueId id, std::string_view kind) {
  const Node* node = graph.producer(id);
  const bool fits = is_op(node, "reduce") && node->attrs.get<std::string>("kind") == kind &&
                    node->attrs.get<bool>("keepdims") && !node->attrs.get_ints("axes").empty();
  return fits ? node : nullptr;
}

Ints sorted_axes(const Node& reduce) {
  Ints axes = reduce.attrs.get_ints("axes");
  std::sort(axes.begin(), axes.end());
  return axes;
}

// The dimension from which on all are reduced; empty when the axes are others.
std::optional<int64_t> last_dimensions(const Ints& axes, int rank) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - static_cast<int64_t>(axes.size() - i)) return std::nullopt;
  return axes[0];
}

// A value that is this size.
bool is_size(const Graph& graph, ValueId id, const Expr& size) {
  const Node* node = graph.producer(id);
  while (is_op(node, "reshape") || is_op(node, "cast")) node = graph.producer(node->inputs[0]);
  if (!is_op(node, "sizes")) return false;
  const Shape sizes = node->attrs.get_sizes("sizes");
  return sizes.size() == 1 && equal_sizes(sizes[0], size);
}

struct Mean {
  ValueId of;
  Ints axes;
};

// sum / count, or sum * (1 / count).
std::optional<Mean> mean(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (!is_op(node, "div") && !is_op(node, "mul")) return std::nullopt;
  const bool divides = node->op->name == "div";
  for (size_t i = 0; i < (divides ? 1 : 2); ++i) {
    const Node* sum = kept_reduce(graph, node->inputs[i], "sum");
    if (!sum) continue;
    const TensorType& type = graph.type(sum->inputs[0]);
    Expr size = 1;
    for (const int64_t axis : sorted_axes(*sum)) size = size * type.shape[static_cast<size_t>(axis)];
    const auto known = as_int(normalize_size(size));
    const auto factor = splat_number(graph, node->inputs[1 - i]);
    const bool fits = known ? factor && near(divides ? *factor : 1 / *factor, static_cast<double>(*known), type.dtype)
                            : divides && is_size(graph, node->inputs[1 - i], size);
    if (fits) return Mean{sum->inputs[0], sorted_axes(*sum)};
  }
  return std::nullopt;
}

std::optional<ValueId> square(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (is_op(node, "mul") && node->inputs[0] == node->inputs[1]) return node->inputs[0];
  if (is_op(node, "pow") && splat_number(graph, node->inputs[1]) == 2.0) return node->inputs[0];
  return std::nullopt;
}

struct Quotient {
  ValueId above, below;
  bool rooted = false;  // divided by the root of `below`
};

// a / b, a * (1 / b), or a * b^-0.5.
std::vector<Quotient> quotients(const Graph& graph, const Node& node) {
  std::vector<Quotient> found;
  if (is_op(&node, "div")) found.push_back({node.inputs[0], node.inputs[1]});
  if (!is_op(&node, "mul")) return found;
  for (size_t i = 0; i < 2; ++i) {
    const Node* inverse = graph.producer(node.inputs[1 - i]);
    if (is_op(inverse, "div") && splat_number(graph, inverse->inputs[0]) == 1.0)
      found.push_back({node.inputs[i], inverse->inputs[1]});
    if (is_op(inverse, "pow") && splat_number(graph, inverse->inputs[1]) == -0.5)
      found.push_back({node.inputs[i], inverse->inputs[0], true});
  }
  return found;
}

// sqrt(mean(x^2) + epsilon): x, the axes and epsilon.
struct Deviation {
  ValueId of;
  Ints axes;
  double epsilon;
};

std::optional<Deviation> deviation(const Graph& graph, const Quotient& quotient) {
  ValueId square_of_it = quotient.below;
  if (!quotient.rooted) {
    const Node* root = graph.producer(quotient.below);
    const bool power = is_op(root, "pow") && splat_number(graph, root->inputs[1]) == 0.5;
    if (!power && !is_op(root, "sqrt")) return std::nullopt;
    square_of_it = root->inputs[0];
  }
  const Node* sum = graph.producer(square_of_it);
  if (!is_op(sum, "add")) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const auto epsilon = splat_number(graph, sum->inputs[1 - i]);
    const auto squares = epsilon ? mean(graph, sum->inputs[i]) : std::nullopt;
    const auto of = squares ? square(graph, squares->of) : std::nullopt;
    if (of) return Deviation{*of, squares->axes, *epsilon};
  }
  return std::nullopt;
}

// x - mean(x): x.
std::optional<ValueId> centred(const Graph& graph, ValueId id, const Ints& axes) {
  const Node* node = graph.producer(id);
  if (!is_op(node, "sub")) return std::nullopt;
  const auto middle = mean(graph, node->inputs[1]);
  return middle && middle->of == node->inputs[0] && middle->axes == axes ? std::optional(middle->of) : std::nullopt;
}

std::optional<Recognized> normalization(const Graph& graph, const Node& node) {
  for (const Quotient& quotient : quotients(graph, node)) {
    const ValueId above = quotient.above;
    const auto spread = deviation(graph, quotient);
    if (!spread) continue;
    const auto axis = last_dimensions(spread->axes, graph.type(node.outputs[0]).rank());
    if (!axis) continue;
    const Attrs attrs = {{"axis", *axis}, {"epsilon", spread->epsilon}};
    const auto x = centred(graph, spread->of, spread->axes);
    if (x && centred(graph, above, spread->axes) == x) return Recognized{"layer_norm", {*x}, attrs};
    if (!x && above == spread->of) return Recognized{"rms_norm", {above}, attrs};
  }
  return std::nullopt;
}

std::optional<Recognized> softmax(const Graph& graph, const Node& node) {
  for (const auto& [above, below, rooted] : quotients(graph, node)) {
    const Node* sum = rooted ? nullptr : kept_reduce(graph, below, "sum");
    const Node* exp = graph.producer(above);
    if (!sum || sum->inputs[0] != above || sorted_axes(*sum).size() != 1 || !is_op(exp, "exp")) continue;
    const Node* shifted = graph.producer(exp->inputs[0]);
    const Node* highest = is_op(shifted, "sub") ? kept_reduce(graph, shifted->inputs[1], "max") : nullptr;
    if (highest && highest->inputs[0] == shifted->inputs[0] && sorted_axes(*highest) == sorted_axes(*sum))
      return Recognized{"softmax", {shifted->inputs[0]}, {{"axis", sorted_axes(*sum)[0]}}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Recognized> recognize_normalization(const Graph& graph, const Node& node) {
  if (!is_float(graph.type(node.outputs[0]).dtype)) return std::nullopt;
  if (auto found = softmax(graph, node)) return found;
  return normalization(graph, node);
}

std::optional<Recognized> recognize_affine(const Graph& graph, const Node& node) {
  const bool scales = is_op(&node, "mul");
  if (!scales && !is_op(&node, "add")) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Node* inner = graph.producer(node.inputs[i]);
    const bool layer = is_composite(inner, "layer_norm"), rms = is_composite(inner, "rms_norm");
    if ((!layer && !rms) || (!scales && !layer) || inner->inputs.size() != (scales ? 1 : 2)) continue;
    if (inner->outputs.size() > 1) continue;  // the statistics are wanted as well
    const ValueId factor = node.inputs[1 - i];
    const Shape& shape = graph.type(factor).shape;
    const Shape& normalized = graph.type(node.inputs[i]).shape;
    // One factor for each place of a normalised part: its dimensions before `axis` are 1 or missing.
    const int64_t leading =
        static_cast<int64_t>(shape.size()) - graph.type(node.inputs[i]).rank() + inner->attrs.get_int("axis");
    bool fits = same_shape(graph.type(node.outputs[0]).shape, normalized) && factor != node.inputs[i];
    for (int64_t d = 0; d < leading; ++d) fits = fits && is_const_int(shape[static_cast<size_t>(d)], 1);
    if (!fits) continue;
    Recognized result{inner->attrs.get<std::string>("name"), inner->inputs, composite_attrs(*inner)};
    result.operands.push_back(factor);
    return result;
  }
  return std::nullopt;
}

}  // namespace tessera::inline graph_passes
